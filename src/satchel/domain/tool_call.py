"""What was executed. A call is named by the seq of its start; its label is the engine's ``tool_call_id``."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal

import msgspec

from satchel.domain.canonical import canonical
from satchel.domain.clock import rfc3339, to_datetime
from satchel.domain.frozen import in_brief
from satchel.domain.json_text import decode
from satchel.domain.spelling import Spellings, as_written, spellings, spellings_in

ToolCallStatus = Literal["started", "succeeded", "failed", "cancelled", "unknown"]
# Where the result is kept: in an event of its own, or in a tool message (as its text, or as JSON written into it).
ResultKind = Literal["event", "text", "json"]


class CallRow(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A tool call as a store keeps it: an index entry. Bodies stand once, in the log, and are joined when read."""

    seq: int
    version: int
    tool: str
    arguments_hash: bytes
    status: ToolCallStatus
    start_time: int
    end_time: int | None = None
    tool_call_id: str | None = None
    run_id: str | None = None
    result_seq: int | None = None
    result_kind: ResultKind = "event"
    repeat_of: int | None = None
    step: str | None = None
    # Joined from the log, not stored again:
    start_body: bytes = b"{}"
    end_body: bytes | None = None


class ToolCall(msgspec.Struct, frozen=True, kw_only=True):
    """One tool call.

    ``ok`` is true or false once the outcome is known, and None while the call is open or when nobody knows what it did
    (status ``unknown``). ``repeat_of`` is the seq of the newest earlier call of the same tool with equal arguments. ``step``
    is the name under which a run made it: its outcome is given to every later attempt.
    """

    seq: int
    version: int
    tool: str
    arguments: Any
    arguments_hash: str
    status: ToolCallStatus
    ok: bool | None
    result: Any
    error: Any
    start_at: int
    end_at: int | None
    tool_call_id: str | None = None
    run_id: str | None = None
    repeat_of: int | None = None
    step: str | None = None
    replayed: bool = False
    spelt: Spellings = {}  # JSON of other people's that Python's numbers would spell otherwise: for to_json

    def __repr__(self) -> str:
        came = f"result={in_brief(self.result)}" if self.error is None else f"error={in_brief(self.error)}"
        return (
            f"ToolCall(seq={self.seq}, tool={self.tool!r}, arguments={in_brief(self.arguments)},"
            f" status={self.status!r}, {came})"
        )

    @property
    def is_open(self) -> bool:
        return self.status == "started"

    @property
    def start_time(self) -> datetime:
        return to_datetime(self.start_at)

    @property
    def end_time(self) -> datetime | None:
        return None if self.end_at is None else to_datetime(self.end_at)

    @property
    def duration_ms(self) -> int | None:
        return None if self.end_at is None else max(0, self.end_at - self.start_at) // 1000

    def to_dict(self) -> dict[str, Any]:
        return {
            "seq": self.seq,
            "version": self.version,
            "tool_call_id": self.tool_call_id,
            "run_id": self.run_id,
            "tool": self.tool,
            "arguments": self.arguments,
            "arguments_hash": self.arguments_hash,
            "status": self.status,
            "ok": self.ok,
            "result": self.result,
            "error": self.error,
            "start_time": rfc3339(self.start_at),
            "end_time": None if self.end_at is None else rfc3339(self.end_at),
            "duration_ms": self.duration_ms,
            "repeat_of": self.repeat_of,
            "step": self.step,
        }

    def to_json(self) -> bytes:
        """:meth:`to_dict` as JSON; numbers are spelled as they were given."""
        return msgspec.json.encode(self.to_dict() | self.spelt)

    @classmethod
    def from_row(cls, row: CallRow, *, replayed: bool = False, version: int | None = None) -> ToolCall:
        start = decode(row.start_body)
        result, error = _outcome(row)
        return cls(
            seq=row.seq,
            version=row.version if version is None else version,
            tool=row.tool,
            arguments=start.get("arguments"),
            arguments_hash=row.arguments_hash.hex(),
            status=row.status,
            ok=is_ok(row.status),
            result=result,
            error=error,
            start_at=row.start_time,
            end_at=row.end_time,
            tool_call_id=row.tool_call_id,
            run_id=row.run_id,
            repeat_of=row.repeat_of,
            step=row.step,
            replayed=replayed,
            spelt=_spelt(row),
        )


def is_ok(status: ToolCallStatus) -> bool | None:
    return {"succeeded": True, "failed": False, "cancelled": False}.get(status)


def _outcome(row: CallRow) -> tuple[Any, Any]:
    if row.end_body is None:
        return None, None
    body = decode(row.end_body)
    if row.result_kind == "event":
        return body.get("result"), body.get("error")
    beside = decode(row.start_body)  # what a call in one stroke held beside its message
    content = body.get("content")
    if row.result_kind == "json" and isinstance(content, str):
        content = decode(content)
    return (beside.get("result"), content) if row.status == "failed" else (content, beside.get("error"))


def _spelt(row: CallRow) -> Spellings:
    """As ``_outcome`` finds the values."""
    found = spellings_in(row.start_body, ("arguments",))
    if row.end_body is None:
        return found
    if row.result_kind == "event":
        return found | spellings_in(row.end_body, ("result", "error"))
    found |= spellings_in(row.start_body, ("error",) if row.status != "failed" else ("result",))
    if row.result_kind == "json" and isinstance(content := decode(row.end_body).get("content"), str):
        found |= spellings((("error" if row.status == "failed" else "result", content.encode()),))
    return found


def hash_arguments(tool: str, arguments: object) -> bytes:
    """16 bytes over the tool's name and the canonical JSON of the arguments.

    Models give arguments as JSON text: text that holds an object counts as that object.
    """
    name = tool.encode()
    return hashlib.sha256(len(name).to_bytes(4, "big") + name + _one_spelling(arguments)).digest()[:16]


def _one_spelling(arguments: object) -> bytes:
    if isinstance(arguments, msgspec.Raw):
        arguments = as_written(bytes(arguments))
    if isinstance(arguments, str):
        try:
            parsed = as_written(arguments.encode())
            if isinstance(parsed, Mapping):
                return canonical(parsed)
        except (ValueError, RecursionError):  # no JSON, half a character in it, or nested too deep: then it is a text
            pass
    return canonical(arguments)
