"""Tokens of an identity provider: JWT, with its public keys from a file or an address."""

from __future__ import annotations

import asyncio
import json
import time
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from satchel.domain.principal import Principal
from satchel.errors import ExtraMissing, InvalidInput, NotAllowed, Unauthenticated
from satchel.http.settings import JwtSettings

ASYMMETRIC = frozenset({"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"})
REFRESH = 300.0  # seconds after which the keys are read anew
IMPATIENCE = 10.0  # seconds between two looks for a key that is not known
MOST_KEY_BYTES = 1024 * 1024
LONGEST_TOKEN = 16 * 1024


class Tokens:
    """Whom a token stands for. Raises InvalidInput for settings that could let somebody in by mistake,
    ExtraMissing."""

    def __init__(self, settings: JwtSettings) -> None:
        try:
            import jwt
        except ModuleNotFoundError as missing:
            raise ExtraMissing("jwt", action="a service with the settings [jwt]") from missing
        wrong = [name for name in settings.algorithms if name not in ASYMMETRIC]
        if wrong or not settings.algorithms:
            raise InvalidInput(f"must be some of {', '.join(sorted(ASYMMETRIC))}", field="jwt.algorithms")
        if not settings.issuer or not settings.audience:
            raise InvalidInput("issuer and audience must not be empty", field="jwt")
        address = urlsplit(settings.jwks)
        if address.scheme in ("http", "https"):
            if address.scheme == "http" and address.hostname not in ("127.0.0.1", "localhost", "::1"):
                raise InvalidInput("must be https, unless it is on this machine", field="jwt.jwks")
        elif address.scheme:
            raise InvalidInput("must be a file, or an https address", field="jwt.jwks")
        self._jwt = jwt
        self._settings = settings
        self._keys: dict[str | None, Any] = {}
        self._looked = float("-inf")
        self._looking = asyncio.Lock()

    async def principal(self, token: str, *, acting_for: str | None) -> Principal:
        """Raises Unauthenticated, NotAllowed."""
        if len(token) > LONGEST_TOKEN:
            raise Unauthenticated("the token is too long")
        claims = await self._claims(token)
        role = self._role(claims)
        settings = self._settings
        bound = _text(claims, settings.acting_for_claim) if role == "agent" else None
        if acting_for is not None and acting_for != bound:
            if role != "agent" or bound is not None:
                raise NotAllowed(role=role, action="act for somebody else")
            bound = acting_for
        tenant, subject = _text(claims, settings.tenant_claim), _text(claims, settings.user_claim)
        if tenant is None or subject is None:
            raise Unauthenticated("the token says no tenant, or no user")
        return Principal(tenant_id=tenant, subject=subject, role=role, acting_for=bound)

    def _role(self, claims: dict[str, Any]) -> Any:
        said = _text(claims, self._settings.role_claim)
        role = self._settings.default_role if said is None else self._settings.roles.get(said)
        if role not in ("user", "agent", "admin"):
            raise Unauthenticated("the token says no role that is known here")
        return role

    async def _claims(self, token: str) -> dict[str, Any]:
        jwt = self._jwt
        try:
            kid = jwt.get_unverified_header(token).get("kid")
            key = await self._key(kid)
            claims: dict[str, Any] = jwt.decode(
                token,
                key=key,
                algorithms=list(self._settings.algorithms),
                audience=self._settings.audience,
                issuer=self._settings.issuer,
                leeway=self._settings.leeway,
                options={"require": ["exp", "iss", "aud"]},
            )
        except jwt.PyJWTError:
            raise Unauthenticated("this token is not valid here") from None
        return claims

    async def _key(self, kid: str | None) -> Any:
        """While the keys are read, who has one that is known goes on with it; who has none waits for what is read."""
        asked = time.monotonic()
        is_known = kid in self._keys
        if asked - self._looked > (REFRESH if is_known else IMPATIENCE) and not (is_known and self._looking.locked()):
            async with self._looking:
                if self._looked < asked:
                    await self._look()
        key = self._keys.get(kid)
        if key is None:
            raise Unauthenticated("a token of a key that is not known")
        return key

    async def _look(self) -> None:
        try:
            text = await asyncio.to_thread(_read, self._settings.jwks)
            found = self._jwt.PyJWKSet.from_json(text).keys
        except (OSError, ValueError, HTTPException, self._jwt.PyJWTError) as error:
            self._looked = time.monotonic()
            if not self._keys:
                raise Unauthenticated("the keys of the identity provider cannot be read") from error
            return  # the former ones hold meanwhile
        self._looked = time.monotonic()
        self._keys = {key.key_id: key for key in found}
        if len(found) == 1:
            self._keys[None] = found[0]


def _read(place: str) -> str:
    """Raises OSError, ValueError, HTTPException."""
    text = _fetch(place) if "://" in place else Path(place).read_text("utf-8")
    if not isinstance(json.loads(text), dict):
        raise ValueError("not a set of keys")  # noqa: TRY004  # it was read, and is none
    return text


def _fetch(address: str) -> str:
    from urllib.request import urlopen

    with urlopen(address, timeout=10) as answer:  # noqa: S310  # http and https alone: checked when the settings were read
        data: bytes = answer.read(MOST_KEY_BYTES + 1)
    if len(data) > MOST_KEY_BYTES:
        raise ValueError("too many keys")
    return data.decode()


def _text(claims: dict[str, Any], name: str) -> str | None:
    """A claim, also one inside another: ``realm.tenant``."""
    value: Any = claims.get(name)
    if value is None and "." in name:
        value = claims
        for part in name.split("."):
            value = value.get(part) if isinstance(value, dict) else None
    return value if isinstance(value, str) and value else None
