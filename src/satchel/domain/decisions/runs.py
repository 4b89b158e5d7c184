"""The turn, the queue, and what happens to a run between them."""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec

from satchel.domain.decisions.decision import Decision, unchanged
from satchel.domain.decisions.messages import check_message_right
from satchel.domain.edit import Edit, new_lease, with_entries
from satchel.domain.event import CHAT_FORMAT
from satchel.domain.idempotency import Answer
from satchel.domain.json_text import NO_JSON, raw_json
from satchel.domain.layer import merge_layer
from satchel.domain.limits import Limits
from satchel.domain.message import Draft
from satchel.domain.record import OpenChild, SessionRecord, Turn, Waiting
from satchel.domain.rights import Right, require
from satchel.domain.run import LEGAL, TERMINAL, MemoryOf, OnBusy, Run, RunError, RunRow, RunStatus, Usage
from satchel.domain.state import Clock, Effect, SessionState, Unchanged, Want
from satchel.domain.stream import interrupt_streams
from satchel.domain.tool_call import ToolCallStatus
from satchel.errors import IllegalTransition, QueueFull, RunActive, RunFenced, RunNotFound

_encode = msgspec.json.Encoder().encode


class RunDecision(Decision[Run], frozen=True, kw_only=True):
    run_id: str

    def want(self) -> Want:
        return Want(keys=() if self.key is None else (self.key,), run_ids=(self.run_id,))

    def row(self, state: SessionState) -> RunRow:
        row = state.runs.get(self.run_id)
        if row is None:
            raise RunNotFound(self.run_id)
        return row

    def view(self, state: SessionState, answer: Answer, *, replayed: bool) -> Run:
        row = as_first_answered(self.row(state), answer)
        return Run.from_row(row, session_id=self.ref.session_id, version=answer.version, replayed=replayed)

    def refuse(self, row: RunRow, wanted: RunStatus) -> IllegalTransition:
        return IllegalTransition(run_id=row.run_id, current=row.status, wanted=wanted)


def run_answer(edit: Edit, row: RunRow) -> Answer:
    """The attempt is part of it: a repeated claim must not be given the attempt of whoever claimed the run after it."""
    return edit.answer(ids=(row.run_id,), seqs=(row.attempt,), status=row.status)


def as_first_answered(row: RunRow, answer: Answer) -> RunRow:
    """The run as the first answer gave it: under its status and attempt, without an end that came later."""
    changes: dict[str, Any] = {"attempt": answer.seqs[0] if answer.seqs else row.attempt}
    if row.status != answer.status:
        changes |= {"status": answer.status, "end_time": None, "stop_reason": None, "error": None}
    if row.question is not None and (row.status != answer.status or row.question.seq not in answer.seqs[1:]):
        changes["question"] = None
    return msgspec.structs.replace(row, **changes)


