"""What decisions see: a session's record, and of its rows only what is wanted."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence

from satchel.domain.event import Event
from satchel.domain.ids import SessionRef
from satchel.domain.record import SessionRecord
from satchel.domain.run import RunRow
from satchel.domain.state import NOTHING, Clock, SessionState, Want
from satchel.domain.stream import Piece, StreamKey
from satchel.domain.tool_call import CallRow
from satchel.domain.upkeep import may_settle
from satchel.errors import SatchelError, StoreCorrupt
from satchel.store import Loaded
from satchel.stores.rows import sound
from satchel.stores.sqlite.connection import UNBINDABLE, meaning_of, unbindable
from satchel.stores.sqlite.queries import SQL
from satchel.stores.sqlite.rows import call_of, event_of, idempotency_of, piece_of, record_of, run_of

_RECORD = SQL["record"]
_IDEMPOTENCY_RECORD = SQL["idempotency_record"]
_IDEMPOTENCY_RECORDS = SQL["idempotency_records"]
KEYS_AT_ONCE = 16  # as many as the statement has places


def load(
    connection: sqlite3.Connection,
    clock: Clock,
    wanted: Mapping[SessionRef, Want],
    records: Mapping[SessionRef, SessionRecord],
    *,
    look: bool,
) -> Loaded:
    """``records``: those that are known already, as they are in this transaction. ``look``: for the idempotency records
    that are wanted, too."""
    sessions: dict[SessionRef, SessionState | SatchelError] = {}
    for ref, want in wanted.items():
        try:
            record = records.get(ref) or find_record(connection, ref)
            sessions[ref] = (
                SessionState(None) if record is None else _state(connection, clock, ref, want, record, look=look)
            )
        except Exception as error:  # noqa: BLE001  # whatever it is, it is this session's own
            sessions[ref] = _own_error(ref, error)
    return Loaded(sessions=sessions, clock=clock)


def _own_error(ref: SessionRef, error: Exception) -> SatchelError:
    """What a session has instead of a state. Raises what is no session's own: the store is away, full or busy."""
    if isinstance(error, SatchelError):
        return error
    own: SatchelError
    if isinstance(error, (*UNBINDABLE, TypeError)):
        own = unbindable(error)
    elif isinstance(error, sqlite3.Error):
        own = meaning_of(error)
        if not isinstance(own, StoreCorrupt):
            raise error
    else:
        own = StoreCorrupt(f"session {ref.session_id}")
    own.__cause__ = error
    return own


def find_record(connection: sqlite3.Connection, ref: SessionRef) -> SessionRecord | None:
    row = connection.execute(_RECORD, ref).fetchone()
    return None if row is None else record_of(ref.session_id, row)


def _state(
    connection: sqlite3.Connection, clock: Clock, ref: SessionRef, want: Want, record: SessionRecord, *, look: bool
) -> SessionState:
    state = SessionState(record)
    if look:
        _add_keys(connection, ref, want.keys, state)
    if want is not NOTHING:
        _add_wanted(connection, ref, want, record, state)
    if record.has_open_work and (want.open_work or may_settle(record, clock)):
        _add_open_work(connection, ref, record, state)
    return state


def _add_keys(connection: sqlite3.Connection, ref: SessionRef, keys: Sequence[bytes], state: SessionState) -> None:
    """Many at a time; the last lot is filled up with keys that are in it anyway."""
    if len(keys) <= 2:
        for key in keys:
            row = connection.execute(_IDEMPOTENCY_RECORD, (*ref, bytearray(key))).fetchone()
            if row is not None:
                state.keys[key] = idempotency_of(ref, key, row)
        return
    for start in range(0, len(keys), KEYS_AT_ONCE):
        lot = keys[start : start + KEYS_AT_ONCE]
        places = [bytearray(key) for key in (*lot, *[lot[0]] * (KEYS_AT_ONCE - len(lot)))]
        for row in connection.execute(_IDEMPOTENCY_RECORDS, (*ref, *places)).fetchall():
            key = bytes(row[2])
            state.keys[key] = idempotency_of(ref, key, row)


