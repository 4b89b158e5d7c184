"""Rows of the tables as structs of the domain, and back. A driver gives names as str, and JSON as str or bytes; bodies
become bytes.
"""

from __future__ import annotations

from typing import Any

import msgspec

from satchel.domain.event import CHAT_FORMAT, CORRUPT_BODY, Event
from satchel.domain.idempotency import IdempotencyRecord, decode_answer, encode_answer
from satchel.domain.ids import SessionRef
from satchel.domain.record import SessionRecord, decode_record, encode_record
from satchel.domain.run import RunRow
from satchel.domain.stream import Piece
from satchel.domain.tool_call import CallRow
from satchel.errors import StoreCorrupt
from satchel.stores import rows
from satchel.stores.rows import (
    BROKEN,
    EVENT_KINDS,
    check_json,
    corrupt_call,
    corrupt_event,
    corrupt_run,
    decode_run,
    encode_run,
    is_json,
    read,
    shown_bodies,
)

Row = Any


def to_bytes(text: str | bytes | None) -> bytes | None:
    return text.encode() if isinstance(text, str) else text


def to_text(data: bytes | msgspec.Raw | None) -> str | None:
    """None for nothing. Raises UnicodeDecodeError."""
    return None if data is None else bytes(data).decode()


def record_of(session_id: str, text: str | bytes) -> SessionRecord:
    try:
        record = decode_record(text)
    except BROKEN as error:
        raise StoreCorrupt(f"the record of session {session_id}") from error
    if record.session_id != session_id:
        raise StoreCorrupt(f"the record of session {session_id}")
    return record


def sound(text: str | bytes | None, what: str, ref: SessionRef) -> bytes:
    """Raises StoreCorrupt: a change of what cannot be read would make true what is left of it."""
    return rows.sound(to_bytes(text), what, ref)


def shown_metadata(text: str | bytes | None) -> bytes:
    """b"" when there is none."""
    return rows.shown_metadata(to_bytes(text))


def shown_memory(text: str | bytes | None) -> bytes:
    """A memory that cannot be read is not an empty one: it has a note that says so."""
    return rows.shown_memory(to_bytes(text))


def session_row(record: SessionRecord) -> tuple[Any, ...]:
    """All columns of ``sessions`` but the key."""
    return (
        record.user_id,
        record.status,
        record.hidden,
        record.updated_at,
        record.turns_at,
        record.policy.retention,
        record.revision,
        record.ready_agent,
        record.sweep_at,
        record.lease_until,
        None if record.lease_until is None else record.lease_clock,
        encode_record(record).decode(),
    )


def event_row(event: Event) -> tuple[Any, ...]:
    return (
        event.seq,
        event.version,
        event.kind,
        event.at,
        event.actor,
        event.run_id,
        event.refers_to,
        None if event.status == "complete" else event.status,
        None if event.format == CHAT_FORMAT else event.format,
        event.outcome,
        event.tokens,
        event.streamed,
        None if event.metadata is None else event.metadata.decode(),
        event.body.decode(),
    )


def event_of(ref: SessionRef, row: Row) -> Event:
    """Raises StoreCorrupt."""
    return read(_decode_event, row, f"event {row[0]}", ref)


def shown_event(ref: SessionRef, row: Row) -> Event:
    try:
        return event_of(ref, row)
    except StoreCorrupt:
        seq, version, kind, at, actor, run_id, refers_to = row[:7]
        return corrupt_event(
            seq=seq, version=version, kind=kind, at=at, actor=actor, run_id=run_id, refers_to=refers_to
        )


def _decode_event(row: Row) -> Event:
    seq, version, kind, at, actor, run_id, refers_to, status, format, outcome, *more = row[:14]
    tokens, streamed, metadata, body = more
    body = body.encode() if isinstance(body, str) else body
    check_json(body)
    shown = to_bytes(metadata)
    if shown is not None:
        check_json(shown)
    if kind not in EVENT_KINDS:
        raise ValueError("an unknown kind")
    return Event(
        seq=seq,
        version=version,
        kind=kind,
        at=at,
        actor=actor,
        body=body,
        run_id=run_id,
        refers_to=refers_to,
        status="complete" if status is None else status,
        format=CHAT_FORMAT if format is None else format,
        outcome=outcome,
        tokens=tokens,
        streamed=streamed,
        metadata=shown,
    )


