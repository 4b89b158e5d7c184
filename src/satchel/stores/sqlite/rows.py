"""Rows of the tables as structs of the domain, and back. Texts come as bytes; bodies stay so."""

from __future__ import annotations

from typing import Any

import msgspec

from satchel.domain.event import CHAT_FORMAT, Event
from satchel.domain.idempotency import IdempotencyRecord, decode_answer, encode_answer
from satchel.domain.ids import SessionRef
from satchel.domain.record import SessionRecord, decode_record, encode_record
from satchel.domain.run import RunRow
from satchel.domain.tool_call import CallRow
from satchel.errors import StoreCorrupt

Row = tuple[Any, ...]

_encode_run = msgspec.json.Encoder().encode
_decode_run = msgspec.json.Decoder(RunRow).decode
# The very objects that are the defaults: they are left out of the JSON.
_NO_TEXTS = {
    name: default
    for name, default in zip(reversed(RunRow.__struct_fields__), reversed(RunRow.__struct_defaults__), strict=False)
    if name in ("metadata", "input", "input_metadata")
}


_ABSENT = (b',""]', b",[]]")
_check_json = msgspec.json.Decoder(msgspec.Raw).decode


def record_of(session_id: str, row: Row) -> SessionRecord:
    try:
        return decode_record(row[0])
    except (ValueError, TypeError) as error:
        raise StoreCorrupt(f"the record of session {session_id}") from error


def indexed(record: SessionRecord) -> tuple[Any, ...]:
    """What the indexes hold of a record, but for ``updated_at`` and ``expires_at``."""
    return (
        record.user_id,
        record.status,
        record.hidden,
        record.ready_agent,
        record.sweep_at,
        record.lease_until,
        record.lease_clock,
    )


def narrow_row(record: SessionRecord) -> Row:
    return (
        record.tenant_id,
        record.session_id,
        record.updated_at,
        record.expires_at,
        record.revision,
        encode_record(record),
    )


def wide_row(record: SessionRecord) -> Row:
    return (
        record.tenant_id,
        record.session_id,
        record.user_id,
        record.status,
        int(record.hidden),
        record.updated_at,
        record.expires_at,
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
        event.metadata,
        event.body,
    )


def event_of(ref: SessionRef, row: Row) -> Event:
    seq, version, kind, at, actor, run_id, refers_to, status, format, outcome, metadata, body = row[:12]
    try:
        _check_json(body)
    except ValueError as error:
        raise StoreCorrupt(f"event {seq} of session {ref.session_id}") from error
    return Event(
        seq=seq,
        version=version,
        kind=kind.decode(),
        at=at,
        actor=actor.decode(),
        body=body,
        run_id=None if run_id is None else run_id.decode(),
        refers_to=refers_to,
        status="complete" if status is None else status.decode(),
        format=CHAT_FORMAT if format is None else format.decode(),
        outcome=None if outcome is None else outcome.decode(),
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
    )


def call_of(ref: SessionRef, row: Row) -> CallRow:
    seq, version, tool, arguments_hash, status, start_time, end_time, label, run_id, *rest = row
    result_seq, result_kind, repeat_of, start_body, end_body = rest
    try:
        for body in (start_body, end_body):
            if body is not None:
                _check_json(body)
    except ValueError as error:
        raise StoreCorrupt(f"tool call {seq} of session {ref.session_id}") from error
    return CallRow(
        seq=seq,
        version=version,
        tool=tool.decode(),
        arguments_hash=arguments_hash,
        status=status.decode(),
        start_time=start_time,
        end_time=end_time,
        tool_call_id=None if label is None else label.decode(),
        run_id=None if run_id is None else run_id.decode(),
        result_seq=result_seq,
        result_kind=result_kind.decode(),
        repeat_of=repeat_of,
        start_body=b"{}" if start_body is None else start_body,
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
        _encode_run(msgspec.structs.replace(run, **_NO_TEXTS)),
        bytes(run.metadata) or None,
        None if run.input_seq is not None else bytes(run.input) or None,
        bytes(run.input_metadata) or None,
    )


def run_of(ref: SessionRef, row: Row) -> RunRow:
    record, metadata, input, input_metadata = row
    try:
        run = _decode_run(record)
    except (ValueError, TypeError) as error:
        raise StoreCorrupt(f"a run of session {ref.session_id}") from error
    return msgspec.structs.replace(
        run,
        metadata=msgspec.Raw(metadata or b""),
        input=msgspec.Raw(input or b""),
        input_metadata=msgspec.Raw(input_metadata or b""),
    )


def idempotency_row(tenant_id: str, session_id: str, record: IdempotencyRecord) -> Row:
    answer = encode_answer(record.answer)
    for absent in _ABSENT:  # defaults at the end of the array
        if not answer.endswith(absent):
            break
        answer = answer[: -len(absent)] + b"]"
    return tenant_id, session_id, record.key_hash, record.fingerprint, answer


def idempotency_of(ref: SessionRef, key: bytes, row: Row) -> IdempotencyRecord:
    try:
        return IdempotencyRecord(key, row[0], decode_answer(row[1]))
    except (ValueError, TypeError) as error:
        raise StoreCorrupt(f"an idempotency record of session {ref.session_id}") from error
