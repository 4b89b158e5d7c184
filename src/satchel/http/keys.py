"""The API keys of a store: made, listed, revoked, and found again when a request comes with one."""

from __future__ import annotations

import asyncio
import hashlib
import os
import time
from collections.abc import Awaitable, Callable, Iterable

import msgspec

from satchel.domain.api_key import (
    ID_BYTES,
    SECRET_BYTES,
    ApiKey,
    check_key,
    decode_keys,
    encode_keys,
    make_key,
    split_key,
)
from satchel.errors import InvalidInput, LimitExceeded, NotFound, StoreBusy, StoreCorrupt
from satchel.opened import OpenStore
from satchel.store import Setting

SETTING = "api_keys"
# The ids of keys that were revoked, newest last. A copy needs them: a key that is not in a list may also be new.
REVOKED = "api_keys_revoked"
MOST_REVOKED = 10_000  # the oldest are forgotten
MOST_KEYS = 10_000  # of one store; who has more users than that has tokens of an identity provider
REFRESH = 2.0  # seconds after which a revoked key is refused by every server on the store
IMPATIENCE = 0.25  # seconds between two looks for a key that is not known, however many come with one
TRIES = 50


_Change = Callable[[list[ApiKey]], Awaitable[list[ApiKey]]]
_encode = msgspec.json.Encoder().encode
_decode_ids = msgspec.json.Decoder(list[str]).decode


class KeyNotFound(NotFound):
    code = "key_not_found"

    def __init__(self, key_id: str) -> None:
        self.key_id = key_id
        super().__init__(f"no key {key_id!r}")


