"""Reads, each of one snapshot. A row that is corrupt hides nothing but itself."""

from __future__ import annotations

from satchel.domain.ids import SessionRef
from satchel.domain.record import SessionRecord
from satchel.domain.state import Clock
from satchel.domain.stream import StreamKey
from satchel.errors import InvalidInput
from satchel.store import CallPage, EventPage, PartialPage, RunPage, SessionPage, Snapshot
from satchel.stores.bounds import END, between, within
from satchel.stores.mysql.connection import Fetch, Rows
from satchel.stores.mysql.literals import rows as listed_rows
from satchel.stores.mysql.queries import SQL
from satchel.stores.mysql.rows import CALL, EVENT, PIECE, RUN, named, ref_of
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
    asked: dict[str, bytes] = {"record": _bind("record", *ref)}
    if working_memory:
        asked["memory"] = _bind("working_memory", *ref)
    if metadata:
        asked["labels"] = _bind("metadata", *ref)
    if messages > 0:
        asked["said"] = _bind("kind_descending", *ref, -END, END, None, False, messages, "message")
    if tool_calls > 0:
        asked["called"] = _bind("tool_calls_descending", *ref, -END, END, None, None, None, None, tool_calls)
    if runs > 0:
        asked["ran"] = _bind("runs_descending", *ref, -END, END, None, runs, None)
    found = dict(zip(asked, await fetch(*asked.values()), strict=True))
    clock, record = _clock_and_record(read_clock, ref, found["record"])
    if record is None:
        return Snapshot(record=None, clock=clock)
    return Snapshot(
        record=record,
        clock=clock,
        working_memory=shown_memory(_only(found.get("memory", ()))),
        metadata=shown_metadata(_only(found.get("labels", ()))),
        messages=tuple(shown_event(ref, named(row, EVENT)) for row in reversed(found.get("said", ()))),
        tool_calls=tuple(shown_call(ref, named(row, CALL)) for row in reversed(found.get("called", ()))),
        runs=tuple(shown_run(ref, named(row, RUN)) for row in reversed(found.get("ran", ()))),
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
    page = _bind(f"events_{order}", *bounds) if kind is None else _bind(f"kind_{order}", *bounds, kind)
    about, found = await fetch(_bind("record", *ref), page)
    clock, record = _clock_and_record(read_clock, ref, about)
    if record is None:
        return EventPage(record=None, clock=clock)
    return EventPage(
        record=record,
        clock=clock,
        events=tuple(shown_event(ref, named(row, EVENT)) for row in found),
        retracted=frozenset(row[0] for row in found if row[-1] is not None),
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
        page = _bind(f"tool_calls_{order}", *bounds)
    else:
        page = _bind(f"equal_calls_{order}", *bounds, arguments_hash)
    about, found = await fetch(_bind("record", *ref), page)
    clock, record = _clock_and_record(read_clock, ref, about)
    if record is None:
        return CallPage(record=None, clock=clock)
    return CallPage(record=record, clock=clock, tool_calls=tuple(shown_call(ref, named(row, CALL)) for row in found))


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
        page = _bind("run", *ref, run_id, *numbers, status, max(0, limit), parent_run_id)
    else:
        order = "descending" if newest_first else "ascending"
        page = _bind(f"runs_{order}", *ref, *numbers, status, max(0, limit), parent_run_id)
    about, found = await fetch(_bind("record", *ref), page)
    clock, record = _clock_and_record(read_clock, ref, about)
    if record is None:
        return RunPage(record=None, clock=clock)
    return RunPage(record=record, clock=clock, runs=tuple(shown_run(ref, named(row, RUN)) for row in found))


async def partial(
    fetch: Fetch, read_clock: ReadClock, ref: SessionRef, *, key: StreamKey, offset: int, limit: int
) -> PartialPage:
    page = _bind("partial", *ref, *key, within(offset), max(0, limit))
    about, found = await fetch(_bind("record", *ref), page)
    clock, record = _clock_and_record(read_clock, ref, about)
    if record is None:
        return PartialPage(record=None, clock=clock)
    return PartialPage(record=record, clock=clock, pieces=tuple(piece_of(named(row, PIECE)) for row in found))


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
    """``now`` where it is not the server's; else the server's, asked first: what a list says may be that much older."""
    if now is None:
        now = (await fetch(SQL["clock"]()))[0][0][0]
    assert now is not None
    position = (END if updated_before is None else within(updated_before), b"")  # no id is less than b""
    if after is not None:
        position = min(position, (within(after[0]), after[1].encode(errors="surrogateescape")))
    name = "sessions_of_tenant" if user_id is None else "sessions_of_user"
    earliest = -END if updated_from is None else within(updated_from)

    async def read(position: tuple[int, bytes], most: int) -> tuple[int, Rows]:
        (found,) = await fetch(_bind(name, tenant_id, user_id, earliest, *position, status, now, most))
        return now, found

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
    past = _past(after)
    if queue == "sweep":
        asked = _bind("swept", *past, now, lease_now, lease_clock, max(0, limit))
    elif agent is None:
        asked = _bind("ready", *past, max(0, limit))
    else:
        asked = _bind("ready_for_agent", *past, agent, max(0, limit))
    (found,) = await fetch(asked)
    return [ref_of(*row) for row in found]


async def refs(fetch: Fetch, *, after: SessionRef | None, limit: int) -> list[SessionRef]:
    (found,) = await fetch(_bind("refs", *_past(after), max(0, limit)))
    return [ref_of(*row) for row in found]


async def may_look(fetch: Fetch, ref: SessionRef, after: int, revision: int | None) -> bool:
    """There is an event after ``after``, or another revision, or nothing to wait for: the session is gone, or was never there."""
    (found,) = await fetch(_bind("newest", listed_rows([ref])))
    return not found or is_past(found[0][2:], after, revision)


def is_past(newest: Rows, after: int, revision: int | None) -> bool:
    """``newest``: status, revision and seq of a session."""
    status, found, seq = newest
    return status == b"DELETED" or (revision is not None and found != revision) or (seq or 0) > after


def _past(after: SessionRef | None) -> tuple[bytes, ...]:
    return (b"", b"") if after is None else tuple(part.encode(errors="surrogateescape") for part in after)


def _bind(name: str, *values: object) -> bytes:
    """Raises InvalidInput."""
    try:
        return SQL[name](*values)
    except (ValueError, TypeError) as error:
        raise InvalidInput(
            f"holds a value that this store cannot look for ({type(error).__name__})", field="request"
        ) from error


def _clock_and_record(read_clock: ReadClock, ref: SessionRef, found: Rows) -> tuple[Clock, SessionRecord | None]:
    ((now, record),) = found
    return read_clock(now), None if record is None else record_of(ref.session_id, record)


def _only(found: Rows) -> bytes | None:
    return found[0][0] if found else None
