"""Changes as columns of rows: what a batch writes is one statement."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from satchel.domain.event import CHAT_FORMAT
from satchel.domain.idempotency import encode_answer
from satchel.domain.record import encode_record
from satchel.domain.state import Clock
from satchel.store import Change
from satchel.stores.postgres.queries import SQL
from satchel.stores.rows import has_same_entries
from satchel.stores.sql.rows import (
    call_row,
    event_row,
    idempotency_row,
    piece_row,
    run_row,
    session_row,
)
from satchel.stores.sql.writing import Basis

Columns = list[Sequence[Any]]

_encode = msgspec.json.Encoder().encode

_APPEND_ONE = SQL["append_one"]
_APPEND = SQL["append"]
_COMMIT = SQL["commit"]
_HASH = 16  # bytes, as the statement knows
_SESSION = 16
_ASKED, _KEY, _EVENT, _CALL, _RUN, _PIECE, _STREAM, _TEXT = 4, 6, 17, 16, 12, 9, 6, 4


def statement_of(changes: Sequence[Change], clock: Clock | None, basis: Basis) -> tuple[str, list[Any]]:
    """The statement and its values; ``clock`` where it is not the server's.

    Raises what a change raises that holds no rows: UnicodeError, TypeError, AttributeError.
    """
    now = None if clock is None else clock.now
    if all(_is_append(change, basis) for change in changes):
        if len(changes) == 1:
            return _APPEND_ONE, [*_append_row(changes[0]), now]
        if (columns := _append_columns(changes)) is not None:
            return _APPEND, [*columns, now]
    sessions: list[tuple[Any, ...]] = []
    asked: list[tuple[Any, ...]] = []
    keys: list[tuple[Any, ...]] = []
    events: list[tuple[Any, ...]] = []
    calls: list[tuple[Any, ...]] = []
    runs: list[tuple[Any, ...]] = []
    pieces: list[tuple[Any, ...]] = []
    streams: list[tuple[Any, ...]] = []
    memories: list[tuple[Any, ...]] = []
    metadata: list[tuple[Any, ...]] = []
    for position, change in enumerate(changes, 1):
        key = (position, *change.ref)
        sessions.append((*change.ref, change.base, change.not_after, *session_row(change.record)))
        asked.extend([(*key, kept.key_hash) for kept in change.idempotency])
        if change.ref in basis.unseen:
            asked.extend([(*key, unseen) for unseen in basis.unseen[change.ref].keys])
        keys.extend([(*key, *idempotency_row(kept)) for kept in change.idempotency])
        events.extend([(*key, *event_row(event)) for event in change.events])
        calls.extend([(*key, *call_row(call)) for call in change.calls])
        runs.extend([(*key, *run_row(run)) for run in change.runs])
        pieces.extend([(*key, *piece_row(piece)) for piece in change.partials])
        streams.extend([(*key, *ended) for ended in change.ended_streams])
        if change.working_memory is not None:
            memories.append((*key, change.working_memory.decode()))
        if change.metadata is not None:
            metadata.append((*key, change.metadata.decode()))
    return _COMMIT, [
        *_columns(sessions, _SESSION),
        now,
        *_columns(asked, _ASKED),
        *_columns(keys, _KEY),
        *_columns(events, _EVENT),
        *_columns(calls, _CALL),
        *_columns(runs, _RUN),
        *_columns(pieces, _PIECE),
        *_columns(streams, _STREAM),
        *_columns(memories, _TEXT),
        *_columns(metadata, _TEXT),
    ]


def _columns(rows: Iterable[tuple[Any, ...]], width: int) -> Columns:
    return list(zip(*rows, strict=True)) or [()] * width


def _is_append(change: Change, basis: Basis) -> bool:
    """One event without extras and its key, and nothing that the indexes hold."""
    if len(change.events) != 1 or len(change.idempotency) != 1 or change.base is None:
        return False
    if change.runs or change.calls or change.partials or change.ended_streams:
        return False
    if change.working_memory is not None or change.metadata is not None:
        return False
    event = change.events[0]
    if event.refers_to is not None or event.status != "complete" or event.format != CHAT_FORMAT:
        return False
    if event.outcome is not None or event.metadata is not None or event.streamed is not None:
        return False
    before = basis.records.get(change.ref)
    if before is None or not before.revision == change.base == change.record.revision - 1:
        return False
    unseen = basis.unseen.get(change.ref)
    if unseen is not None and unseen.keys != (change.idempotency[0].key_hash,):
        return False
    return has_same_entries(before, change.record)


def _append_columns(changes: Sequence[Change]) -> tuple[str | bytes, ...] | None:
    """A value for each column, of two changes or more. The driver asks of each element of an array whether it is an array
    itself, which takes it several times longer than to write it. None: a text has a line break, which no text has that was
    admitted, or a hash another length."""
    events = [change.events[0] for change in changes]
    kept = [change.idempotency[0] for change in changes]
    records = [change.record for change in changes]
    bodies = [event.body for event in events]
    texts = (
        "\n".join([record.tenant_id for record in records]),
        "\n".join([record.session_id for record in records]),
        "\n".join([event.kind for event in events]),
        "\n".join([event.actor for event in events]),
        "\n".join([event.run_id or "" for event in events]),
    )
    if {text.count("\n") for text in texts} != {len(changes) - 1} or [body for body in bodies if b"\n" in body]:
        return None
    if {len(record.key_hash) for record in kept} | {len(record.fingerprint) for record in kept} != {_HASH}:
        return None
    tenant_ids, session_ids, kinds, actors, run_ids = texts
    return (
        tenant_ids,
        session_ids,
        _numbers([change.base for change in changes]),
        _numbers([change.not_after for change in changes]),
        _numbers([record.updated_at for record in records]),
        _numbers([record.turns_at for record in records]),
        _lines(map(encode_record, records)),
        b"".join([record.key_hash for record in kept]),
        b"".join([record.fingerprint for record in kept]),
        _lines([encode_answer(record.answer) for record in kept]),
        _numbers([event.seq for event in events]),
        _numbers([event.version for event in events]),
        kinds,
        _numbers([event.at for event in events]),
        actors,
        run_ids,
        _numbers([event.tokens for event in events]),
        _lines(bodies),
    )


def _lines(texts: Iterable[bytes]) -> str:
    return b"\n".join(texts).decode()


def _numbers(column: list[int | None]) -> str:
    """The literal of an array: as JSON, but for its braces."""
    return "{" + _encode(column)[1:-1].decode() + "}"


def _append_row(change: Change) -> tuple[Any, ...]:
    (event,) = change.events
    record = change.record
    return (
        *change.ref,
        change.base,
        change.not_after,
        record.updated_at,
        record.turns_at,
        encode_record(record).decode(),
        *idempotency_row(change.idempotency[0]),
        event.seq,
        event.version,
        event.kind,
        event.at,
        event.actor,
        event.run_id,
        event.tokens,
        event.body.decode(),
    )
