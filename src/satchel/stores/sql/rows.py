"""Rows of the tables as structs of the domain, and back. A driver gives names as str, and JSON as str or bytes; bodies
become bytes.

What cannot be decoded is StoreCorrupt to whoever would build on it. To a reader (``shown_…``) it is a placeholder that keeps
its place, so that one corrupt row hides nothing but itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from satchel.domain.event import CHAT_FORMAT, CORRUPT_BODY, CORRUPT_FORMAT, KINDS, Event
from satchel.domain.idempotency import IdempotencyRecord, decode_answer, encode_answer
from satchel.domain.ids import SessionRef
from satchel.domain.record import SessionRecord, decode_record, encode_record
from satchel.domain.run import LEGAL, RunError, RunRow
from satchel.domain.stream import Piece
from satchel.domain.tool_call import CallRow
from satchel.errors import StoreCorrupt

Row = Any
S = TypeVar("S")

_encode_run = msgspec.json.Encoder().encode
_decode_run = msgspec.json.Decoder(RunRow).decode
# The very objects that are the defaults: they are left out of the JSON.
_NO_TEXTS = {
    name: default
    for name, default in zip(reversed(RunRow.__struct_fields__), reversed(RunRow.__struct_defaults__), strict=False)
    if name in ("metadata", "input", "input_metadata")
}

_KINDS = frozenset(KINDS)
_check_syntax = msgspec.json.Decoder(msgspec.Raw).decode

# In the place of a call's bodies: arguments and outcome that say so, whichever way the call ended.
_CORRUPT_START = b'{"arguments":' + CORRUPT_BODY + b"}"
_CORRUPT_END = b'{"result":' + CORRUPT_BODY + b',"content":' + CORRUPT_BODY + b"}"
_CORRUPT_MEMORY = b'{"notes":' + CORRUPT_BODY + b"}"

_BROKEN = (ValueError, TypeError, AttributeError, KeyError, RecursionError)  # what undecodable columns raise


def _check_json(text: bytes) -> None:
    """Raises ValueError. The decoder passes over the bytes inside a text without looking at them."""
    _check_syntax(text)
    if not text.isascii():
        text.decode()


def is_json(text: bytes | None) -> bool:
    try:
        if text is not None:
            _check_json(text)
    except _BROKEN:
        return False
    return True


def to_bytes(text: str | bytes | None) -> bytes | None:
    return text.encode() if isinstance(text, str) else text


def to_text(data: bytes | msgspec.Raw | None) -> str | None:
    """None for nothing. Raises UnicodeDecodeError."""
    return None if data is None else bytes(data).decode()


def _read(decode: Callable[[Row], S], row: Row, what: str, ref: SessionRef) -> S:
    """Raises StoreCorrupt, naming ``what`` of the session."""
    try:
        return decode(row)
    except _BROKEN as error:
        raise StoreCorrupt(f"{what} of session {ref.session_id}") from error


def record_of(session_id: str, text: str | bytes) -> SessionRecord:
    try:
        record = decode_record(text)
    except _BROKEN as error:
        raise StoreCorrupt(f"the record of session {session_id}") from error
    if record.session_id != session_id:
        raise StoreCorrupt(f"the record of session {session_id}")
    return record


def sound(text: str | bytes | None, what: str, ref: SessionRef) -> bytes:
    """Raises StoreCorrupt: a change of what cannot be read would make true what is left of it."""
    body = to_bytes(text) or b""
    if body and not is_json(body):
        raise StoreCorrupt(f"{what} of session {ref.session_id}")
    return body


def shown_metadata(text: str | bytes | None) -> bytes:
    """b"" when there is none."""
    body = to_bytes(text) or b""
    return body if not body or is_json(body) else CORRUPT_BODY


def shown_memory(text: str | bytes | None) -> bytes:
    """A memory that cannot be read is not an empty one: it has a note that says so."""
    body = to_bytes(text) or b""
    return body if not body or is_json(body) else _CORRUPT_MEMORY


def has_same_entries(before: SessionRecord, record: SessionRecord) -> bool:
    """In all columns beside the record, but for ``updated_at``, ``turns_at`` and the revision."""
    return (
        before.user_id == record.user_id
        and before.status == record.status
        and before.hidden == record.hidden
        and (before.turn is record.turn or before.ready_agent == record.ready_agent)
        and before.sweep_at == record.sweep_at
        and before.lease_until == record.lease_until
        and before.lease_clock == record.lease_clock
        and (before.policy is record.policy or before.policy.retention == record.policy.retention)
    )


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
    return _read(_decode_event, row, f"event {row[0]}", ref)


def shown_event(ref: SessionRef, row: Row) -> Event:
    try:
        return event_of(ref, row)
    except StoreCorrupt:
        seq, version, kind, at, actor, run_id, refers_to = row[:7]
        return Event(
            seq=seq,
            version=version,
            kind=kind,
            at=at,
            actor=actor,
            body=CORRUPT_BODY,
            run_id=run_id,
            refers_to=refers_to,
            format=CORRUPT_FORMAT,
        )


def _decode_event(row: Row) -> Event:
    seq, version, kind, at, actor, run_id, refers_to, status, format, outcome, *more = row[:14]
    tokens, streamed, metadata, body = more
    body = body.encode() if isinstance(body, str) else body
    _check_json(body)
    shown = to_bytes(metadata)
    if shown is not None:
        _check_json(shown)
    if kind not in _KINDS:
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
    return _read(_decode_call, row, f"tool call {row[0]}", ref)


def shown_call(ref: SessionRef, row: Row) -> CallRow:
    try:
        return call_of(ref, row)
    except StoreCorrupt:
        seq, version, tool, arguments_hash, _, start_time, end_time, label, run_id = row[:9]
        return CallRow(
            seq=seq,
            version=version,
            tool=tool,
            arguments_hash=arguments_hash,
            status="unknown",
            start_time=start_time,
            end_time=end_time,
            tool_call_id=label,
            run_id=run_id,
            start_body=_CORRUPT_START,
            end_body=_CORRUPT_END,
        )


def _decode_call(row: Row) -> CallRow:
    seq, version, tool, arguments_hash, status, start_time, end_time, label, run_id, *rest = row
    result_seq, result_kind, repeat_of, step, start, end = rest
    start_body, end_body = to_bytes(start), to_bytes(end)
    if not is_json(start_body):
        start_body = _CORRUPT_START
    if not is_json(end_body):
        end_body = _CORRUPT_END
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
        start_body=b"{}" if start_body is None else start_body,
        end_body=end_body,
    )


def run_row(run: RunRow) -> tuple[Any, ...]:
    """An input that is a message by now stands in the log alone."""
    return (
        run.run_id,
        run.number,
        run.status,
        run.input_seq,
        _encode_run(msgspec.structs.replace(run, **_NO_TEXTS)).decode(),
        to_text(run.metadata) or None,
        None if run.input_seq is not None else to_text(run.input) or None,
        to_text(run.input_metadata) or None,
        run.parent_run_id,
    )


def run_of(ref: SessionRef, row: Row) -> RunRow:
    """Raises StoreCorrupt, unless it is an input that is a message by now: that is the message's fault."""
    return _read(_decode_run_row, row, f"run {row[0]}", ref)


def shown_run(ref: SessionRef, row: Row) -> RunRow:
    try:
        return run_of(ref, row)
    except StoreCorrupt:
        run_id, number, status, input_seq = row[:4]
        return RunRow(
            run_id=run_id,
            number=number,
            status=status if status in LEGAL else "FAILED",
            created_at=0,
            version=0,
            error=RunError(code="store_corrupt", message="what is stored of this run cannot be read"),
            input_seq=input_seq,
            input=msgspec.Raw(CORRUPT_BODY),
        )


def _decode_run_row(row: Row) -> RunRow:
    input_seq, record, *texts = row[3:8]
    run = _decode_run(record)
    metadata, input, input_metadata = (to_bytes(text) for text in texts)
    for text in (metadata, input_metadata, input if input_seq is None else None):
        if text is not None:
            _check_json(text)
    if not is_json(input):
        input = CORRUPT_BODY
    return msgspec.structs.replace(
        run,
        metadata=msgspec.Raw(metadata or b""),
        input=msgspec.Raw(input or b""),
        input_metadata=msgspec.Raw(input_metadata or b""),
    )


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
    return _read(
        lambda row: IdempotencyRecord(row[0], row[1], decode_answer(row[2])), row, "an idempotency record", ref
    )
