"""What no caller asks for by its effect: settling what is overdue, the sweeper's marks, the end of an erasure."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from satchel.domain.decisions.decision import Decision, unchanged
from satchel.domain.idempotency import Answer
from satchel.domain.record import SessionRecord
from satchel.domain.state import Clock, Effect, SessionState, Unchanged, Want
from satchel.domain.upkeep import move_sweep_on


class Settle(Decision[None], frozen=True, kw_only=True):
    """A reader met the session overdue. The committer settles before every decision: nothing is left to do here."""

    needs_active: ClassVar[bool] = False

    def effect(self, state: SessionState, clock: Clock) -> Effect | Unchanged:
        return unchanged(state.existing, clock)

    def on_deleted(self, record: SessionRecord, clock: Clock) -> Unchanged:
        return unchanged(record, clock)

    def view(self, state: SessionState, answer: Answer, *, replayed: bool) -> None:
        return None


class KnownKey(Decision[bool], frozen=True, kw_only=True):
    """Whether a request under ``asked_key`` was answered in this session: limits are not for who only asks again."""

    asked_key: bytes

    needs_active: ClassVar[bool] = False

    def want(self) -> Want:
        return Want(keys=(self.asked_key,))

    def effect(self, state: SessionState, clock: Clock) -> Effect | Unchanged:
        return unchanged(state.existing, clock)

    def on_deleted(self, record: SessionRecord, clock: Clock) -> Unchanged:
        return unchanged(record, clock)

    def view(self, state: SessionState, answer: Answer, *, replayed: bool) -> bool:
        return self.asked_key in state.keys


class Sweep(Settle, frozen=True, kw_only=True):
    """The sweeper's visit: what was not due is entered for later."""

    def effect(self, state: SessionState, clock: Clock) -> Effect | Unchanged:
        return move_sweep_on(state.existing, clock) or unchanged(state.existing, clock)


class AbandonImport(Decision[None], frozen=True, kw_only=True):
    """What an unfinished import left for a day becomes a tombstone."""

    def decide(self, state: SessionState, clock: Clock) -> Effect | Unchanged:
        record = state.record
        if record is None or not record.hidden or record.sweep_at is None or record.sweep_at > clock.now:
            return Unchanged(answer=Answer(version=0, at=clock.now))
        left = msgspec.structs.replace(
            record, hidden=False, status="DELETED", title="", external_id=None, erasing=True, sweep_at=clock.now
        )
        answer = Answer(version=record.version, at=clock.now)
        return Effect(record=left, answer=answer, working_memory=b"", metadata=b"")

    def view(self, state: SessionState, answer: Answer, *, replayed: bool) -> None:
        return None


class EndErasure(Decision[None], frozen=True, kw_only=True):
    """All rows of a tombstone are gone: the sweeper need not come again. Where a copy has taken its place by now there is nothing
    to say."""

    def decide(self, state: SessionState, clock: Clock) -> Effect | Unchanged:
        record = state.record
        if record is None or record.status != "DELETED" or not record.erasing:
            return Unchanged(answer=Answer(version=0, at=clock.now))
        done = msgspec.structs.replace(record, erasing=False, sweep_at=None)
        return Effect(record=done, answer=Answer(version=record.version, at=clock.now))

    def view(self, state: SessionState, answer: Answer, *, replayed: bool) -> None:
        return None