def _add_wanted(
    connection: sqlite3.Connection, ref: SessionRef, want: Want, record: SessionRecord, state: SessionState
) -> None:
    for run_id in want.run_ids:
        _add_run(connection, ref, run_id, state.runs)
    for seq in want.call_seqs:
        _add_call(connection, ref, seq, state.calls)
    for arguments_hash in want.arguments_hashes:
        row = connection.execute(SQL["newest_equal_call"], (*ref, arguments_hash)).fetchone()
        if row is not None:
            state.same_calls[arguments_hash] = row[0]
    for key in want.streams:
        _add_pieces(connection, ref, key, state)
    for name in want.steps:
        row = connection.execute(SQL["newest_call_of_step"], (*ref, *name)).fetchone()
        if row is not None:
            found: dict[int, CallRow] = {}
            _add_call(connection, ref, row[0], found)
            state.steps[name] = found[row[0]]
    for seq in want.event_seqs:
        _add_event(connection, ref, seq, state.events)
    layered = want.layered(record)
    if layered and record.turn is not None:
        _add_run(connection, ref, record.turn.run_id, state.runs)
    if want.working_memory or layered:
        state.working_memory = sound(text_of(connection, "working_memory", ref), "the working memory", ref)
    if want.metadata:
        state.metadata = sound(text_of(connection, "metadata", ref), "the metadata", ref)


def _add_open_work(connection: sqlite3.Connection, ref: SessionRef, record: SessionRecord, state: SessionState) -> None:
    for waiting in record.queue:
        _add_run(connection, ref, waiting.run_id, state.runs)
    if record.turn is not None:
        _add_run(connection, ref, record.turn.run_id, state.runs)
    for child in record.children:
        _add_run(connection, ref, child.run_id, state.runs)
    for call in record.open_calls:
        _add_call(connection, ref, call.seq, state.calls)
    for stream in record.streams:
        _add_pieces(connection, ref, stream.key, state)


def _add_run(connection: sqlite3.Connection, ref: SessionRef, run_id: str, runs: dict[str, RunRow]) -> None:
    row = connection.execute(SQL["run"], (*ref, run_id)).fetchone()
    if row is not None:
        runs[run_id] = run_of(ref, row)


def _add_call(connection: sqlite3.Connection, ref: SessionRef, seq: int, calls: dict[int, CallRow]) -> None:
    row = connection.execute(SQL["tool_call"], (*ref, seq)).fetchone()
    if row is not None:
        calls[seq] = call_of(ref, row)


def _add_event(connection: sqlite3.Connection, ref: SessionRef, seq: int, events: dict[int, Event]) -> None:
    row = connection.execute(SQL["event"], (*ref, seq)).fetchone()
    if row is None:
        return
    events[seq] = event_of(ref, row)
    for row in connection.execute(SQL["retractions"], (*ref, seq)).fetchall():
        events[row[0]] = event_of(ref, row)


def _add_pieces(connection: sqlite3.Connection, ref: SessionRef, key: StreamKey, state: SessionState) -> None:
    pieces = pieces_of(connection, ref, key, offset=0, limit=-1)
    if pieces:
        state.partials[key] = pieces


def pieces_of(
    connection: sqlite3.Connection, ref: SessionRef, key: StreamKey, *, offset: int, limit: int
) -> tuple[Piece, ...]:
    """``limit`` -1: all."""
    rows = connection.execute(SQL["partial"], (*ref, *key, offset, limit)).fetchall()
    return tuple([piece_of(key, row) for row in rows])


def text_of(connection: sqlite3.Connection, name: str, ref: SessionRef) -> bytes:
    """The session's ``working_memory`` or ``metadata``; b"" when it has none."""
    row = connection.execute(SQL[name], ref).fetchone()
    return b"" if row is None else bytes(row[0])
