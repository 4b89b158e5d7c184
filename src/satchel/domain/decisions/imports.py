"""A session that arrives in chunks, hidden until its last."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from satchel.domain.decisions.decision import Decision, replay_of
from satchel.domain.decisions.housekeeping import AbandonImport
from satchel.domain.idempotency import Answer
from satchel.domain.rights import may_see, require
from satchel.domain.state import Clock, Effect, SessionState, Unchanged, Want

ARRIVED = "arrived"
OVERTAKEN = "overtaken"


class WriteChunk(Decision[str], frozen=True, kw_only=True):
    """``effect_of`` continues a hidden session whose last seq is ``start`` (0: begins one). The answer is ``arrived``, or
    ``overtaken`` when the session is elsewhere by now: another call of the same import wrote this chunk."""

    start: int
    chunk: Effect
    bytes_written: int

    action: ClassVar[str] = "import sessions"

    @property
    def size(self) -> int:
        return self.bytes_written

    def want(self) -> Want:
        return Want(keys=() if self.key is None else (self.key,))

    def decide(self, state: SessionState, clock: Clock) -> Effect | Unchanged:
        require(self.principal, self.right, self.action)
        replay = replay_of(state.keys, self.key, self.fingerprint)
        if replay is not None:  # this very chunk: its outcome had been unknown
            return replay
        record = state.record
        begins = record is None and self.start == 0
        continues = (
            record is not None
            and record.hidden
            and record.status != "DELETED"
            and record.last_seq == self.start
            and may_see(self.principal, record)
        )
        if begins or continues:
            return self.chunk
        return Unchanged(answer=Answer(version=0, at=clock.now, status=OVERTAKEN))

    def view(self, state: SessionState, answer: Answer, *, replayed: bool) -> str:
        return answer.status or ARRIVED


class GiveUpImport(AbandonImport, frozen=True, kw_only=True):
    """By its owner, who imports another conversation under the same name: at once, not after a day."""

    def decide(self, state: SessionState, clock: Clock) -> Effect | Unchanged:
        record = state.record
        if record is None or not may_see(self.principal, record):
            return Unchanged(answer=Answer(version=0, at=clock.now))
        due = SessionState(msgspec.structs.replace(record, sweep_at=clock.now))
        return AbandonImport.decide(self, due, clock)
