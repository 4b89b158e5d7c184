"""Who is calling: an API key, a token of an identity provider, or whatever a hook finds out."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Protocol, cast

from litestar.connection import ASGIConnection

from satchel.domain.api_key import ApiKey
from satchel.domain.principal import Principal
from satchel.errors import InvalidInput, Unauthenticated
from satchel.http.asgi import Scope
from satchel.http.keys import KeyRing

if TYPE_CHECKING:
    from satchel.http.tokens import Tokens

Hook = Callable[[ASGIConnection[Any, Any, Any, Any]], Principal | Awaitable[Principal]]
KEY_PREFIX = "satchel_"
KEPT = 4096


class Identity(Protocol):
    """Asked for each request, and again while a stream lasts."""

    async def __call__(self, scope: Scope) -> Principal:
        """Raises Unauthenticated, NotAllowed, StoreError."""
        ...


class Credentials:
    """``Authorization: Bearer KEY_OR_TOKEN``; ``Satchel-Acting-For: USER`` narrows an agent to one user."""

    def __init__(self, keys: KeyRing, tokens: Tokens | None = None) -> None:
        self._keys = keys
        self._tokens = tokens
        self._known: dict[tuple[str, str | None], tuple[ApiKey, Principal]] = {}

    async def __call__(self, scope: Scope) -> Principal:
        written: bytes | None = None
        acting_for: bytes | None = None
        for name, value in scope["headers"]:
            if name == b"authorization":
                if written is not None:
                    raise Unauthenticated("two credentials")
                written = value
            elif name == b"satchel-acting-for":
                if acting_for is not None:
                    raise InvalidInput("is given twice", field="acting_for")
                acting_for = value
        if written is None:
            raise Unauthenticated("no credentials")
        scheme, _, secret = written.decode("latin-1").partition(" ")
        if scheme.lower() != "bearer":
            raise Unauthenticated("not a bearer")
        user = None if acting_for is None else _user(acting_for)
        secret = secret.strip()
        if secret.startswith(KEY_PREFIX):
            return self._principal(await self._keys.find(secret), user)
        if self._tokens is not None:
            return await self._tokens.principal(secret, acting_for=user)
        raise Unauthenticated("neither a key nor a token")

    def _principal(self, key: ApiKey, user: str | None) -> Principal:
        """To make one costs more than to find it again; a key that was replaced is another object."""
        found = self._known.get((key.key_id, user))
        if found is not None and found[0] is key:
            return found[1]
        if len(self._known) >= KEPT:
            self._known.clear()
        principal = key.principal(user)
        self._known[key.key_id, user] = key, principal
        return principal


def _user(value: bytes) -> str:
    try:
        user = value.decode()
    except UnicodeDecodeError:
        raise InvalidInput("is not UTF-8", field="acting_for") from None
    if not user:
        raise Unauthenticated("an empty text is not an identity")
    return user


class Hooked:
    """``(request) -> Principal`` of an application that has identities of its own, in place of our keys."""

    def __init__(self, hook: Hook) -> None:
        self._hook = hook

    async def __call__(self, scope: Scope) -> Principal:
        found: Any = self._hook(ASGIConnection(cast(Any, scope)))
        if inspect.isawaitable(found):
            found = await found
        if not isinstance(found, Principal):
            raise Unauthenticated("the hook found nobody")
        return found