class AddRun(RunDecision, frozen=True, kw_only=True):
    """A run and its input in one commit. ``start``: the caller works itself, and starts at once if the turn is free."""

    goal: str
    agent: str
    limits: Limits
    on_busy: OnBusy = "reject"
    input: Draft | None = None
    metadata: bytes | None = None
    max_attempts: int = 1
    start: bool = False
    lease: int = 0
    memory: MemoryOf = "session"

    action: ClassVar[str] = "add runs"

    @property
    def size(self) -> int:
        return 0 if self.input is None else len(self.input.body)

    def want(self) -> Want:
        want = RunDecision.want(self)
        return msgspec.structs.replace(want, open_work=True) if self.on_busy == "cancel" else want

    def check_role(self, state: SessionState) -> None:
        require(self.principal, "use", self.action)
        if self.input is not None:
            check_message_right(self.principal, self.input.role)
        if self.start:
            require(self.principal, "work", "start runs; add_run adds one for an agent to execute")

    def effect(self, state: SessionState, clock: Clock) -> Effect | Unchanged:
        record = state.existing
        there = state.runs.get(self.run_id)
        if there is not None:  # its id is made of the key, and came over in a copy, as keys do not
            answer = Answer(
                version=record.version, at=clock.now, ids=(there.run_id,), seqs=(there.attempt,), status=there.status
            )
            return Unchanged(answer=answer, replayed=True)
        edit = Edit(state, clock, self.principal.actor)
        number = record.run_number + 1
        edit.fields["run_number"] = number
        edit.fields["runs"] = record.runs + 1
        row = edit.put_run(self._new_row(number, clock))
        body: dict[str, object] = {"number": number, "goal": self.goal}
        if self.agent:
            body["agent"] = self.agent
        if self.max_attempts != 1:
            body["max_attempts"] = self.max_attempts
        if self.memory != "session":
            body["memory"] = self.memory
        if self.metadata is not None:
            body["metadata"] = msgspec.Raw(self.metadata)
        if record.turn is not None and self.on_busy == "cancel":
            body["goes_next"] = True  # ahead of the queue
        edit.event("run_added", _encode(body), run_id=self.run_id)
        if record.turn is None:
            edit.fields["turn"] = Turn(run_id=self.run_id, status="READY", agent=self.agent)
            if self.start:
                row = edit.start_run(row, lease=self.lease)
        else:
            self._wait(edit, record.turn)
        return edit.finish(run_answer(edit, row))

    def check_turn(self, record: SessionRecord) -> None:
        if record.turn is not None:
            self._check_admission(record, record.turn)

    def _check_admission(self, record: SessionRecord, turn: Turn) -> None:
        if self.on_busy == "reject":
            raise RunActive(turn.run_id)
        limits = self.limits
        if len(record.queue) >= limits.queued_runs:
            raise QueueFull(
                size=len(record.queue) + 1, limit=limits.queued_runs, setting="limits.queued_runs", unit="runs"
            )
        size = self.size + sum(waiting.size for waiting in record.queue)
        if size > limits.queued_input:
            raise QueueFull(size=size, limit=limits.queued_input, setting="limits.queued_input", unit="bytes")

    def _wait(self, edit: Edit, turn: Turn) -> None:
        lease = new_lease(edit.clock, self.lease) if self.start else None
        waiting = Waiting(run_id=self.run_id, agent=self.agent, size=self.size, lease=lease)
        if self.on_busy == "queue":
            edit.fields["queue"] = (*edit.record.queue, waiting)
            return
        edit.fields["queue"] = (waiting, *edit.record.queue)  # cancel: ahead of the queue
        holder = edit.run(turn.run_id)
        assert holder is not None, "open work was not loaded"
        stop(edit, holder, stop_reason="replaced")

    def _new_row(self, number: int, clock: Clock) -> RunRow:
        message = self.input
        return RunRow(
            run_id=self.run_id,
            number=number,
            status="READY",
            created_at=clock.now,
            version=0,
            goal=self.goal,
            agent=self.agent,
            max_attempts=self.max_attempts,
            memory=self.memory,
            metadata=raw_json(self.metadata),
            input=NO_JSON if message is None else raw_json(message.body),
            input_format=None if message is None or message.format == CHAT_FORMAT else message.format,
            input_actor="" if message is None else self.principal.actor,
            input_weight=None if message is None else message.counted,
            input_metadata=NO_JSON if message is None else raw_json(message.metadata),
        )


def stop(edit: Edit, row: RunRow, *, stop_reason: str) -> RunRow:
    """A RUNNING run is asked to stop; any other that is not over ends at once."""
    if row.status != "RUNNING":
        return edit.end_run(row, "CANCELLED", stop_reason=stop_reason, calls="cancelled")
    if row.cancel_requested:
        return row
    row = edit.put_run(msgspec.structs.replace(row, cancel_requested=True))
    edit.event("run_cancel_requested", _encode({"reason": stop_reason}), run_id=row.run_id)
    turn: Turn | None = edit.get("turn")
    if turn is not None and turn.run_id == row.run_id:
        edit.fields["turn"] = msgspec.structs.replace(turn, cancel_requested=True)
    else:
        edit.fields["children"] = asked_to_stop(edit.get("children"), row.run_id)
    return row


def asked_to_stop(children: tuple[OpenChild, ...], run_id: str) -> tuple[OpenChild, ...]:
    return tuple(
        msgspec.structs.replace(child, cancel_requested=True) if child.run_id == run_id else child for child in children
    )


