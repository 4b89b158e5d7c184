"""A run asks a human and waits; somebody answers, or the question expires."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from satchel.domain.clock import rfc3339
from satchel.domain.decisions.decision import unchanged, waits
from satchel.domain.decisions.runs import RunDecision, run_answer
from satchel.domain.edit import OPERATOR, Edit, new_lease
from satchel.domain.json_text import raw_json
from satchel.domain.limits import Limits
from satchel.domain.question import EXPIRED, AnsweredQuestion, PendingQuestion
from satchel.domain.record import Turn
from satchel.domain.rights import Right
from satchel.domain.run import LEGAL, RunError, RunRow
from satchel.domain.state import Clock, Effect, SessionState, Unchanged
from satchel.errors import (
    CancelRequested,
    IllegalTransition,
    LimitExceeded,
    OtherQuestion,
    RunFenced,
    SatchelError,
    ToolCallOpen,
)

_encode = msgspec.json.Encoder().encode


class AskQuestion(RunDecision, frozen=True, kw_only=True):
    """RUNNING becomes WAITING. The name decides: an answer under it holds, whatever is asked now.

    ``here``: the caller executes the run itself and waits in place, under the lease that it renews. Without it the run has
    no lease until somebody takes it again. The answer's seqs: the attempt, the event that asked, and the one that answered.
    """

    name: str
    question: str
    schema: bytes | None
    expires_in: int
    here: bool
    limits: Limits

    right: ClassVar[Right] = "work"
    action: ClassVar[str] = "ask questions as a run"

    @property
    def size(self) -> int:
        return len(self.question) + len(self.schema or b"")

    def decide(self, state: SessionState, clock: Clock) -> Effect | Unchanged:
        try:
            return RunDecision.decide(self, state, clock)
        except RunFenced:
            row = state.runs.get(self.run_id)
            asked = None if row is None else row.question
            if row is None or asked is None or asked.name != self.name:
                raise
            if self.attempt is None or not waits(state.existing, self.attempt):
                raise
            seqs = (row.attempt, asked.seq)
            return unchanged(state.existing, clock, seqs=seqs, ids=(row.run_id,), status=row.status)

    def effect(self, state: SessionState, clock: Clock) -> Effect | Unchanged:
        row = self.row(state)
        known = row.answer_to(self.name)
        if known is not None:
            seqs = (row.attempt, known.asked, known.answered)
            return unchanged(state.existing, clock, seqs=seqs, ids=(row.run_id,), status=row.status)
        self._check(state, row)
        edit = Edit(state, clock, self.principal.actor)
        turn: Turn | None = edit.get("turn")
        assert turn is not None  # the attempt was checked
        expires_at = clock.now + self.expires_in
        body: dict[str, object] = {"name": self.name, "question": self.question, "expires_at": rfc3339(expires_at)}
        if self.schema is not None:
            body["schema"] = msgspec.Raw(self.schema)
        seq = edit.event("question_asked", _encode(body), run_id=row.run_id)
        pending = PendingQuestion(
            name=self.name, question=self.question, schema=raw_json(self.schema), expires_at=expires_at, seq=seq
        )
        row = edit.put_run(msgspec.structs.replace(row, status="WAITING", question=pending))
        lease = new_lease(clock, turn.lease.each) if self.here and turn.lease is not None else None
        edit.fields["turn"] = msgspec.structs.replace(turn, status="WAITING", lease=lease, expires_at=expires_at)
        return edit.finish(edit.answer(ids=(row.run_id,), seqs=(row.attempt, seq), status=row.status))

    def _check(self, state: SessionState, row: RunRow) -> None:
        if row.parent_run_id is not None:
            reason = "a child run asks nothing: its parent can"
            raise IllegalTransition(run_id=row.run_id, current=row.status, wanted="WAITING", reason=reason)
        if "WAITING" not in LEGAL[row.status]:
            raise self.refuse(row, "WAITING")
        if row.cancel_requested:
            raise CancelRequested(row.run_id)
        if state.existing.children:
            reason = "its child runs are open; leave their blocks first"
            raise IllegalTransition(run_id=row.run_id, current=row.status, wanted="WAITING", reason=reason)
        if any(stream.run_id == row.run_id for stream in state.existing.streams):
            reason = "it is saying a message; leave the block of its stream first"
            raise IllegalTransition(run_id=row.run_id, current=row.status, wanted="WAITING", reason=reason)
        for call in state.existing.open_calls:  # whoever waits leaves its code: nobody would finish the call
            if call.run_id == row.run_id:
                raise ToolCallOpen(tool_call_id=call.tool_call_id, seq=call.seq)
        count = len(row.answered)
        if count >= self.limits.questions:
            raise LimitExceeded(
                field="questions",
                size=count + 1,
                limit=self.limits.questions,
                setting="limits.questions",
                unit="questions of one run",
            )


class QuestionMoved(Exception):
    """The answer was held against the schema of another question than the one that is pending now."""


class AnswerRun(RunDecision, frozen=True, kw_only=True):
    """WAITING becomes READY, and keeps its turn. ``question_seq``: the question that ``answer`` was held against, and
    ``refusal`` what its schema says; a replay comes before that."""

    answer: bytes
    name: str | None
    question_seq: int | None
    refusal: SatchelError | None

    action: ClassVar[str] = "answer runs"

    @property
    def size(self) -> int:
        return len(self.answer)

    def effect(self, state: SessionState, clock: Clock) -> Effect:
        row = self.row(state)
        pending = row.question
        if row.status != "WAITING" or pending is None:
            reason = "it waits for no answer"
            raise IllegalTransition(run_id=row.run_id, current=row.status, wanted="READY", reason=reason)
        if self.name is not None and self.name != pending.name:
            raise OtherQuestion(run_id=row.run_id, name=self.name, pending=pending.name)
        if self.question_seq != pending.seq:
            raise QuestionMoved
        if self.refusal is not None:
            raise self.refusal
        edit = Edit(state, clock, self.principal.actor)
        body = b'{"name":' + _encode(pending.name) + b',"answer":' + self.answer + b"}"
        seq = edit.event("question_answered", body, run_id=row.run_id)
        answered = (*row.answered, AnsweredQuestion(pending.name, pending.seq, seq))
        row = edit.put_run(msgspec.structs.replace(row, status="READY", question=None, answered=answered))
        turn: Turn | None = edit.get("turn")
        assert turn is not None  # a WAITING run has it
        edit.fields["turn"] = msgspec.structs.replace(turn, status="READY", expires_at=None)
        edit.is_active()  # the run kept its session from idling, and READY it does not: the operator may answer too
        return edit.finish(run_answer(edit, row))


def expire_question(state: SessionState, clock: Clock) -> Effect:
    """Nobody answered in time: the run has failed at that instant, and the first in the queue gets the turn."""
    turn = state.existing.turn
    assert turn is not None  # its question expired
    assert turn.expires_at is not None
    edit = Edit(state, clock, OPERATOR)
    row = edit.run(turn.run_id)
    assert row is not None, "open work was not loaded"
    name = "" if row.question is None else f" {row.question.name!r}"
    error = RunError(code=EXPIRED, message=f"nobody answered the question{name} before {rfc3339(turn.expires_at)}")
    # Idle time counts from the instant, not from who met it.
    edit.fields["active_at"] = max(state.existing.active_at, turn.expires_at)
    edit.end_run(row, "FAILED", stop_reason=EXPIRED, error=error)
    return edit.finish(edit.answer())
