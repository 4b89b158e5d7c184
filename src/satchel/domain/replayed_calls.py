"""Tool calls, replayed from their events."""

from __future__ import annotations

import msgspec

from satchel.domain.bodies import CallEnd, CallFinished, CallRecorded, CallStarted, read_body
from satchel.domain.event import Event
from satchel.domain.json_text import decode
from satchel.domain.message import Draft
from satchel.domain.record import OpenCall
from satchel.domain.replayed import Replayed
from satchel.domain.tool_call import CallRow, ResultKind, hash_arguments
from satchel.errors import LimitExceeded

_ENDS: dict[str, tuple[CallEnd, ResultKind]] = {
    "succeeded/text": ("succeeded", "text"),
    "succeeded/json": ("succeeded", "json"),
    "failed/text": ("failed", "text"),
    "failed/json": ("failed", "json"),
}


class ReplayedCalls(Replayed):
    def call_started(self, event: Event) -> None:
        row = self._new_call(event, read_body(event.body, CallStarted))
        opened = self.get("open_calls")
        if len(opened) >= self.limits.open_calls:
            raise LimitExceeded(
                field="tool_history",
                size=len(opened) + 1,
                limit=self.limits.open_calls,
                setting="limits.open_calls",
                unit="open calls",
            )
        self.put_call(row)
        self.fields["open_calls"] = (
            *opened,
            OpenCall(seq=row.seq, tool_call_id=row.tool_call_id, run_id=row.run_id),
        )

    def call_recorded(self, event: Event) -> bool:
        """Whether its outcome is still to come: the tool message behind it."""
        body = read_body(event.body, CallRecorded)
        row = self._new_call(event, body)
        if body.status is not None:
            row = msgspec.structs.replace(
                row, status=body.status, end_time=event.at, result_seq=event.seq, end_body=event.body
            )
            self.count_step(event, row.run_id)
        elif body.tool_call_id is None:
            raise ValueError("has neither an outcome nor a label that a tool message could name")
        self.put_call(row)
        return body.status is None

    def _new_call(self, event: Event, body: CallStarted) -> CallRow:
        self.run_at_work(event)
        for call in self.get("open_calls"):
            if call.tool_call_id is not None and call.tool_call_id == body.tool_call_id:
                raise ValueError(f"has the label of call {call.seq}, which is open")
        arguments_hash = hash_arguments(body.tool, body.arguments)
        self.fields["tool_calls"] = self.get("tool_calls") + 1
        self.touch("tool_history", event)
        return CallRow(
            seq=event.seq,
            version=event.version,
            tool=body.tool,
            arguments_hash=arguments_hash,
            status="started",
            start_time=event.at,
            tool_call_id=body.tool_call_id,
            run_id=event.run_id,
            repeat_of=self.state.same_calls.get(arguments_hash),
            step=body.step,
            start_body=event.body,
        )

    def call_finished(self, event: Event) -> None:
        row = self._open_call(event)
        if row.run_id != event.run_id:
            raise ValueError(f"does not belong to the run of call {row.seq}")
        self._end_call(row, event, read_body(event.body, CallFinished).status, "event")

    def call_answered(self, event: Event, draft: Draft) -> None:
        """By a tool message."""
        row = self._open_call(event)
        if draft.answers is None or draft.answers != row.tool_call_id or event.status != "complete":
            raise ValueError(f"does not answer call {row.seq}")
        status, kind = _ENDS[event.outcome or ""]
        if kind == "json":
            content = decode(event.body).get("content")
            try:
                decode(content if type(content) is str else "")
            except ValueError:
                raise ValueError("has no JSON text as its content") from None
        self._end_call(row, event, status, kind)

    def _open_call(self, event: Event) -> CallRow:
        row = None if event.refers_to is None else self.state.calls.get(event.refers_to)
        if row is None or row.status != "started":
            raise ValueError(f"finishes call {event.refers_to}, which is not open")
        return row

    def _end_call(self, row: CallRow, event: Event, status: CallEnd, kind: ResultKind) -> None:
        self.put_call(
            msgspec.structs.replace(
                row,
                version=event.version,
                status=status,
                end_time=event.at,
                result_seq=event.seq,
                result_kind=kind,
                end_body=event.body,
            )
        )
        self.fields["open_calls"] = tuple(call for call in self.get("open_calls") if call.seq != row.seq)
        self.touch("tool_history", event)
        self.count_step(event, row.run_id)
