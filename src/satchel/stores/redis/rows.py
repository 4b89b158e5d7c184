"""Rows as they lie in their keys, and back to structs of the domain.

A row is the length of its head (4 bytes), its head (a MessagePack array, which scripts read to filter), and a body that is JSON
as it was given. What cannot be decoded is StoreCorrupt to whoever would build on it. To a reader (``shown_…``) it is a
placeholder that keeps its place, so that one corrupt row hides nothing but itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from satchel.domain.event import CHAT_FORMAT, CORRUPT_BODY, CORRUPT_FORMAT, CallOutcome, Event, EventKind, MessageStatus
from satchel.domain.idempotency import IdempotencyRecord, decode_answer, encode_answer
from satchel.domain.ids import SessionRef
from satchel.domain.record import SessionRecord, decode_record
from satchel.domain.stream import Piece, StreamKey
from satchel.domain.tool_call import CallRow, ResultKind, ToolCallStatus
from satchel.errors import StoreCorrupt

OWN_CLOCK = "server"  # leases count on the server's wall clock: the one that all processes share

_CORRUPT_START = b'{"arguments":' + CORRUPT_BODY + b"}"
_CORRUPT_END = b'{"result":' + CORRUPT_BODY + b',"content":' + CORRUPT_BODY + b"}"
_CORRUPT_MEMORY = b'{"notes":' + CORRUPT_BODY + b"}"
BROKEN = (ValueError, TypeError, AttributeError, LookupError, RecursionError)  # what undecodable rows raise


class _EventHead(msgspec.Struct, array_like=True, gc=False):
    seq: int
    version: int
    kind: EventKind
    at: int
    actor: str
    run_id: str | None = None
    refers_to: int | None = None
    status: MessageStatus | None = None
    format: str | None = None
    outcome: CallOutcome | None = None
    tokens: int | None = None
    streamed: int | None = None
    metadata: str | None = None


class _CallHead(msgspec.Struct, array_like=True, gc=False):
    seq: int
    version: int
    tool: str
    arguments_hash: str
    status: ToolCallStatus
    start_time: int
    end_time: int | None = None
    tool_call_id: str | None = None
    run_id: str | None = None
    result_seq: int | None = None
    result_kind: ResultKind | None = None
    repeat_of: int | None = None
    step: str | None = None


class _PieceHead(msgspec.Struct, array_like=True, gc=False):
    offset: int
    metadata: str | None = None


_encode = msgspec.msgpack.Encoder().encode
_event_head = msgspec.msgpack.Decoder(_EventHead).decode
_call_head = msgspec.msgpack.Decoder(_CallHead).decode
_piece_head = msgspec.msgpack.Decoder(_PieceHead).decode
_check_syntax = msgspec.json.Decoder(msgspec.Raw).decode


def _text(body: bytes | None) -> str | None:
    return None if body is None else body.decode()


def checked(body: bytes) -> bytes:
    """Raises UnicodeDecodeError, AttributeError: what is stored is text."""
    if not body.isascii():
        body.decode()
    return body


def pack_row(head: list[Any], body: bytes) -> bytes:
    """Raises OverflowError for a number beyond 64 bits, UnicodeEncodeError."""
    while head[-1] is None:
        head.pop()
    packed = _encode(head)
    return len(packed).to_bytes(4, "big") + packed + body


def parts_of(row: bytes) -> tuple[bytes, bytes]:
    end = 4 + int.from_bytes(row[:4], "big")
    return row[4:end], row[end:]


def is_json(body: bytes) -> bool:
    try:
        _check_syntax(body)
        checked(body)
    except BROKEN:
        return False
    return True


# The record and what stands beside it


def entries_of(record: SessionRecord) -> bytes:
    """What lists and queues hold of the session, as the script compares and reads it."""
    leased = record.lease_until is not None
    sweep_at = record.sweep_at
    return _encode(
        (
            record.user_id,
            not record.hidden and record.status != "DELETED",
            record.ready_agent,
            None if sweep_at is None else str(sweep_at),
            str(record.lease_until) if leased else None,
            record.lease_clock if leased else None,
        )
    )


def has_same_entries(before: SessionRecord, record: SessionRecord) -> bool:
    return (
        before.user_id == record.user_id
        and before.status == record.status
        and before.hidden == record.hidden
        and (before.turn is record.turn or before.ready_agent == record.ready_agent)
        and before.sweep_at == record.sweep_at
        and before.lease_until == record.lease_until
        and before.lease_clock == record.lease_clock
    )


def record_of(session_id: str, row: bytes) -> SessionRecord:
    """Raises StoreCorrupt."""
    try:
        record = decode_record(row)
    except BROKEN as error:
        raise StoreCorrupt(f"the record of session {session_id}") from error
    if record.session_id != session_id:
        raise StoreCorrupt(f"the record of session {session_id}")
    return record


def sound(body: bytes | None, what: str, ref: SessionRef) -> bytes:
    """Raises StoreCorrupt: a change of what cannot be read would make true what is left of it."""
    if body and not is_json(body):
        raise StoreCorrupt(f"{what} of session {ref.session_id}")
    return body or b""


def shown_metadata(body: bytes | None) -> bytes:
    """b"" when there is none."""
    return (body if is_json(body) else CORRUPT_BODY) if body else b""


def shown_memory(body: bytes | None) -> bytes:
    """A memory that cannot be read is not an empty one: it has a note that says so."""
    return (body if is_json(body) else _CORRUPT_MEMORY) if body else b""


def text_row(body: bytes | None) -> bytes:
    """A new memory or metadata, for the script: b"" leaves it as it is, b"=" removes it."""
    return b"" if body is None else b"=" + checked(body)


def idempotency_row(record: IdempotencyRecord) -> bytes:
    return bytes((len(record.fingerprint),)) + record.fingerprint + encode_answer(record.answer)


def idempotency_of(ref: SessionRef, key: bytes, row: bytes) -> IdempotencyRecord:
    """Raises StoreCorrupt."""
    try:
        end = 1 + row[0]
        return IdempotencyRecord(key, row[1:end], decode_answer(row[end:]))
    except BROKEN as error:
        raise StoreCorrupt(f"an idempotency record of session {ref.session_id}") from error


# Events


def event_row(event: Event) -> bytes:
    head = [
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
        _text(event.metadata),
    ]
    if type(event.actor) is not str:
        raise TypeError("an event has an actor")
    return pack_row(head, checked(event.body))


def event_of(ref: SessionRef, seq: int, row: bytes) -> Event:
    """Raises StoreCorrupt."""
    try:
        return _decode_event(seq, row)
    except BROKEN as error:
        raise StoreCorrupt(f"event {seq} of session {ref.session_id}") from error


def shown_event(ref: SessionRef, seq: int, row: bytes) -> Event:
    try:
        return event_of(ref, seq, row)
    except StoreCorrupt:
        head = legible(_event_head, row) or _EventHead(seq, 0, "message", 0, "operator")
        return Event(
            seq=seq,
            version=head.version,
            kind=head.kind,
            at=head.at,
            actor=head.actor,
            body=CORRUPT_BODY,
            run_id=head.run_id,
            refers_to=head.refers_to,
            format=CORRUPT_FORMAT,
        )


def legible(decode: Any, row: bytes) -> Any:
    """The head, if that at least can be read."""
    try:
        return decode(parts_of(row)[0])
    except BROKEN:
        return None


def _decode_event(seq: int, row: bytes) -> Event:
    packed, body = parts_of(row)
    head = _event_head(packed)
    _check_syntax(body)
    checked(body)
    metadata = None if head.metadata is None else head.metadata.encode()
    if metadata is not None:
        _check_syntax(metadata)
    if head.seq != seq:
        raise ValueError("another event stands in its place")
    return Event(
        seq=seq,
        version=head.version,
        kind=head.kind,
        at=head.at,
        actor=head.actor,
        body=body,
        run_id=head.run_id,
        refers_to=head.refers_to,
        status=head.status or "complete",
        format=CHAT_FORMAT if head.format is None else head.format,
        metadata=metadata,
        outcome=head.outcome,
        tokens=head.tokens,
        streamed=head.streamed,
    )


def body_of(row: bytes | None) -> bytes | None:
    """Of an event, whatever else of it can be read."""
    return None if row is None else parts_of(row)[1]


# Tool calls


def call_row(call: CallRow) -> bytes:
    head = [
        call.seq,
        call.version,
        call.tool,
        call.arguments_hash.hex(),
        call.status,
        call.start_time,
        call.end_time,
        call.tool_call_id,
        call.run_id,
        call.result_seq,
        None if call.result_kind == "event" else call.result_kind,
        call.repeat_of,
        call.step,
    ]
    return pack_row(head, b"")


def call_of(ref: SessionRef, seq: int, found: Sequence[bytes | None]) -> CallRow:
    """``found``: its row, and the events that hold its bodies. Raises StoreCorrupt, unless it is a body that cannot be read:
    nothing is built on these."""
    row, start, end = found
    try:
        head = _call_head(parts_of(row or b"")[0])
        arguments_hash = bytes.fromhex(head.arguments_hash)
    except BROKEN as error:
        raise StoreCorrupt(f"tool call {seq} of session {ref.session_id}") from error
    start_body, end_body = body_of(start), body_of(end)
    if start_body is not None and not is_json(start_body):
        start_body = _CORRUPT_START
    if end_body is not None and not is_json(end_body):
        end_body = _CORRUPT_END
    return CallRow(
        seq=head.seq,
        version=head.version,
        tool=head.tool,
        arguments_hash=arguments_hash,
        status=head.status,
        start_time=head.start_time,
        end_time=head.end_time,
        tool_call_id=head.tool_call_id,
        run_id=head.run_id,
        result_seq=head.result_seq,
        result_kind=head.result_kind or "event",
        repeat_of=head.repeat_of,
        step=head.step,
        start_body=b"{}" if start_body is None else start_body,
        end_body=end_body,
    )


def shown_call(ref: SessionRef, seq: int, found: Sequence[bytes | None]) -> CallRow:
    try:
        return call_of(ref, seq, found)
    except StoreCorrupt:
        return CallRow(
            seq=seq,
            version=0,
            tool="",
            arguments_hash=bytes(16),
            status="unknown",
            start_time=0,
            start_body=_CORRUPT_START,
            end_body=_CORRUPT_END,
        )


# Pieces of streams


def piece_row(piece: Piece) -> bytes:
    return pack_row([piece.offset, _text(piece.metadata)], checked(piece.body))


def piece_of(key: StreamKey, row: bytes) -> Piece:
    """Its body as it is: who reads the text finds out whether it can be read."""
    packed, body = parts_of(row)
    head = legible(_piece_head, row) or _PieceHead(-1)  # what follows on nothing is not read
    metadata = None if head.metadata is None else head.metadata.encode()
    return Piece(
        run_id=key.run_id,
        attempt=key.attempt,
        message=key.message,
        offset=head.offset,
        body=body if packed else CORRUPT_BODY,
        metadata=metadata if metadata is None or is_json(metadata) else CORRUPT_BODY,
    )