class StartRun(RunDecision, frozen=True, kw_only=True):
    """A claim: the run that has the turn and is READY becomes RUNNING under a lease."""

    lease: int

    right: ClassVar[Right] = "work"
    action: ClassVar[str] = "start runs"

    def effect(self, state: SessionState, clock: Clock) -> Effect:
        row = self.row(state)
        if "RUNNING" not in LEGAL[row.status]:
            raise self.refuse(row, "RUNNING")
        turn = state.existing.turn
        if turn is None or turn.run_id != row.run_id:
            raise RunActive(turn.run_id if turn is not None else row.run_id)
        edit = Edit(state, clock, self.principal.actor)
        row = edit.start_run(row, lease=self.lease)
        return edit.finish(run_answer(edit, row))


class RenewRun(Decision[bool], frozen=True, kw_only=True):
    """Moves the lease on; no version, no event. Answers whether the run was asked to stop."""

    right: ClassVar[Right] = "work"
    action: ClassVar[str] = "renew a run's lease"

    def effect(self, state: SessionState, clock: Clock) -> Effect:
        record = state.existing
        turn = record.turn
        assert turn is not None  # the attempt was checked
        assert self.attempt is not None  # a renewal has one
        if turn.run_id != self.attempt.run_id:
            raise RunFenced(
                run_id=self.attempt.run_id,
                attempt=self.attempt.attempt,
                reason="a child run lives under its parent's lease and has none of its own",
            )
        assert turn.lease is not None  # a RUNNING run has one
        renewed = msgspec.structs.replace(turn, lease=new_lease(clock, turn.lease.each))
        return renewal(record, clock, turn=renewed)

    def view(self, state: SessionState, answer: Answer, *, replayed: bool) -> bool:
        turn = state.existing.turn
        return turn is not None and turn.cancel_requested


class RenewWaiting(RunDecision, frozen=True, kw_only=True):
    """The client that waits for this run's turn, or for the answer to its question, lives; no version, no event. A run that
    is not waiting is left alone."""

    right: ClassVar[Right] = "work"
    action: ClassVar[str] = "renew a run's lease"

    def effect(self, state: SessionState, clock: Clock) -> Effect | Unchanged:
        record = state.existing
        turn = record.turn
        if turn is not None and turn.run_id == self.run_id and turn.status != "RUNNING" and turn.lease is not None:
            renewed = msgspec.structs.replace(turn, lease=new_lease(clock, turn.lease.each))
            return renewal(record, clock, turn=renewed)
        queue = tuple([self._renewed(waiting, clock) for waiting in record.queue])
        if queue == record.queue:
            return unchanged(record, clock, ids=(self.run_id,), status=self.row(state).status)
        return renewal(record, clock, queue=queue)

    def _renewed(self, waiting: Waiting, clock: Clock) -> Waiting:
        if waiting.run_id != self.run_id or waiting.lease is None:
            return waiting
        return msgspec.structs.replace(waiting, lease=new_lease(clock, waiting.lease.each))

    def view(self, state: SessionState, answer: Answer, *, replayed: bool) -> Run:
        return Run.from_row(self.row(state), session_id=self.ref.session_id)


def renewal(record: SessionRecord, clock: Clock, **fields: Any) -> Effect:
    """The record with another lease, and nothing else."""
    renewed = with_entries(msgspec.structs.replace(record, **fields))
    return Effect(record=renewed, answer=Answer(version=record.version, at=clock.now))


class AddStep(RunDecision, frozen=True, kw_only=True):
    """One model call inside a run: ``body`` is its JSON; its tokens are added to the run's."""

    body: bytes
    usage: Usage

    right: ClassVar[Right] = "work"
    action: ClassVar[str] = "write run steps"

    def effect(self, state: SessionState, clock: Clock) -> Effect:
        row = self.row(state)
        edit = Edit(state, clock, self.principal.actor)
        edit.put_run(msgspec.structs.replace(row, usage=row.usage.plus(self.usage)))
        edit.count_step(row.run_id)
        edit.event("run_step", self.body, run_id=row.run_id)
        return edit.finish(run_answer(edit, row))


