"""Reads, each one statement and so one snapshot. A row that is corrupt hides nothing but itself."""

from __future__ import annotations

from typing import Any

from satchel.domain.ids import SessionRef
from satchel.domain.stream import StreamKey
from satchel.store import CallPage, EventPage, PartialPage, RunPage, SessionPage, Snapshot
from satchel.stores.bounds import END, between, within
from satchel.stores.postgres.connection import Fetch
from satchel.stores.postgres.queries import SQL
from satchel.stores.sql.listing import listed
from satchel.stores.sql.loading import ReadClock
from satchel.stores.sql.rows import (
    piece_of,
    record_of,
    shown_call,
    shown_event,
    shown_memory,
    shown_metadata,
    shown_run,
)


async def snapshot(
    fetch: Fetch,
    read_clock: ReadClock,
    ref: SessionRef,
    *,
    working_memory: bool,
    metadata: bool,
    messages: int,
    tool_calls: int,
    runs: int,
) -> Snapshot:
    counts = (max(0, messages), max(0, tool_calls), max(0, runs))
    rows = await fetch(SQL["snapshot"], *ref, working_memory, metadata, *counts)
    now, record, memory, labels, said, called, ran = rows[0]
    if record is None:
        return Snapshot(record=None, clock=read_clock(now))
    return Snapshot(
        record=record_of(ref.session_id, record),
        clock=read_clock(now),
        working_memory=shown_memory(memory),
        metadata=shown_metadata(labels),
        messages=tuple(shown_event(ref, row) for row in reversed(said)),
        tool_calls=tuple(shown_call(ref, row) for row in reversed(called)),
        runs=tuple(shown_run(ref, row) for row in reversed(ran)),
    )


async def events(
    fetch: Fetch,
    read_clock: ReadClock,
    ref: SessionRef,
    *,
    after: int,
    before: int | None,
    newest_first: bool,
    kind: str | None,
    run_id: str | None,
    with_retracted: bool,
    limit: int,
) -> EventPage:
    order = "descending" if newest_first else "ascending"
    bounds = (*ref, *between(after, before), run_id, with_retracted, max(0, limit))
    if kind == "message":
        rows = await fetch(SQL[f"messages_{order}"], *bounds)
    else:
        rows = await fetch(SQL[f"events_{order}"], *bounds, kind)
    now, record, found = rows[0]
    if record is None:
        return EventPage(record=None, clock=read_clock(now))
    return EventPage(
        record=record_of(ref.session_id, record),
        clock=read_clock(now),
        events=tuple(shown_event(ref, row) for row in found),
        retracted=frozenset(row[0] for row in found if row[-1]),
    )


async def tool_calls(
    fetch: Fetch,
    read_clock: ReadClock,
    ref: SessionRef,
    *,
    run_id: str | None,
    tool: str | None,
    arguments_hash: bytes | None,
    tool_call_id: str | None,
    is_open: bool | None,
    after: int,
    before: int | None,
    newest_first: bool,
    limit: int,
) -> CallPage:
    order = "descending" if newest_first else "ascending"
    bounds = (*ref, *between(after, before), run_id, tool, tool_call_id, is_open, max(0, limit))
    if arguments_hash is None:
        rows = await fetch(SQL[f"tool_calls_{order}"], *bounds)
    else:
        rows = await fetch(SQL[f"equal_calls_{order}"], *bounds, arguments_hash)
    now, record, found = rows[0]
    if record is None:
        return CallPage(record=None, clock=read_clock(now))
    return CallPage(
        record=record_of(ref.session_id, record),
        clock=read_clock(now),
        tool_calls=tuple(shown_call(ref, row) for row in found),
    )


async def runs(
    fetch: Fetch,
    read_clock: ReadClock,
    ref: SessionRef,
    *,
    run_id: str | None,
    parent_run_id: str | None,
    status: str | None,
    after_number: int,
    before_number: int | None,
    newest_first: bool,
    limit: int,
) -> RunPage:
    numbers = between(after_number, before_number)
    if run_id is not None:
        rows = await fetch(SQL["run"], *ref, run_id, *numbers, status, max(0, limit), parent_run_id)
    else:
        order = "descending" if newest_first else "ascending"
        rows = await fetch(SQL[f"runs_{order}"], *ref, *numbers, status, max(0, limit), parent_run_id)
    now, record, found = rows[0]
    if record is None:
        return RunPage(record=None, clock=read_clock(now))
    return RunPage(
        record=record_of(ref.session_id, record),
        clock=read_clock(now),
        runs=tuple(shown_run(ref, row) for row in found),
    )


async def partial(
    fetch: Fetch, read_clock: ReadClock, ref: SessionRef, *, key: StreamKey, offset: int, limit: int
) -> PartialPage:
    now, record, found = (await fetch(SQL["partial"], *ref, *key, within(offset), max(0, limit)))[0]
    if record is None:
        return PartialPage(record=None, clock=read_clock(now))
    return PartialPage(
        record=record_of(ref.session_id, record), clock=read_clock(now), pieces=tuple(piece_of(row) for row in found)
    )


async def sessions(
    fetch: Fetch,
    read_clock: ReadClock,
    now: int | None,
    tenant_id: str,
    *,
    user_id: str | None,
    status: str | None,
    updated_from: int | None,
    updated_before: int | None,
    after: tuple[int, str] | None,
    limit: int,
) -> SessionPage:
    """``now`` where it is not the server's."""
    position = (END if updated_before is None else within(updated_before), "")  # no id is less than ""
    if after is not None:
        position = min(position, (within(after[0]), after[1]), key=lambda place: (place[0], place[1].encode()))
    name = "sessions_of_tenant" if user_id is None else "sessions_of_user"
    earliest = -END if updated_from is None else within(updated_from)

    async def read(position: tuple[int, str], most: int) -> tuple[int, Any]:
        rows = await fetch(SQL[name], tenant_id, user_id, earliest, *position, status, now, most)
        return rows[0][0], rows[0][1]

    return await listed(read, read_clock, position, limit)


async def due(
    fetch: Fetch,
    *,
    now: int | None,
    lease_now: int | None,
    lease_clock: str,
    queue: str,
    agent: str | None,
    after: SessionRef | None,
    limit: int,
) -> list[SessionRef]:
    """``now`` and ``lease_now`` where they are not the server's."""
    past = ("", "") if after is None else after
    if queue == "sweep":
        rows = await fetch(SQL["swept"], *past, now, lease_now, lease_clock, max(0, limit))
    elif agent is None:
        rows = await fetch(SQL["ready"], *past, max(0, limit))
    else:
        rows = await fetch(SQL["ready_for_agent"], *past, agent, max(0, limit))
    return [SessionRef(row[0], row[1]) for row in rows]


async def refs(fetch: Fetch, *, after: SessionRef | None, limit: int) -> list[SessionRef]:
    rows = await fetch(SQL["refs"], *(("", "") if after is None else after), max(0, limit))
    return [SessionRef(row[0], row[1]) for row in rows]


async def may_look(fetch: Fetch, ref: SessionRef, after: int, revision: int | None) -> bool:
    """There is an event after ``after``, or another revision, or nothing to wait for: the session is gone, or was never there."""
    return bool(await fetch(SQL["wakeable"], [ref.tenant_id], [ref.session_id], [within(after)], [revision]))
