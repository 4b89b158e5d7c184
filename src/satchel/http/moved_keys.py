"""API keys from one store to another, as often as one likes: every key of either side, and no key that either side revoked."""

from __future__ import annotations

from typing import Literal

import msgspec

from satchel.domain.api_key import ApiKey
from satchel.errors import LimitExceeded
from satchel.http.keys import MOST_KEYS, KeyRing
from satchel.opened import OpenStore


class MovedKeys(msgspec.Struct, frozen=True, kw_only=True):
    """What a copy did at the destination. ``only_there``: keys that stand at the destination alone, and still answer."""

    added: int = 0
    revoked: int = 0
    only_there: int = 0
    result: Literal["none", "copied", "updated", "exists"]


async def move_keys(source: OpenStore, target: OpenStore) -> MovedKeys:
    """Raises StoreBusy, StoreCorrupt, StoreUnavailable."""
    kept = {key.key_id: key for key in await KeyRing(source).kept()}
    gone = await KeyRing(source).revoked()  # read behind the keys: a revocation is recorded before its key goes
    there = KeyRing(target)
    if not kept and not gone and not await there.kept():
        return MovedKeys(result="none")
    before: list[ApiKey] = []

    def merged(keys: list[ApiKey], revoked: frozenset[str]) -> list[ApiKey]:
        before[:] = keys
        known = {key.key_id for key in keys}
        new = [key for key_id, key in kept.items() if key_id not in known]
        every = sorted([*keys, *new], key=lambda key: key.created_at) if new else keys
        left = [key for key in every if key.key_id not in revoked]
        if len(left) > MOST_KEYS:
            raise LimitExceeded(field="keys", size=len(left), limit=MOST_KEYS, setting="a fixed limit", unit="keys")
        return left

    after = await there.merge(merged, gone)
    known, left = {key.key_id for key in before}, {key.key_id for key in after}
    added, revoked = len(left - known), len(known - left)
    return MovedKeys(
        added=added,
        revoked=revoked,
        only_there=len(left - kept.keys()),
        result="exists" if not added and not revoked else "updated" if known else "copied",
    )


async def count_left(source: OpenStore, target: OpenStore, *, tenant_id: str | None = None) -> int:
    """How many keys (of that tenant) ``move_keys`` would add now. Raises StoreCorrupt, StoreUnavailable."""
    there = KeyRing(target)
    known = {key.key_id for key in await there.kept()}.union(await there.revoked(), await KeyRing(source).revoked())
    kept = [key for key in await KeyRing(source).kept() if tenant_id in (None, key.tenant_id)]
    return sum(key.key_id not in known for key in kept)
