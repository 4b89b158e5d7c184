"""Runs of a change: one starts with its input, ends with all that is open in it, and passes the turn on."""

from __future__ import annotations

from typing import Any

import msgspec

from satchel.domain.edit.calls import CallEdit
from satchel.domain.edit.leases import new_lease
from satchel.domain.event import MessageStatus
from satchel.domain.json_text import NO_JSON
from satchel.domain.limits import WRITTEN_HERE
from satchel.domain.message import admit_message
from satchel.domain.record import Turn, Waiting
from satchel.domain.run import RunError, RunRow, RunStatus
from satchel.domain.stream import interrupt_streams
from satchel.domain.tool_call import ToolCallStatus

PARENT_ENDED = "parent_ended"  # why a child run ends that did not end by itself
_encode = msgspec.json.Encoder().encode


class RunEdit(CallEdit):
    """With runs, the turn and the queue."""

    def start_run(self, row: RunRow, *, lease: int) -> RunRow:
        """READY becomes RUNNING: the input that waited becomes the run's first message. A client that waited in place for an
        answer goes on where it was; any other attempt begins anew."""
        turn: Turn | None = self.get("turn")
        goes_on = row.attempt > 0 and turn is not None and turn.run_id == row.run_id and turn.lease is not None
        if not goes_on:  # the engine begins at its start: what an earlier attempt wrote would be written twice
            row = msgspec.structs.replace(row, layer=NO_JSON, layer_base={})
        seq = row.input_seq if row.input_seq is not None else self.say_input(row, status="complete")
        row = self.put_run(
            msgspec.structs.replace(
                row,
                status="RUNNING",
                attempt=row.attempt + 1,
                start_time=self.clock.now if row.start_time is None else row.start_time,
                input_seq=seq,
            )
        )
        body: dict[str, Any] = {"attempt": row.attempt}
        if goes_on:
            body["goes_on"] = True
        self.event("run_started", _encode(body), run_id=row.run_id)
        self.fields["turn"] = Turn(
            run_id=row.run_id,
            status="RUNNING",
            attempt=row.attempt,
            agent=row.agent,
            lease=new_lease(self.clock, lease),
            has_layer=row.memory == "run",
        )
        return row

    def say_input(self, row: RunRow, *, status: MessageStatus) -> int | None:
        """The input that waited becomes a message; None when the run has none."""
        body = bytes(row.input)
        if not body:
            return None
        # Whatever its role: an assistant's message may ask for tools, a tool's may answer.
        draft = admit_message(body, format=row.input_format, limits=WRITTEN_HERE)
        draft = msgspec.structs.replace(draft, metadata=bytes(row.input_metadata) or None)
        if row.input_weight is not None:
            draft = msgspec.structs.replace(draft, tokens=row.input_weight, counted=row.input_weight)
        return self.message(draft, run_id=row.run_id, status=status, actor=row.input_actor or None)

    def end_run(
        self,
        row: RunRow,
        status: RunStatus,
        *,
        stop_reason: str,
        error: RunError | None = None,
        calls: ToolCallStatus = "unknown",
    ) -> RunRow:
        """A run ends, with what it was saying, its open child runs and calls; if it had the turn, the first in the queue gets
        it in the same commit."""
        turn: Turn | None = self.get("turn")
        if turn is not None and turn.run_id == row.run_id:
            self.end_children(calls=calls)
        interrupt_streams(self, row.run_id)
        for open_call in self.get("open_calls"):
            if open_call.run_id == row.run_id:
                self.end_call(self.call(open_call.seq), calls)
        row = self.run(row.run_id) or row
        seq = row.input_seq if row.input_seq is not None else self.say_input(row, status="unanswered")
        row = self.put_run(
            msgspec.structs.replace(
                row,
                status=status,
                end_time=self.clock.now,
                stop_reason=stop_reason,
                error=error,
                input_seq=seq,
                question=None,
            )
        )
        body: dict[str, Any] = {"status": status, "stop_reason": stop_reason, "steps": row.steps}
        if row.usage.total_tokens:
            body["usage"] = row.usage
        if error is not None:
            body["error"] = error
        if bytes(row.not_merged):
            body["not_merged"] = row.not_merged
        self.event("run_ended", _encode(body), run_id=row.run_id)
        self.fields["usage"] = self.get("usage").plus(row.usage)
        self.is_active()
        if turn is not None and turn.run_id == row.run_id:
            self.pass_turn()
        elif row.parent_run_id is not None:
            self.fields["children"] = tuple(child for child in self.get("children") if child.run_id != row.run_id)
        else:
            self.fields["queue"] = tuple(waiting for waiting in self.get("queue") if waiting.run_id != row.run_id)
        return row

    def end_children(
        self,
        *,
        status: RunStatus = "CANCELLED",
        stop_reason: str = PARENT_ENDED,
        error: RunError | None = None,
        calls: ToolCallStatus = "unknown",
    ) -> None:
        """The open child runs end, because the attempt of their parent does."""
        for child in self.get("children"):
            row = self.run(child.run_id)
            assert row is not None, "open work was not loaded"
            self.end_run(row, status, stop_reason=stop_reason, error=error, calls=calls)

    def pass_turn(self) -> None:
        queue = self.get("queue")
        first: Waiting | None = queue[0] if queue else None
        self.fields["turn"] = (
            None if first is None else Turn(run_id=first.run_id, status="READY", agent=first.agent, lease=first.lease)
        )
        self.fields["queue"] = queue[1:]

    def end_open_work(self, stop_reason: str) -> None:
        """What is open when a session leaves ACTIVE: runs end as CANCELLED, the queue first, then child runs before their
        parent, and calls as unknown."""
        for waiting in self.get("queue"):
            self._end_known_run(waiting.run_id, stop_reason)
        self.end_children(stop_reason=stop_reason)
        turn: Turn | None = self.get("turn")
        if turn is not None:
            self._end_known_run(turn.run_id, stop_reason)
        for open_call in self.get("open_calls"):
            self.end_call(self.call(open_call.seq), "unknown")

    def _end_known_run(self, run_id: str, stop_reason: str) -> None:
        row = self.run(run_id)
        assert row is not None, "open work was not loaded"
        self.end_run(row, "CANCELLED", stop_reason=stop_reason)
