"""Rows of the tables as structs of the domain, and back. Texts come as bytes; bodies stay so.

In the rows of every append, bytes go in as bytearrays and nothing is None: of any parameter but a number, a text and a
bytearray the driver asks how to adapt it, which takes it longer than to store it.
"""

from __future__ import annotations

from typing import Any

from satchel.domain.event import CHAT_FORMAT, CORRUPT_BODY, Event
from satchel.domain.idempotency import IdempotencyRecord, decode_answer, encode_answer
from satchel.domain.ids import SessionRef
from satchel.domain.record import SessionRecord, decode_record, encode_record
from satchel.domain.run import RunRow
from satchel.domain.stream import Piece, StreamKey
from satchel.domain.tool_call import CallRow
from satchel.errors import StoreCorrupt
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

Row = tuple[Any, ...]


def _text(column: bytes | None) -> str | None:
    return None if column is None else column.decode()


def _legible(column: bytes | None) -> str | None:
    """For a placeholder: what can be read of it."""
    return None if column is None else column.decode(errors="replace")


def record_of(session_id: str, row: Row) -> SessionRecord:
    try:
        record = decode_record(row[0])
    except BROKEN as error:
        raise StoreCorrupt(f"the record of session {session_id}") from error
    if record.session_id != session_id:
        raise StoreCorrupt(f"the record of session {session_id}")
    return record


def narrow_row(record: SessionRecord) -> Row:
    return (
        record.tenant_id,
        record.session_id,
        record.updated_at,
        record.turns_at,
        record.revision,
        bytearray(encode_record(record)),
    )


def wide_row(record: SessionRecord) -> Row:
    return (
        record.tenant_id,
        record.session_id,
        record.user_id,
        record.status,
        int(record.hidden),
        record.updated_at,
        record.turns_at,
        record.policy.retention,
        record.revision,
        record.ready_agent,
        record.sweep_at,
        record.lease_until,
        None if record.lease_until is None else record.lease_clock,
        encode_record(record),
    )


def event_row(tenant_id: str, session_id: str, event: Event) -> Row:
    return (
        tenant_id,
        session_id,
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
        event.metadata,
        event.body,
    )


def is_plain(event: Event) -> bool:
    """Whether nothing is said of it beside its body: it has a shorter row."""
    return (
        event.refers_to is None
        and event.metadata is None
        and event.outcome is None
        and event.status == "complete"
        and event.format == CHAT_FORMAT
        and event.tokens is None
        and event.streamed is None
    )


def plain_event_row(tenant_id: str, session_id: str, event: Event) -> Row:
    return (
        tenant_id,
        session_id,
        event.seq,
        event.version,
        event.kind,
        event.at,
        event.actor,
        event.run_id or "",
        bytearray(event.body),
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
            seq=seq,
            version=version,
            kind=_legible(kind),
            at=at,
            actor=actor.decode(errors="replace"),
            run_id=_legible(run_id),
            refers_to=refers_to,
        )


def _decode_event(row: Row) -> Event:
    seq, version, kind, at, actor, run_id, refers_to, status, format, outcome, tokens, *more = row[:14]
    streamed, metadata, body = more
    check_json(body)
    if metadata is not None:
        check_json(metadata)
    kind = kind.decode()
    if kind not in EVENT_KINDS:
        raise ValueError("an unknown kind")
    return Event(
        seq=seq,
        version=version,
        kind=kind,
        at=at,
        actor=actor.decode(),
        body=body,
        run_id=None if run_id is None else run_id.decode(),
        refers_to=refers_to,
        status="complete" if status is None else status.decode(),
        format=CHAT_FORMAT if format is None else format.decode(),
        outcome=None if outcome is None else outcome.decode(),
        tokens=tokens,
        streamed=streamed,
        metadata=metadata,
    )


def call_row(ref: SessionRef, call: CallRow) -> Row:
    return (
        *ref,
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
            tool=tool.decode(errors="replace"),
            arguments_hash=arguments_hash,
            start_time=start_time,
            end_time=end_time,
            tool_call_id=_legible(label),
            run_id=_legible(run_id),
        )


def _decode_call(row: Row) -> CallRow:
    seq, version, tool, arguments_hash, status, start_time, end_time, label, run_id, *rest = row
    result_seq, result_kind, repeat_of, step, *bodies = rest
    start_body, end_body = shown_bodies(*bodies)
    return CallRow(
        seq=seq,
        version=version,
        tool=tool.decode(),
        arguments_hash=arguments_hash,
        status=status.decode(),
        start_time=start_time,
        end_time=end_time,
        tool_call_id=_text(label),
        run_id=_text(run_id),
        result_seq=result_seq,
        result_kind=result_kind.decode(),
        repeat_of=repeat_of,
        step=_text(step),
        start_body=start_body,
        end_body=end_body,
    )


def run_row(ref: SessionRef, run: RunRow) -> Row:
    """An input that is a message by now stands in the log alone."""
    return (
        *ref,
        run.run_id,
        run.number,
        run.status,
        run.input_seq,
        encode_run(run),
        bytes(run.metadata) or None,
        None if run.input_seq is not None else bytes(run.input) or None,
        bytes(run.input_metadata) or None,
        run.parent_run_id,
    )


def run_of(ref: SessionRef, row: Row) -> RunRow:
    """Raises StoreCorrupt, unless it is an input that is a message by now: that is the message's fault."""
    return read(_decode_run_row, row, f"run {row[0].decode(errors='replace')}", ref)


def shown_run(ref: SessionRef, row: Row) -> RunRow:
    try:
        return run_of(ref, row)
    except StoreCorrupt:
        run_id, number, status, input_seq = row[:4]
        return corrupt_run(run_id.decode(errors="replace"), number=number, status=_legible(status), input_seq=input_seq)


def _decode_run_row(row: Row) -> RunRow:
    input_seq, record, metadata, input, input_metadata = row[3:8]
    return decode_run(record, input_seq=input_seq, metadata=metadata, input=input, input_metadata=input_metadata)


def piece_row(ref: SessionRef, piece: Piece) -> Row:
    return (*ref, *piece.key, piece.offset, piece.body, piece.metadata)


def piece_of(key: StreamKey, row: Row) -> Piece:
    """Its body as it is: who reads the text finds out whether it can be read."""
    offset, body, metadata = row
    return Piece(
        run_id=key.run_id,
        attempt=key.attempt,
        message=key.message,
        offset=offset,
        body=body,
        metadata=metadata if is_json(metadata) else CORRUPT_BODY,
    )


def idempotency_row(tenant_id: str, session_id: str, record: IdempotencyRecord) -> Row:
    return (
        tenant_id,
        session_id,
        bytearray(record.key_hash),
        bytearray(record.fingerprint),
        bytearray(encode_answer(record.answer)),
    )


def idempotency_of(ref: SessionRef, key: bytes, row: Row) -> IdempotencyRecord:
    return read(lambda row: IdempotencyRecord(key, row[0], decode_answer(row[1])), row, "an idempotency record", ref)
