"""A session that arrives in chunks: hidden until its last, or seen all along where a former copy of it was there."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from satchel.domain.clock import DAY
from satchel.domain.decisions.decision import Decision, replay_of
from satchel.domain.decisions.housekeeping import AbandonImport
from satchel.domain.idempotency import Answer
from satchel.domain.record import SessionRecord
from satchel.domain.rights import may_see, require
from satchel.domain.state import Clock, Effect, SessionState, Unchanged, Want

ARRIVED = "arrived"
OVERTAKEN = "overtaken"


class WriteChunk(Decision[str], frozen=True, kw_only=True):
    """``chunk`` continues a session that is not whole, whose last seq is ``start`` (0: begins one). The answer is ``arrived``,
    or ``overtaken`` when the session is elsewhere by now: another call of the same import wrote this chunk.

    ``over``: the revision of a record that the first chunk of a copy may take the place of. What was seen stays so.
    """

    over: int | None = None
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
        begins = self.start == 0 if record is None else state.is_at(self.over)
        if record is not None and self.chunk.record.hidden and not record.hidden and not was_abandoned(record):
            begins = False  # nobody's session vanishes by a copy
        continues = (
            record is not None
            and (record.hidden or record.arriving)
            and not (record.streams or record.leases())  # somebody works here
            and record.status != "DELETED"
            and record.last_seq == self.start
            and may_see(self.principal, record)
        )
        if begins or continues:
            return self.chunk
        return Unchanged(answer=Answer(version=0, at=clock.now, status=OVERTAKEN))

    def view(self, state: SessionState, answer: Answer, *, replayed: bool) -> str:
        return answer.status or ARRIVED


def was_abandoned(record: SessionRecord) -> bool:
    """A tombstone that stands for no session: what an import left that was never finished. Nobody ever saw it, so the id was
    not used."""
    return record.status == "DELETED" and not (record.lifecycle and record.lifecycle[-1].to == "DELETED")


PLACED = "placed"
TAKEN = "taken"


class PlaceTombstone(Decision[str], frozen=True, kw_only=True):
    """A copy of a tombstone: its id is not used again here either. The answer is ``placed``, also when it is there already,
    or ``taken`` where a session lives. One of an abandoned import only says that its name has gone on: it takes no place that is
    not free."""

    tombstone: SessionRecord

    action: ClassVar[str] = "copy sessions"

    def decide(self, state: SessionState, clock: Clock) -> Effect | Unchanged:
        require(self.principal, "govern", self.action)
        record = state.record
        placed = Answer(version=self.tombstone.version, at=clock.now, status=PLACED)
        if record is not None and was_abandoned(self.tombstone):
            return Unchanged(answer=placed)
        if record is not None and record.status == "DELETED" and not was_abandoned(record):
            return Unchanged(answer=placed)
        if record is not None and record.status != "DELETED" and not record.hidden:
            return Unchanged(answer=Answer(version=0, at=clock.now, status=TAKEN))
        has_rows = record is not None and (record.hidden or record.erasing)
        bare = msgspec.structs.replace(self.tombstone, erasing=has_rows, sweep_at=clock.now if has_rows else None)
        return Effect(record=bare, answer=placed, working_memory=b"", metadata=b"")

    def view(self, state: SessionState, answer: Answer, *, replayed: bool) -> str:
        return answer.status


class GiveUpImport(AbandonImport, frozen=True, kw_only=True):
    """By its owner, who imports another conversation under the same name: at once, not after a day."""

    def decide(self, state: SessionState, clock: Clock) -> Effect | Unchanged:
        record = state.record
        if record is None or not may_see(self.principal, record):
            return Unchanged(answer=Answer(version=0, at=clock.now))
        due = SessionState(msgspec.structs.replace(record, sweep_at=clock.now))
        return AbandonImport.decide(self, due, clock)


class GiveUpCopy(Decision[None], frozen=True, kw_only=True):
    """What a former copy left, and nobody wrote in since, gives way to the next: its id is used again. At any other ``revision``
    nothing is done. The sweeper is to leave it a day: the copy erases its rows itself."""

    revision: int

    action: ClassVar[str] = "copy sessions"

    def decide(self, state: SessionState, clock: Clock) -> Effect | Unchanged:
        require(self.principal, "govern", self.action)
        record = state.record
        answer = Answer(version=0, at=clock.now)
        if record is None or record.status == "DELETED" or not state.is_at(self.revision):
            return Unchanged(answer=answer)
        left = msgspec.structs.replace(
            record, status="DELETED", title="", external_id=None, erasing=True, sweep_at=clock.now + DAY
        )
        return Effect(record=left, answer=answer, working_memory=b"", metadata=b"")

    def view(self, state: SessionState, answer: Answer, *, replayed: bool) -> None:
        return None
