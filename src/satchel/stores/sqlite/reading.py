"""Reads, each in one snapshot: the caller begins and ends the transaction. A row that is corrupt hides nothing but itself."""

from __future__ import annotations

import sqlite3
from typing import Any

from satchel.domain.ids import SessionRef
from satchel.domain.state import Clock
from satchel.domain.stream import StreamKey
from satchel.errors import StoreCorrupt
from satchel.store import CallPage, EventPage, ListedSession, PartialPage, RunPage, SessionPage, Snapshot
from satchel.stores.bounds import END, between
from satchel.stores.rows import shown_memory, shown_metadata
from satchel.stores.sqlite.loading import find_record, pieces_of, text_of
from satchel.stores.sqlite.queries import SQL
from satchel.stores.sqlite.rows import record_of, shown_call, shown_event, shown_run


def snapshot(
    connection: sqlite3.Connection,
    clock: Clock,
    ref: SessionRef,
    *,
    working_memory: bool,
    metadata: bool,
    messages: int,
    tool_calls: int,
    runs: int,
) -> Snapshot:
    record = find_record(connection, ref)
    if record is None:
        return Snapshot(record=None, clock=clock)
    said: list[Any] = []
    called: list[Any] = []
    ran: list[Any] = []
    if messages > 0:
        said = connection.execute(SQL["newest_messages"], (*ref, messages)).fetchall()
    if tool_calls > 0:
        newest_calls = (*ref, 0, END, None, None, None, None, tool_calls)
        called = connection.execute(SQL["tool_calls_descending"], newest_calls).fetchall()
    if runs > 0:
        ran = connection.execute(SQL["runs_descending"], (*ref, 0, END, None, runs, None)).fetchall()
    return Snapshot(
        record=record,
        clock=clock,
        working_memory=shown_memory(text_of(connection, "working_memory", ref)) if working_memory else b"",
        metadata=shown_metadata(text_of(connection, "metadata", ref)) if metadata else b"",
        messages=tuple(shown_event(ref, row) for row in reversed(said)),
        tool_calls=tuple(shown_call(ref, row) for row in reversed(called)),
        runs=tuple(shown_run(ref, row) for row in reversed(ran)),
    )