class KeyRing:
    """The keys of one store. All of them stand in one setting, so that finding one costs no read while they are fresh."""

    def __init__(self, store: OpenStore) -> None:
        self._store = store
        self._keys: dict[str, ApiKey] = {}
        self._opened: dict[bytes, ApiKey] = {}  # by a hash of the whole key: what was checked since the last look
        self._revision: int | None = None
        self._looked = float("-inf")
        self._looking = asyncio.Lock()

    async def create(
        self,
        *,
        tenant_id: str,
        role: str,
        user_id: str | None = None,
        acting_for: str | None = None,
        expires_in: float | None = None,
    ) -> str:
        """A new key; it cannot be asked for again. ``expires_in`` in seconds. Raises InvalidInput."""
        now = time.time_ns() // 1000
        if expires_in is not None and not 0 < expires_in <= 36_500 * 86_400:
            raise InvalidInput("must be longer than nothing, and at most 36500 days", field="expires_in")
        kept, text = make_key(
            os.urandom(ID_BYTES + SECRET_BYTES),
            tenant_id=tenant_id,
            role=role,
            user_id=user_id,
            acting_for=acting_for,
            now=now,
            expires_at=None if expires_in is None else now + int(expires_in * 1_000_000),
        )

        async def add(keys: list[ApiKey]) -> list[ApiKey]:
            if len(keys) >= MOST_KEYS:
                raise LimitExceeded(
                    field="keys", size=len(keys) + 1, limit=MOST_KEYS, setting="a fixed limit", unit="keys"
                )
            return [*keys, kept]

        await self._rewrite(add)
        return text

    async def kept(self, *, tenant_id: str | None = None) -> list[ApiKey]:
        """Oldest first."""
        found = _keys_in(await self._store.store.setting(SETTING))
        return [key for key in found if tenant_id is None or key.tenant_id == tenant_id]

    async def revoked(self) -> list[str]:
        """The ids of revoked keys, oldest first; the last MOST_REVOKED of them."""
        return _ids_in(await self._store.store.setting(REVOKED))

    async def merge(
        self, change: Callable[[list[ApiKey], frozenset[str]], list[ApiKey]], gone: Iterable[str]
    ) -> list[ApiKey]:
        """Change the keys knowing which were revoked: here, or ``gone``, which is remembered here first. The keys then."""
        await self._remember(gone)
        after: list[ApiKey] = []

        async def merged(keys: list[ApiKey]) -> list[ApiKey]:
            after[:] = change(keys, frozenset(await self.revoked()))
            return after

        await self._rewrite(merged)
        return after

    async def revoke(self, key_id: str, *, tenant_id: str | None = None) -> ApiKey:
        """Raises KeyNotFound."""
        if not any(key.key_id == key_id for key in await self.kept(tenant_id=tenant_id)):
            raise KeyNotFound(key_id)
        await self._remember([key_id])
        revoked: list[ApiKey] = []

        async def remove(keys: list[ApiKey]) -> list[ApiKey]:
            revoked[:] = [
                key for key in keys if key.key_id == key_id and (tenant_id is None or key.tenant_id == tenant_id)
            ]
            if not revoked:
                raise KeyNotFound(key_id)
            return [key for key in keys if key.key_id != key_id]

        await self._rewrite(remove)
        return revoked[0]

    async def find(self, text: str) -> ApiKey:
        """The key that ``text`` is. Raises Unauthenticated, and StoreError when it has to be looked for and cannot."""
        asked = time.monotonic()
        age = asked - self._looked
        if age <= REFRESH:
            known = self._opened.get(hashlib.sha256(text.encode("utf-8", "replace")).digest())
            if known is not None and not known.is_expired(time.time_ns() // 1000):
                return known
        key_id, secret = split_key(text)
        if age > REFRESH:
            await self._look(asked)
        elif key_id not in self._keys:  # it may have been made since
            await asyncio.sleep(max(0.0, IMPATIENCE - age))
            await self._look(asked)
        key = check_key(self._keys.get(key_id), secret, time.time_ns() // 1000)
        self._opened[hashlib.sha256(text.encode()).digest()] = key
        return key

    async def _look(self, asked: float) -> None:
        async with self._looking:
            if self._looked >= asked:  # somebody else did, while this one waited
                return
            began = time.monotonic()
            setting = await self._store.store.setting(SETTING)
            revision = 0 if setting is None else setting.revision
            if revision != self._revision:
                self._opened = {}
                self._keys = {key.key_id: key for key in _keys_in(setting)}
                self._revision = revision
            self._looked = began

    async def _rewrite(self, change: _Change) -> None:
        async def encoded(setting: Setting | None) -> bytes:
            return encode_keys(await change(_keys_in(setting)))

        await self._put(SETTING, encoded)
        self._looked = float("-inf")

    async def _remember(self, gone: Iterable[str]) -> None:
        """Before their keys go: whoever reads the keys first and these then never takes a revoked key for a new one."""

        async def encoded(setting: Setting | None) -> bytes:
            return _encode(list(dict.fromkeys([*_ids_in(setting), *gone]))[-MOST_REVOKED:])

        await self._put(REVOKED, encoded)

    async def _put(self, name: str, encoded: Callable[[Setting | None], Awaitable[bytes]]) -> None:
        """Nothing is written where the value is the one that stands there."""
        for _ in range(TRIES):
            setting = await self._store.store.setting(name)
            value = await encoded(setting)
            if value == (b"[]" if setting is None else setting.value):
                return
            base = None if setting is None else setting.revision
            kept = await self._store.store.setting(name, base=base, value=value)
            if kept is not None and kept.revision == (base or 0) + 1 and kept.value == value:
                return
        raise StoreBusy("the keys changed faster than this could follow; nothing was stored")


def _keys_in(setting: Setting | None) -> list[ApiKey]:
    if setting is None:
        return []
    try:
        return decode_keys(setting.value)
    except ValueError as error:
        raise StoreCorrupt("the list of API keys") from error


def _ids_in(setting: Setting | None) -> list[str]:
    if setting is None:
        return []
    try:
        return _decode_ids(setting.value)
    except ValueError as error:
        raise StoreCorrupt("the list of revoked API keys") from error
