"""What the rows of all stores have in common: when a text in them is believed, and what a reader is shown instead of one that
is not.

What cannot be decoded is StoreCorrupt to whoever would build on it. To a reader it is a placeholder that keeps its place, so
that one corrupt row hides nothing but itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from satchel.domain.event import CORRUPT_BODY, CORRUPT_FORMAT, KINDS, Event
from satchel.domain.ids import SessionRef
from satchel.domain.record import SessionRecord
from satchel.domain.run import LEGAL, RunError, RunRow
from satchel.domain.tool_call import CallRow
from satchel.errors import StoreCorrupt

R = TypeVar("R")
S = TypeVar("S")

BROKEN = (
    ValueError,
    TypeError,
    AttributeError,
    LookupError,
    RecursionError,
)  # what undecodable bytes and columns raise

EVENT_KINDS = frozenset(KINDS)

# In the place of a call's bodies: arguments and outcome that say so, whichever way the call ended.
CORRUPT_START = b'{"arguments":' + CORRUPT_BODY + b"}"
CORRUPT_END = b'{"result":' + CORRUPT_BODY + b',"content":' + CORRUPT_BODY + b"}"
_CORRUPT_MEMORY = b'{"notes":' + CORRUPT_BODY + b"}"

_check_syntax = msgspec.json.Decoder(msgspec.Raw).decode
_encode_run = msgspec.json.Encoder().encode
_decode_run = msgspec.json.Decoder(RunRow).decode
# The very objects that are the defaults: they are left out of the JSON.
_NO_TEXTS = {
    name: default
    for name, default in zip(reversed(RunRow.__struct_fields__), reversed(RunRow.__struct_defaults__), strict=False)
    if name in ("metadata", "input", "input_metadata")
}


def check_json(text: bytes) -> None:
    """Raises ValueError. The decoder passes over the bytes inside a text without looking at them."""
    _check_syntax(text)
    if not text.isascii():
        text.decode()


def is_json(text: bytes | None) -> bool:
    try:
        if text is not None:
            check_json(text)
    except BROKEN:
        return False
    return True


def read(decode: Callable[[R], S], row: R, what: str, ref: SessionRef) -> S:
    """Raises StoreCorrupt, naming ``what`` of the session."""
    try:
        return decode(row)
    except BROKEN as error:
        raise StoreCorrupt(f"{what} of session {ref.session_id}") from error


def sound(text: bytes | None, what: str, ref: SessionRef) -> bytes:
    """b"" when there is none. Raises StoreCorrupt: a change of what cannot be read would make true what is left of it."""
    if text and not is_json(text):
        raise StoreCorrupt(f"{what} of session {ref.session_id}")
    return text or b""


def shown_metadata(text: bytes | None) -> bytes:
    """b"" when there is none."""
    return CORRUPT_BODY if text and not is_json(text) else text or b""


def shown_memory(text: bytes | None) -> bytes:
    """A memory that cannot be read is not an empty one: it has a note that says so."""
    return _CORRUPT_MEMORY if text and not is_json(text) else text or b""


def corrupt_event(
    *, seq: int, version: int, kind: Any, at: int, actor: str, run_id: str | None, refers_to: int | None
) -> Event:
    """Of one whose row cannot be decoded: what could be read of it."""
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


def corrupt_call(
    *,
    seq: int,
    version: int = 0,
    tool: str = "",
    arguments_hash: bytes = bytes(16),
    start_time: int = 0,
    end_time: int | None = None,
    tool_call_id: str | None = None,
    run_id: str | None = None,
) -> CallRow:
    return CallRow(
        seq=seq,
        version=version,
        tool=tool,
        arguments_hash=arguments_hash,
        status="unknown",
        start_time=start_time,
        end_time=end_time,
        tool_call_id=tool_call_id,
        run_id=run_id,
        start_body=CORRUPT_START,
        end_body=CORRUPT_END,
    )


def corrupt_run(run_id: str, *, number: int, status: Any, input_seq: int | None) -> RunRow:
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


def shown_bodies(start: bytes | None, end: bytes | None) -> tuple[bytes, bytes | None]:
    """Of a tool call. Nothing is built on these: one that cannot be read says so in its place."""
    if not is_json(start):
        start = CORRUPT_START
    if not is_json(end):
        end = CORRUPT_END
    return b"{}" if start is None else start, end


def encode_run(run: RunRow) -> bytes:
    """Without its texts, which have columns of their own."""
    return _encode_run(msgspec.structs.replace(run, **_NO_TEXTS))


def decode_run(
    record: bytes | str,
    *,
    input_seq: int | None,
    metadata: bytes | None,
    input: bytes | None,
    input_metadata: bytes | None,
) -> RunRow:
    """Raises one of BROKEN, unless it is an input that is a message by now: that is the message's fault."""
    run = _decode_run(record)
    for text in (metadata, input_metadata, input if input_seq is None else None):
        if text is not None:
            check_json(text)
    if not is_json(input):
        input = CORRUPT_BODY
    return msgspec.structs.replace(
        run,
        metadata=msgspec.Raw(metadata or b""),
        input=msgspec.Raw(input or b""),
        input_metadata=msgspec.Raw(input_metadata or b""),
    )


def has_same_entries(before: SessionRecord, record: SessionRecord) -> bool:
    """Whether lists and queues hold the same of both, but for ``updated_at``, ``turns_at`` and the revision."""
    return (
        before.sweep_at == record.sweep_at
        and before.status == record.status
        and (before.turn is record.turn or before.ready_agent == record.ready_agent)
        and before.lease_until == record.lease_until
        and before.lease_clock == record.lease_clock
        and before.user_id == record.user_id
        and before.hidden == record.hidden
        and (before.policy is record.policy or before.policy.retention == record.policy.retention)
    )
