"""The API keys of a store: made, listed, revoked, and found again when a request comes with one."""

from __future__ import annotations

import asyncio
import hashlib
import os
import time
from collections.abc import Callable

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
MOST_KEYS = 10_000  # of one store; who has more users than that has tokens of an identity provider
REFRESH = 2.0  # seconds after which a revoked key is refused by every server on the store
IMPATIENCE = 0.25  # seconds between two looks for a key that is not known, however many come with one
TRIES = 50


_Change = Callable[[list[ApiKey]], list[ApiKey]]


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

        def add(keys: list[ApiKey]) -> list[ApiKey]:
            if len(keys) >= MOST_KEYS:
                raise LimitExceeded(
                    field="keys", size=len(keys) + 1, limit=MOST_KEYS, setting="a fixed limit", unit="keys"
                )
            return [*keys, kept]

        await self._change(add)
        return text

    async def kept(self, *, tenant_id: str | None = None) -> list[ApiKey]:
        """Oldest first."""
        found = _keys_in(await self._store.store.setting(SETTING))
        return [key for key in found if tenant_id is None or key.tenant_id == tenant_id]

    async def revoke(self, key_id: str, *, tenant_id: str | None = None) -> ApiKey:
        """Raises KeyNotFound."""
        revoked: list[ApiKey] = []

        def remove(keys: list[ApiKey]) -> list[ApiKey]:
            revoked[:] = [
                key for key in keys if key.key_id == key_id and (tenant_id is None or key.tenant_id == tenant_id)
            ]
            if not revoked:
                raise KeyNotFound(key_id)
            return [key for key in keys if key.key_id != key_id]

        await self._change(remove)
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

    async def _change(self, change: _Change) -> None:
        for _ in range(TRIES):
            setting = await self._store.store.setting(SETTING)
            value = encode_keys(change(_keys_in(setting)))
            base = None if setting is None else setting.revision
            kept = await self._store.store.setting(SETTING, base=base, value=value)
            if kept is not None and kept.revision == (base or 0) + 1 and kept.value == value:
                self._looked = float("-inf")
                return
        raise StoreBusy("the keys changed faster than this could follow; nothing was stored")


def _keys_in(setting: Setting | None) -> list[ApiKey]:
    if setting is None:
        return []
    try:
        return decode_keys(setting.value)
    except ValueError as error:
        raise StoreCorrupt("the list of API keys") from error
