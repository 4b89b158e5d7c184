"""A change as a whole: the lifecycle, and the effect that it comes to."""

from __future__ import annotations

import msgspec

from satchel.domain.edit.leases import lost_lease, with_entries
from satchel.domain.edit.runs import RunEdit
from satchel.domain.idempotency import Answer
from satchel.domain.record import KEPT_TRANSITIONS, SessionStatus, Transition, Turn
from satchel.domain.state import Effect
from satchel.domain.window import passing

OPERATOR = "operator"


class Edit(RunEdit):
    """Collects one change of ``state`` at ``clock`` by ``actor``; ``finish`` gives the effect."""

    def move_to(self, status: SessionStatus, *, reason: str) -> None:
        transition = Transition(at=self.clock.now, to=status, actor=self.actor, reason=reason)
        self.fields["status"] = status
        self.fields["lifecycle"] = (*self.get("lifecycle"), transition)[-KEPT_TRANSITIONS:]
        self.fields["transitions"] = self.get("transitions") + 1
        self.fields["closed_at"] = None if status == "ACTIVE" else self.clock.now
        self.touch("status")

    # -- the whole

    def finish(self, answer: Answer) -> Effect:
        self._note_the_window()
        record = self.record
        fields = self.fields
        now = self.clock.now
        fields["version"] = self.version
        fields["last_seq"] = self.seq
        fields["updated_at"] = max(now, record.updated_at)
        if self.actor != OPERATOR:
            self.is_active()
        fields["changed"] = msgspec.structs.replace(record.changed, **self.parts)
        if record.arriving:
            self._goes_on_here()
        return Effect(
            record=with_entries(msgspec.structs.replace(record, **fields)),
            answer=answer,
            events=tuple(self.events),
            runs=tuple(self.runs.values()) if self.runs else (),
            calls=tuple(self.calls.values()) if self.calls else (),
            ended_streams=tuple(self.ended_streams),
            working_memory=self.working_memory,
            metadata=self.metadata,
        )

    def _goes_on_here(self) -> None:
        """Somebody writes where a copy broke off: from now on it is a session like any other. Leases do not travel: who executed
        its run is lost, unless that very attempt turns up."""
        self.fields["arriving"] = False
        turn: Turn | None = self.get("turn")
        if turn is not None:  # another object: stores look anew at what may be claimed
            is_lost = turn.status == "RUNNING" and turn.lease is None
            lease = lost_lease(self.clock) if is_lost else turn.lease
            self.fields["turn"] = msgspec.structs.replace(turn, lease=lease)

    def _note_the_window(self) -> None:
        if self.record.policy.context_window is None:
            return
        after = self.fields.get("context_tokens")
        if after is None or self.get("status") != "ACTIVE":
            return
        passed = passing(self.record.context_tokens, after, self.record.policy)
        if passed is not None:
            said = [event.run_id for event in self.events if event.kind == "message"]
            self.event("context_threshold", passed, run_id=said[-1])

    def answer(self, *, seqs: tuple[int, ...] = (), ids: tuple[str, ...] = (), status: str = "") -> Answer:
        return Answer(version=self.version, at=self.clock.now, seqs=seqs, ids=ids, status=status)
