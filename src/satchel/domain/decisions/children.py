"""Child runs: parts of a run that are told and counted apart, under its attempt and lease."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from satchel.domain.decisions.runs import RunDecision, run_answer
from satchel.domain.edit import Edit
from satchel.domain.json_text import raw_json
from satchel.domain.limits import Limits
from satchel.domain.record import OpenChild
from satchel.domain.rights import Right
from satchel.domain.run import RunRow
from satchel.domain.state import Clock, Effect, SessionState
from satchel.errors import LimitExceeded, RunNested

_encode = msgspec.json.Encoder().encode


class AddChildRun(RunDecision, frozen=True, kw_only=True):
    """``attempt`` is the parent's, which has the turn. The child is RUNNING at once, as its own first attempt."""

    goal: str
    agent: str
    limits: Limits
    metadata: bytes | None = None

    right: ClassVar[Right] = "work"
    action: ClassVar[str] = "add child runs"

    def effect(self, state: SessionState, clock: Clock) -> Effect:
        record = state.existing
        turn = record.turn
        assert turn is not None  # the attempt was checked
        assert self.attempt is not None  # a child has a parent
        if turn.run_id != self.attempt.run_id:
            raise RunNested(self.attempt.run_id)
        count = len(record.children) + 1
        if count > self.limits.open_children:
            raise LimitExceeded(
                field="runs",
                size=count,
                limit=self.limits.open_children,
                setting="limits.open_children",
                unit="open child runs",
            )
        edit = Edit(state, clock, self.principal.actor)
        number = record.run_number + 1
        edit.fields["run_number"] = number
        edit.fields["runs"] = record.runs + 1
        edit.fields["child_runs"] = record.child_runs + 1
        edit.fields["children"] = (*record.children, OpenChild(run_id=self.run_id))
        body: dict[str, object] = {"number": number, "goal": self.goal, "parent_run_id": turn.run_id}
        if self.agent:
            body["agent"] = self.agent
        if self.metadata is not None:
            body["metadata"] = msgspec.Raw(self.metadata)
        seq = edit.event("run_added", _encode(body), run_id=self.run_id)
        row = RunRow(
            run_id=self.run_id,
            number=number,
            status="RUNNING",
            created_at=clock.now,
            version=0,
            goal=self.goal,
            agent=self.agent,
            start_time=clock.now,
            attempt=1,
            parent_run_id=turn.run_id,
            added_seq=seq,
            metadata=raw_json(self.metadata),
        )
        return edit.finish(run_answer(edit, edit.put_run(row)))