def call_row(call: CallRow) -> tuple[Any, ...]:
    return (
        call.seq,
        call.version,
        call.tool,
        call.arguments_hash,
        call.status,
        call.start_time,
        call.end_time,
        call.tool_call_id,
        call.run_id,
        call.result_seq,
        call.result_kind,
        call.repeat_of,
        call.step,
    )


def call_of(ref: SessionRef, row: Row) -> CallRow:
    """Raises StoreCorrupt, unless it is a body that cannot be read: nothing is built on these."""
    return read(_decode_call, row, f"tool call {row[0]}", ref)


def shown_call(ref: SessionRef, row: Row) -> CallRow:
    try:
        return call_of(ref, row)
    except StoreCorrupt:
        seq, version, tool, arguments_hash, _, start_time, end_time, label, run_id = row[:9]
        return corrupt_call(
            seq=seq,
            version=version,
            tool=tool,
            arguments_hash=arguments_hash,
            start_time=start_time,
            end_time=end_time,
            tool_call_id=label,
            run_id=run_id,
        )


def _decode_call(row: Row) -> CallRow:
    seq, version, tool, arguments_hash, status, start_time, end_time, label, run_id, *rest = row
    result_seq, result_kind, repeat_of, step, start, end = rest
    start_body, end_body = shown_bodies(to_bytes(start), to_bytes(end))
    return CallRow(
        seq=seq,
        version=version,
        tool=tool,
        arguments_hash=arguments_hash,
        status=status,
        start_time=start_time,
        end_time=end_time,
        tool_call_id=label,
        run_id=run_id,
        result_seq=result_seq,
        result_kind=result_kind,
        repeat_of=repeat_of,
        step=step,
        start_body=start_body,
        end_body=end_body,
    )


def run_row(run: RunRow) -> tuple[Any, ...]:
    """An input that is a message by now stands in the log alone."""
    return (
        run.run_id,
        run.number,
        run.status,
        run.input_seq,
        encode_run(run).decode(),
        to_text(run.metadata) or None,
        None if run.input_seq is not None else to_text(run.input) or None,
        to_text(run.input_metadata) or None,
        run.parent_run_id,
    )


def run_of(ref: SessionRef, row: Row) -> RunRow:
    """Raises StoreCorrupt, unless it is an input that is a message by now: that is the message's fault."""
    return read(_decode_run_row, row, f"run {row[0]}", ref)


def shown_run(ref: SessionRef, row: Row) -> RunRow:
    try:
        return run_of(ref, row)
    except StoreCorrupt:
        run_id, number, status, input_seq = row[:4]
        return corrupt_run(run_id, number=number, status=status, input_seq=input_seq)


def _decode_run_row(row: Row) -> RunRow:
    input_seq, record, *texts = row[3:8]
    metadata, input, input_metadata = (to_bytes(text) for text in texts)
    return decode_run(record, input_seq=input_seq, metadata=metadata, input=input, input_metadata=input_metadata)


def piece_row(piece: Piece) -> tuple[Any, ...]:
    return (*piece.key, piece.offset, piece.body.decode(), to_text(piece.metadata))


def piece_of(row: Row) -> Piece:
    """Its body as it is: who reads the text finds out whether it can be read."""
    run_id, attempt, message, offset, body, metadata = row
    shown = to_bytes(metadata)
    return Piece(
        run_id=run_id,
        attempt=attempt,
        message=message,
        offset=offset,
        body=body.encode() if isinstance(body, str) else body,
        metadata=shown if is_json(shown) else CORRUPT_BODY,
    )


def idempotency_row(record: IdempotencyRecord) -> tuple[Any, ...]:
    return record.key_hash, record.fingerprint, encode_answer(record.answer).decode()


def idempotency_of(ref: SessionRef, row: Row) -> IdempotencyRecord:
    return read(lambda row: IdempotencyRecord(row[0], row[1], decode_answer(row[2])), row, "an idempotency record", ref)