class EndRun(RunDecision, frozen=True, kw_only=True):
    """By the attempt that holds it: COMPLETED, FAILED or CANCELLED. The first terminal commit wins."""

    status: RunStatus
    stop_reason: str
    error: RunError | None = None
    limits: Limits

    right: ClassVar[Right] = "work"
    action: ClassVar[str] = "end runs"

    def want(self) -> Want:
        return msgspec.structs.replace(RunDecision.want(self), open_work=True, layer=self.status == "COMPLETED")

    def effect(self, state: SessionState, clock: Clock) -> Effect:
        row = self.row(state)
        if self.status not in TERMINAL or self.status not in LEGAL[row.status]:
            raise self.refuse(row, self.status)
        edit = Edit(state, clock, self.principal.actor)
        calls: ToolCallStatus = "cancelled" if self.status == "CANCELLED" else "unknown"
        if self.status == "COMPLETED":
            row = merge_layer(edit, row, limits=self.limits)
        row = edit.end_run(row, self.status, stop_reason=self.stop_reason, error=self.error, calls=calls)
        return edit.finish(run_answer(edit, row))


def let_go(edit: Edit, row: RunRow, *, reason: str, message: str) -> RunRow:
    """Nobody executes this RUNNING run any more, and what its open calls did is unknown: READY again if attempts are left,
    else it ends as worker_lost with ``message``."""
    if row.cancel_requested:
        return edit.end_run(row, "CANCELLED", stop_reason="cancelled", calls="unknown")
    is_last = not row.has_attempts_left
    error = RunError(code="worker_lost", message=message)
    if is_last or reason == "worker_lost":  # whoever executed the run executed its child runs
        edit.end_children(status="FAILED", stop_reason="worker_lost", error=error)
    else:
        edit.end_children()
    if is_last:
        return edit.end_run(row, "FAILED", stop_reason="worker_lost", error=error, calls="unknown")
    interrupt_streams(edit, row.run_id)
    for call in edit.get("open_calls"):
        if call.run_id == row.run_id:
            edit.end_call(edit.call(call.seq), "unknown")
    row = edit.put_run(msgspec.structs.replace(edit.run(row.run_id) or row, status="READY"))
    edit.event("run_returned", _encode({"attempt": row.attempt, "reason": reason}), run_id=row.run_id)
    turn: Turn | None = edit.get("turn")
    assert turn is not None  # it is this run's
    edit.fields["turn"] = msgspec.structs.replace(turn, status="READY", lease=None)
    edit.is_active()
    return row


class HandBackRun(RunDecision, frozen=True, kw_only=True):
    """By the attempt that holds it, whose worker is about to stop. The run keeps the turn if it becomes READY again."""

    right: ClassVar[Right] = "work"
    action: ClassVar[str] = "hand runs back"

    def want(self) -> Want:
        return msgspec.structs.replace(RunDecision.want(self), open_work=True)

    def effect(self, state: SessionState, clock: Clock) -> Effect:
        row = self.row(state)
        if row.parent_run_id is not None:
            raise self.refuse(row, "READY")
        edit = Edit(state, clock, self.principal.actor)
        row = let_go(edit, row, reason="handed_back", message="the worker that executed this run was stopped")
        return edit.finish(run_answer(edit, row))


class CancelRun(RunDecision, frozen=True, kw_only=True):
    """Ends a run that waits; asks a RUNNING one to stop."""

    reason: str = "cancelled"

    action: ClassVar[str] = "cancel runs"

    def want(self) -> Want:
        return msgspec.structs.replace(RunDecision.want(self), open_work=True)

    def effect(self, state: SessionState, clock: Clock) -> Effect | Unchanged:
        row = self.row(state)
        if row.status in ("COMPLETED", "FAILED"):
            raise self.refuse(row, "CANCELLED")
        if row.status == "CANCELLED" or row.cancel_requested:
            return unchanged(state.existing, clock, seqs=(row.attempt,), ids=(row.run_id,), status=row.status)
        edit = Edit(state, clock, self.principal.actor)
        row = stop(edit, row, stop_reason=self.reason)
        return edit.finish(run_answer(edit, row))
