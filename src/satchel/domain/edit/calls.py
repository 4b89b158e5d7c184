"""Tool calls of a change: one opens, and ends by a message or by an event of its own."""

from __future__ import annotations

import msgspec

from satchel.domain.edit.log import LogEdit
from satchel.domain.edit.outcomes import outcome_body, outcome_tokens, said_outcome
from satchel.domain.event import CHAT_FORMAT, CallOutcome
from satchel.domain.message import Draft
from satchel.domain.record import OpenCall
from satchel.domain.tokens import estimate_tokens
from satchel.domain.tool_call import CallRow, ResultKind, ToolCallStatus

_OUTCOMES: dict[tuple[str, str], CallOutcome] = {
    ("succeeded", "text"): "succeeded/text",
    ("succeeded", "json"): "succeeded/json",
    ("failed", "text"): "failed/text",
    ("failed", "json"): "failed/json",
}

_encode = msgspec.json.Encoder().encode


class CallEdit(LogEdit):
    """With tool calls."""

    def open_call(self, row: CallRow) -> None:
        self.calls[row.seq] = row
        self.fields["tool_calls"] = self.get("tool_calls") + 1
        self.parts["tool_history"] = self.version
        if row.status == "started":
            self.fields["open_calls"] = (
                *self.get("open_calls"),
                OpenCall(seq=row.seq, tool_call_id=row.tool_call_id, run_id=row.run_id),
            )

    def call(self, seq: int) -> CallRow:
        return self.calls[seq] if seq in self.calls else self.state.calls[seq]

    def end_call(
        self,
        row: CallRow,
        status: ToolCallStatus,
        *,
        result: bytes | None = None,
        error: bytes | None = None,
        message: tuple[int, bytes] | None = None,
        tokens: int | None = None,
    ) -> CallRow:
        """Finish an open call: by ``message`` (seq and body of a tool message already written), by a message of our own
        when an assistant's message asked for this label, else by an event of its own. ``result`` and ``error`` are JSON;
        ``tokens`` those of a message that says them, where they were counted."""
        kind: ResultKind = "event"
        if message is not None:
            end_seq, end_body = message
            kind = "text"
        elif status in ("succeeded", "failed") and self.is_asked(row.run_id, row.tool_call_id):
            end_seq, end_body, kind = self.tool_message(row, status, result, error, tokens)
        else:
            end_body = outcome_body(status, result, error)
            end_seq = self.event("tool_call_finished", end_body, run_id=row.run_id, refers_to=row.seq)
        ended = msgspec.structs.replace(
            row,
            version=self.version,
            status=status,
            end_time=self.clock.now,
            result_seq=end_seq,
            result_kind=kind,
            end_body=end_body,
        )
        self.calls[row.seq] = ended
        self.fields["open_calls"] = tuple(call for call in self.get("open_calls") if call.seq != row.seq)
        self.parts["tool_history"] = self.version
        if row.run_id is not None:
            self.count_step(row.run_id)
        return ended

    def tool_message(
        self,
        row: CallRow,
        status: ToolCallStatus,
        result: bytes | None,
        error: bytes | None,
        tokens: int | None = None,
    ) -> tuple[int, bytes, ResultKind]:
        """The result, said: one event that is both the message and the outcome."""
        assert row.tool_call_id is not None
        value = said_outcome(status, result, error)
        kind: ResultKind = "text" if value.startswith(b'"') else "json"
        content = value if kind == "text" else _encode(value.decode())
        body = b'{"role":"tool","tool_call_id":' + _encode(row.tool_call_id) + b',"content":' + content + b"}"
        draft = Draft(
            body=body,
            format=CHAT_FORMAT,
            metadata=None,
            role="tool",
            asks=(),
            answers=row.tool_call_id,
            tokens=outcome_tokens(value, estimate_tokens) if tokens is None else tokens,
            counted=tokens,
        )
        return self.message(draft, run_id=row.run_id, ends=row, outcome=_OUTCOMES[status, kind]), body, kind
