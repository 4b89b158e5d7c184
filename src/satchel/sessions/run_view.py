"""A session as one of its runs sees it: with the run's row, and the layer that lies over the working memory for it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec

from satchel.access import Access
from satchel.domain.ids import SessionRef, checked_id
from satchel.domain.record import SessionRecord
from satchel.domain.run import TERMINAL, RunRow
from satchel.errors import RunNotFound
from satchel.store import RunPage, Snapshot


class RunView(msgspec.Struct, frozen=True):
    """``layer``: the run whose layer applies (for a child run its parent), or None."""

    row: RunRow
    layer: RunRow | None


async def read_for_run(
    access: Access, ref: SessionRef, run_id: str, fetch: Callable[[], Awaitable[Snapshot]]
) -> tuple[Snapshot, SessionRecord, RunView]:
    """Raises SessionNotFound, RunNotFound."""
    checked_id(run_id, field="run_id", limits=access.limits)
    while True:
        row = await _row(access, ref, run_id)
        holder = row if row.parent_run_id is None else await _row(access, ref, row.parent_run_id)
        page, record = await access.read(ref, fetch)
        if holder.memory != "run":
            return page, record, RunView(row, None)
        has_turn = record.turn is not None and record.turn.run_id == holder.run_id
        # Else it ended between the two reads, and its layer may be in the memory already.
        if has_turn or holder.status in TERMINAL or not bytes(holder.layer):
            return page, record, RunView(row, holder)


async def _row(access: Access, ref: SessionRef, run_id: str) -> RunRow:
    async def fetch() -> RunPage:
        return await access.store.runs(ref, run_id=run_id, limit=1)

    page, _ = await access.read(ref, fetch)
    if not page.runs:
        raise RunNotFound(run_id)
    return page.runs[0]
