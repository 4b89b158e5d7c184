"""Which session an ``external_id`` names: the first of its generations that is not over, found in few looks.

A generation begins where the one before it is over (deleted, or given to another user), so all before the one that holds are
over. A session that is given back may stand below another of its name: then either is found, and both are the owner's.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from satchel.domain.ids import SessionRef, derived_session_id
from satchel.domain.record import SessionRecord
from satchel.store import Store


def ref_of(tenant_id: str, owner: str, external_id: str, generation: int) -> SessionRef:
    return SessionRef(tenant_id, derived_session_id("external", tenant_id, owner, external_id, str(generation)))


def is_over(record: SessionRecord | None, owner: str) -> bool:
    """Whether the name went on from here."""
    return record is not None and (record.status == "DELETED" or record.user_id != owner)


async def generation_behind(store: Store, tenant_id: str, owner: str, external_id: str, taken: int) -> int:
    """The generation that holds the name, or would, where ``taken`` is known to be over. Looks are doubled, then halved: about
    2 log₂ of the deletions since. Nothing is decided here: whoever creates there may hear that it is over by now, and looks on."""

    async def over(generation: int) -> bool:
        ref = ref_of(tenant_id, owner, external_id, generation)
        found = await store.snapshot(ref, working_memory=False, metadata=False)
        return is_over(found.record, owner)

    return await _first_not(over, taken)


async def _first_not(over: Callable[[int], Awaitable[bool]], low: int) -> int:
    step = 1
    while await over(low + step):
        low += step
        step *= 2
    high = low + step
    while high - low > 1:
        middle = (low + high) // 2
        if await over(middle):
            low = middle
        else:
            high = middle
    return high