def events(
    connection: sqlite3.Connection,
    clock: Clock,
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
    record = find_record(connection, ref)
    if record is None:
        return EventPage(record=None, clock=clock)
    order = "descending" if newest_first else "ascending"
    bounds = (*ref, *between(after, before), run_id, int(with_retracted), max(0, limit))
    if kind == "message":
        rows = connection.execute(SQL[f"messages_{order}"], bounds).fetchall()
    else:
        rows = connection.execute(SQL[f"events_{order}"], (*bounds, kind)).fetchall()
    return EventPage(
        record=record,
        clock=clock,
        events=tuple(shown_event(ref, row) for row in rows),
        retracted=frozenset(row[0] for row in rows if row[-1]),
    )


def tool_calls(
    connection: sqlite3.Connection,
    clock: Clock,
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
    record = find_record(connection, ref)
    if record is None:
        return CallPage(record=None, clock=clock)
    order = "descending" if newest_first else "ascending"
    openness = None if is_open is None else int(is_open)
    bounds = (*ref, *between(after, before), run_id, tool, tool_call_id, openness, max(0, limit))
    if arguments_hash is None:
        rows = connection.execute(SQL[f"tool_calls_{order}"], bounds).fetchall()
    else:
        rows = connection.execute(SQL[f"equal_calls_{order}"], (*bounds, arguments_hash)).fetchall()
    return CallPage(record=record, clock=clock, tool_calls=tuple(shown_call(ref, row) for row in rows))


def runs(
    connection: sqlite3.Connection,
    clock: Clock,
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
    record = find_record(connection, ref)
    if record is None:
        return RunPage(record=None, clock=clock)
    after, before = between(after_number, before_number)
    if run_id is None:
        order = "descending" if newest_first else "ascending"
        bounds = (*ref, after, before, status, max(0, limit), parent_run_id)
        rows = connection.execute(SQL[f"runs_{order}"], bounds).fetchall()
        return RunPage(record=record, clock=clock, runs=tuple(shown_run(ref, row) for row in rows))
    rows = connection.execute(SQL["run"], (*ref, run_id)).fetchall()
    found = [shown_run(ref, row) for row in rows[: max(0, limit)]]
    kept = (
        run
        for run in found
        if after < run.number < before and status in (None, run.status) and parent_run_id in (None, run.parent_run_id)
    )
    return RunPage(record=record, clock=clock, runs=tuple(kept))


def partial(
    connection: sqlite3.Connection,
    clock: Clock,
    ref: SessionRef,
    *,
    key: StreamKey,
    offset: int,
    limit: int,
) -> PartialPage:
    record = find_record(connection, ref)
    if record is None:
        return PartialPage(record=None, clock=clock)
    pieces = pieces_of(connection, ref, key, offset=min(offset, END), limit=max(0, limit))
    return PartialPage(record=record, clock=clock, pieces=pieces)


def sessions(
    connection: sqlite3.Connection,
    clock: Clock,
    tenant_id: str,
    *,
    user_id: str | None,
    status: str | None,
    updated_from: int | None,
    updated_before: int | None,
    after: tuple[int, str] | None,
    limit: int,
) -> SessionPage:
    position = (END if updated_before is None else updated_before, b"")  # no id is less than ""
    if after is not None:
        position = min(position, (after[0], after[1].encode()))
    name = "sessions_of_tenant" if user_id is None else "sessions_of_user"
    earliest = -END if updated_from is None else updated_from
    listed: list[ListedSession] = []
    unreadable: list[str] = []
    while len(listed) < limit:
        asked = limit - len(listed)
        bounds = (tenant_id, user_id, earliest, *position, status, clock.now, asked)
        rows = connection.execute(SQL[name], bounds).fetchall()
        for key, updated_at, record, metadata in rows:
            position = (updated_at, key)
            session_id = key.decode(errors="replace")
            try:
                listed.append(ListedSession(record=record_of(session_id, (record,)), metadata=shown_metadata(metadata)))
            except StoreCorrupt:
                unreadable.append(session_id)
        if len(rows) < asked:
            break
    return SessionPage(clock=clock, sessions=tuple(listed), unreadable=tuple(unreadable))


def due(
    connection: sqlite3.Connection,
    clock: Clock,
    *,
    queue: str,
    agent: str | None,
    after: SessionRef | None,
    limit: int,
) -> list[SessionRef]:
    past = _past(after)
    if queue == "sweep":
        rows = connection.execute(
            SQL["swept"], (*past, clock.now, clock.lease_now, clock.lease_clock, max(0, limit))
        ).fetchall()
    elif agent is None:
        rows = connection.execute(SQL["ready"], (*past, max(0, limit))).fetchall()
    else:
        rows = connection.execute(SQL["ready_for_agent"], (*past, agent, max(0, limit))).fetchall()
    return _refs(rows)


def refs(connection: sqlite3.Connection, clock: Clock, *, after: SessionRef | None, limit: int) -> list[SessionRef]:
    del clock
    return _refs(connection.execute(SQL["refs"], (*_past(after), max(0, limit))).fetchall())


def _past(after: SessionRef | None) -> tuple[bytes, ...]:
    return (b"", b"") if after is None else tuple(part.encode(errors="surrogateescape") for part in after)


def _refs(rows: list[tuple[bytes, ...]]) -> list[SessionRef]:
    """A key that is no text any more is given all the same: its visit fails, those behind it are served."""
    return [SessionRef(*(part.decode(errors="surrogateescape") for part in row)) for row in rows]


def newest(connection: sqlite3.Connection, clock: Clock, ref: SessionRef) -> tuple[int, int] | None:
    """Its seq and revision; None: there is no such session."""
    del clock
    row = connection.execute(SQL["newest"], ref).fetchone()
    return None if row is None else (row[0], row[1])
