"""Changes as rows. The session's row comes first, always; rows of a kind go in together."""

from __future__ import annotations

import secrets
import sqlite3
from collections import defaultdict
from collections.abc import Mapping, Sequence

import msgspec

from satchel.domain.ids import SessionRef
from satchel.domain.record import SessionRecord
from satchel.store import Change, Outcome
from satchel.stores.rows import has_same_entries
from satchel.stores.sqlite.queries import SQL
from satchel.stores.sqlite.rows import (
    Row,
    call_row,
    event_row,
    idempotency_row,
    is_plain,
    narrow_row,
    piece_row,
    plain_event_row,
    run_row,
    wide_row,
)

# Statements in the order in which they run.
INSERT_SESSION = SQL["insert_session"]
UPDATE_SESSION = SQL["update_session"]
UPDATE_SESSION_WIDELY = SQL["update_session_widely"]
INSERT_PLAIN_EVENT = SQL["insert_plain_event"]
INSERT_EVENT = SQL["insert_event"]
INSERT_IDEMPOTENCY_RECORD = SQL["insert_idempotency_record"]
PUT_TOOL_CALL = SQL["put_tool_call"]
PUT_RUN = SQL["put_run"]
DROP_PARTIALS = SQL["drop_partials"]
INSERT_PARTIAL = SQL["insert_partial"]
PUT_WORKING_MEMORY = SQL["put_working_memory"]
DROP_WORKING_MEMORY = SQL["drop_working_memory"]
PUT_METADATA = SQL["put_metadata"]
DROP_METADATA = SQL["drop_metadata"]
MARK_ERASURE = SQL["mark_erasure"]
_ORDER = (
    INSERT_SESSION,
    UPDATE_SESSION,
    UPDATE_SESSION_WIDELY,
    INSERT_PLAIN_EVENT,
    INSERT_EVENT,
    INSERT_IDEMPOTENCY_RECORD,
    PUT_TOOL_CALL,
    PUT_RUN,
    DROP_PARTIALS,
    INSERT_PARTIAL,
    PUT_WORKING_MEMORY,
    DROP_WORKING_MEMORY,
    PUT_METADATA,
    DROP_METADATA,
    MARK_ERASURE,
)


class Before(msgspec.Struct, frozen=True):
    """A session as it is in this transaction. ``record`` where it was read: then the indexes that keep what they hold are
    left alone."""

    revision: int | None
    status: str = ""
    record: SessionRecord | None = None


def before(connection: sqlite3.Connection, ref: SessionRef) -> Before:
    row = connection.execute(SQL["revision"], ref).fetchone()
    return Before(None) if row is None else Before(row[0], row[1].decode())


def apply(
    connection: sqlite3.Connection,
    changes: Sequence[Change],
    known: Mapping[SessionRef, SessionRecord | None],
    now: int,
) -> list[Outcome]:
    """In the transaction that is open. ``known``: records read in it."""
    rows: dict[str, list[Row]] = defaultdict(list)
    outcomes: list[Outcome] = []
    for change in changes:
        if change.not_after is not None and now >= change.not_after:
            outcomes.append(Outcome.STALE)
            continue
        if change.ref in known:
            record = known[change.ref]
            found = Before(None) if record is None else Before(record.revision, record.status, record)
        else:
            found = before(connection, change.ref)
        if found.revision != change.base:
            outcomes.append(Outcome.STALE)
            continue
        _add_rows(rows, change, found)
        outcomes.append(Outcome.APPLIED)
    for statement in _ORDER:
        if statement in rows:
            connection.executemany(statement, rows[statement])
    return outcomes


def _add_rows(rows: dict[str, list[Row]], change: Change, found: Before) -> None:
    ref, record = change.ref, change.record
    tenant_id, session_id = ref
    if found.revision is None:
        rows[INSERT_SESSION].append(wide_row(record))
    elif found.record is not None and has_same_entries(found.record, record):
        rows[UPDATE_SESSION].append(narrow_row(record))
    else:
        rows[UPDATE_SESSION_WIDELY].append(wide_row(record))
    if record.status == "DELETED" and found.status != "DELETED":
        rows[MARK_ERASURE].append((*ref, new_mark()))
    for event in change.events:
        if is_plain(event):
            rows[INSERT_PLAIN_EVENT].append(plain_event_row(tenant_id, session_id, event))
        else:
            rows[INSERT_EVENT].append(event_row(tenant_id, session_id, event))
    for kept in change.idempotency:
        rows[INSERT_IDEMPOTENCY_RECORD].append(idempotency_row(tenant_id, session_id, kept))
    for call in change.calls:
        rows[PUT_TOOL_CALL].append(call_row(ref, call))
    for run in change.runs:
        rows[PUT_RUN].append(run_row(ref, run))
    for key in change.ended_streams:
        rows[DROP_PARTIALS].append((*ref, *key))
    for piece in change.partials:
        rows[INSERT_PARTIAL].append(piece_row(ref, piece))
    if change.working_memory is not None:
        _add_text(rows, PUT_WORKING_MEMORY, DROP_WORKING_MEMORY, ref, change.working_memory)
    if change.metadata is not None:
        _add_text(rows, PUT_METADATA, DROP_METADATA, ref, change.metadata)


def _add_text(rows: dict[str, list[Row]], put: str, drop: str, ref: SessionRef, text: bytes) -> None:
    if text:
        rows[put].append((*ref, text))
    else:
        rows[drop].append(ref)


def new_mark() -> int:
    return secrets.randbits(62)
