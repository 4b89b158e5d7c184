"""What was executed: written twice (started, finished), or in one stroke."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from satchel.domain.decisions.decision import Decision, unchanged
from satchel.domain.decisions.messages import check_call_holder
from satchel.domain.edit import Edit, outcome_body
from satchel.domain.idempotency import Answer
from satchel.domain.limits import Limits
from satchel.domain.rights import Right
from satchel.domain.state import Clock, Effect, SessionState, Unchanged, Want
from satchel.domain.tool_call import CallRow, ToolCall, ToolCallStatus
from satchel.errors import LimitExceeded, StepOpen, ToolCallEnded, ToolCallNotFound, ToolCallOpen

_encode = msgspec.json.Encoder().encode


class CallDecision(Decision[ToolCall], frozen=True, kw_only=True):
    right: ClassVar[Right] = "work"
    action: ClassVar[str] = "write tool history"

    @property
    def run_id(self) -> str | None:
        return None if self.attempt is None else self.attempt.run_id

    def view(self, state: SessionState, answer: Answer, *, replayed: bool) -> ToolCall:
        row = state.calls.get(answer.seqs[0])
        if row is None:
            raise ToolCallNotFound(answer.seqs[0])
        return ToolCall.from_row(row, version=answer.version, replayed=replayed)


class BeginsCall(CallDecision, frozen=True, kw_only=True):
    """``arguments`` is JSON; ``repeat_of`` is found among the calls of equal ``arguments_hash``."""

    tool: str
    arguments: bytes
    arguments_hash: bytes
    tool_call_id: str | None
    limits: Limits
    step: str | None = None

    @property
    def size(self) -> int:
        return len(self.arguments)

    def want(self) -> Want:
        return Want(
            keys=() if self.key is None else (self.key,),
            arguments_hashes=(self.arguments_hash,),
            steps=() if self.step is None or self.run_id is None else ((self.run_id, self.step),),
            run_ids=() if self.attempt is None else (self.attempt.run_id,),
        )

    def check_label(self, edit: Edit) -> None:
        if self.tool_call_id is None:
            return
        for call in edit.record.open_calls:
            if call.tool_call_id == self.tool_call_id:
                raise ToolCallOpen(tool_call_id=self.tool_call_id, seq=call.seq)

    def step_call(self, state: SessionState) -> CallRow | None:
        """The newest call of this step in this run."""
        return None if self.step is None or self.run_id is None else state.steps.get((self.run_id, self.step))

    def step_outcome(self, state: SessionState, clock: Clock) -> Unchanged | None:
        """What the step came to before: then it is not made again. Raises StepOpen."""
        row = self.step_call(state)
        if row is None or self.step is None or row.status in ("cancelled", "unknown"):
            return None
        if row.status == "started":
            raise StepOpen(step=self.step, seq=row.seq)
        return unchanged(state.existing, clock, seqs=(row.seq,), ids=(self.step,), status=row.status)

    def start_body(self) -> bytes:
        label = b"" if self.tool_call_id is None else b',"tool_call_id":' + _encode(self.tool_call_id)
        label += b"" if self.step is None else b',"step":' + _encode(self.step)
        return b'{"tool":' + _encode(self.tool) + label + b',"arguments":' + self.arguments + b"}"

    def row(self, edit: Edit, seq: int, body: bytes, status: ToolCallStatus) -> CallRow:
        return CallRow(
            seq=seq,
            version=edit.version,
            tool=self.tool,
            arguments_hash=self.arguments_hash,
            status=status,
            start_time=edit.clock.now,
            tool_call_id=self.tool_call_id,
            run_id=self.run_id,
            repeat_of=edit.state.same_calls.get(self.arguments_hash),
            step=self.step,
            start_body=body,
        )

    def answered(self, edit: Edit, row: CallRow) -> Answer:
        repeated = () if row.repeat_of is None else (row.repeat_of,)
        return edit.answer(seqs=(row.seq, *repeated), status=row.status)

    def outcome(self) -> bytes | None:
        return None

    def view(self, state: SessionState, answer: Answer, *, replayed: bool) -> ToolCall:
        """From the request and the answer alone, so that a replay needs no row; the outcome of a step from its row."""
        if answer.ids:
            known = self.step_call(state)
            if known is None:
                raise ToolCallNotFound(answer.seqs[0])
            return ToolCall.from_row(known, replayed=True)
        end_body = self.outcome()
        row = CallRow(
            seq=answer.seqs[0],
            version=answer.version,
            tool=self.tool,
            arguments_hash=self.arguments_hash,
            status="started" if end_body is None else ended_status(answer.status),
            start_time=answer.at,
            end_time=None if end_body is None else answer.at,
            tool_call_id=self.tool_call_id,
            run_id=self.run_id,
            repeat_of=answer.seqs[1] if len(answer.seqs) > 1 else None,
            step=self.step,
            start_body=self.start_body(),
            end_body=end_body,
        )
        return ToolCall.from_row(row, replayed=replayed)


def ended_status(status: str) -> ToolCallStatus:
    return "succeeded" if status == "succeeded" else "cancelled" if status == "cancelled" else "failed"


class StartToolCall(BeginsCall, frozen=True, kw_only=True):
    """Before the tool runs."""

    def effect(self, state: SessionState, clock: Clock) -> Effect | Unchanged:
        if (outcome := self.step_outcome(state, clock)) is not None:
            return outcome
        edit = Edit(state, clock, self.principal.actor)
        self.check_label(edit)
        count = len(state.existing.open_calls)
        if count >= self.limits.open_calls:
            raise LimitExceeded(
                field="tool_history",
                size=count + 1,
                limit=self.limits.open_calls,
                setting="limits.open_calls",
                unit="open calls",
            )
        body = self.start_body()
        seq = edit.event("tool_call_started", body, run_id=self.run_id)
        row = self.row(edit, seq, body, "started")
        edit.open_call(row)
        return edit.finish(self.answered(edit, row))


class RecordToolCall(BeginsCall, frozen=True, kw_only=True):
    """In one stroke, when the caller has both the call and its outcome."""

    status: ToolCallStatus
    result: bytes | None = None
    error: bytes | None = None
    tokens: int | None = None  # of a message that says the outcome

    @property
    def size(self) -> int:
        return len(self.arguments) + len(self.result or b"") + len(self.error or b"")

    def want(self) -> Want:
        want = BeginsCall.want(self)
        return msgspec.structs.replace(want, open_work=True) if self.tool_call_id is not None else want

    def effect(self, state: SessionState, clock: Clock) -> Effect | Unchanged:
        if (outcome := self.step_outcome(state, clock)) is not None:
            return outcome
        edit = Edit(state, clock, self.principal.actor)
        self.check_label(edit)
        said = self.status in ("succeeded", "failed") and edit.is_asked(self.run_id, self.tool_call_id)
        body = self.start_body()
        if not said:  # one body holds both
            body = body[:-1] + b"," + self.outcome()[1:]
        elif self.result is not None and self.error is not None:  # a message says one of the two
            name, value = (b"result", self.result) if self.status == "failed" else (b"error", self.error)
            body = body[:-1] + b',"' + name + b'":' + value + b"}"
        seq = edit.event("tool_call_recorded", body, run_id=self.run_id)
        row = self.row(edit, seq, body, self.status)
        if said:  # the result is a message, and stands there alone
            end_seq, end_body, kind = edit.tool_message(row, self.status, self.result, self.error, self.tokens)
        else:
            end_seq, end_body, kind = seq, body, "event"
        row = msgspec.structs.replace(row, end_time=clock.now, result_seq=end_seq, result_kind=kind, end_body=end_body)
        edit.open_call(row)
        if row.run_id is not None:
            edit.count_step(row.run_id)
        return edit.finish(self.answered(edit, row))

    def outcome(self) -> bytes:
        return outcome_body(self.status, self.result, self.error)


class FinishToolCall(CallDecision, frozen=True, kw_only=True):
    """After the tool ran. The call is named by its seq."""

    seq: int
    status: ToolCallStatus
    result: bytes | None = None
    error: bytes | None = None
    tokens: int | None = None  # of a message that says the outcome

    @property
    def size(self) -> int:
        return len(self.result or b"") + len(self.error or b"")

    def want(self) -> Want:
        return Want(
            keys=() if self.key is None else (self.key,),
            call_seqs=(self.seq,),
            run_ids=() if self.attempt is None else (self.attempt.run_id,),
        )

    def effect(self, state: SessionState, clock: Clock) -> Effect:
        row = state.calls.get(self.seq)
        if row is None:
            raise ToolCallNotFound(self.seq)
        if row.status != "started":
            raise ToolCallEnded(seq=self.seq, status=row.status)
        check_call_holder(row, self.attempt)
        edit = Edit(state, clock, self.principal.actor)
        edit.end_call(row, self.status, result=self.result, error=self.error, tokens=self.tokens)
        return edit.finish(edit.answer(seqs=(self.seq,), status=self.status))
