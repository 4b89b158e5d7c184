"""What every decision has in common, and the order in which every write is checked."""

from __future__ import annotations

from typing import ClassVar, Generic, TypeVar

import msgspec

from satchel.domain.idempotency import Answer, IdempotencyRecord
from satchel.domain.ids import SessionRef
from satchel.domain.principal import Principal
from satchel.domain.record import SessionRecord
from satchel.domain.rights import Right, may_see, require
from satchel.domain.run import Attempt
from satchel.domain.state import NOTHING, Clock, Effect, SessionState, Unchanged, Want
from satchel.errors import (
    IdempotencyMismatch,
    RunFenced,
    SessionClosed,
    SessionDeleted,
    SessionExpired,
    SessionNotFound,
    VersionConflict,
)

V = TypeVar("V")


class Decision(msgspec.Struct, Generic[V], frozen=True, kw_only=True, gc=False):
    """One request, with the principal and every id it may need, so that deciding again gives the same ids.

    ``key`` and ``fingerprint`` are hashes (see idempotency); a key that is not the caller's own makes the store's retries safe. ``attempt`` is the run that writes.
    """

    ref: SessionRef
    principal: Principal
    key: bytes | None = None
    caller_key: bool = False
    fingerprint: bytes = b""
    expected_version: int | None = None
    attempt: Attempt | None = None

    right: ClassVar[Right] = "use"
    action: ClassVar[str] = "do this"
    needs_active: ClassVar[bool] = True

    @property
    def size(self) -> int:
        """Bytes that this decision may write: batches are bounded by it."""
        return 0

    def want(self) -> Want:
        return NOTHING

    def check_role(self, state: SessionState) -> None:
        """Raises NotAllowed."""
        require(self.principal, self.right, self.action)

    def effect(self, state: SessionState, clock: Clock) -> Effect | Unchanged:
        """The change, or what holds already. Everything before it has been checked. Raises errors of the domain."""
        raise NotImplementedError

    def view(self, state: SessionState, answer: Answer, *, replayed: bool) -> V:
        """What the caller is given, from the state after this decision."""
        raise NotImplementedError

    def check_turn(self, record: SessionRecord) -> None:
        """Raises what the session's status, turn or queue refuses beside the rule for all writes."""

    def check_version(self, record: SessionRecord) -> None:
        """Raises VersionConflict."""
        if self.expected_version is not None and self.expected_version != record.version:
            raise version_conflict(record, self.expected_version)

    def decide(self, state: SessionState, clock: Clock) -> Effect | Unchanged:
        """Is it yours, may your role, was it done, does the status allow it, is the version right; then the effect."""
        record = visible_record(state, self.ref, self.principal)
        self.check_role(state)
        kept = None if self.key is None else state.keys.get(self.key)
        if record.status == "DELETED" and (kept is None or kept.fingerprint != self.fingerprint):
            return self.on_deleted(record, clock)  # that a key was another request's is told of no tombstone
        replay = None if kept is None else replay_of(state.keys, self.key, self.fingerprint)
        if replay is not None:  # also in a tombstone whose rows are not erased yet: what was done is not denied
            return replay
        if self.needs_active and record.status != "ACTIVE":
            check_active(record)
        if self.attempt is not None:
            check_attempt(record, self.attempt)
        self.check_turn(record)
        self.check_version(record)
        return self.effect(state, clock)

    def on_deleted(self, record: SessionRecord, clock: Clock) -> Effect | Unchanged:
        raise SessionDeleted(self.ref.session_id)


def visible_record(state: SessionState, ref: SessionRef, principal: Principal) -> SessionRecord:
    """The record, if it is there and this principal's. Raises SessionNotFound, the same for both."""
    record = state.record
    if record is None or record.hidden or not may_see(principal, record):
        raise SessionNotFound(ref.session_id)
    return record


def replay_of(keys: dict[bytes, IdempotencyRecord], key: bytes | None, fingerprint: bytes) -> Unchanged | None:
    """The first answer under this key. Raises IdempotencyMismatch."""
    kept = None if key is None else keys.get(key)
    if kept is None:
        return None
    if kept.fingerprint != fingerprint:
        raise IdempotencyMismatch
    return Unchanged(answer=kept.answer, replayed=True)


def check_active(record: SessionRecord) -> None:
    """Raises SessionClosed, SessionExpired, SessionDeleted."""
    if record.status == "CLOSED":
        raise SessionClosed(record.session_id)
    if record.status == "EXPIRED":
        raise SessionExpired(record.session_id)
    if record.status == "DELETED":
        raise SessionDeleted(record.session_id)


def has_turn(record: SessionRecord, attempt: Attempt) -> bool:
    """Whether this attempt's run has the turn and is RUNNING, under this very attempt."""
    return _turns_status(record, attempt) == "RUNNING"


def waits(record: SessionRecord, attempt: Attempt) -> bool:
    """Whether this attempt asked a question, and nobody took the run since."""
    return _turns_status(record, attempt) == "WAITING"


def _turns_status(record: SessionRecord, attempt: Attempt) -> str | None:
    """Of the run that has the turn, if it is this attempt's."""
    turn = record.turn
    if turn is None:
        return None
    is_its = turn.run_id == attempt.run_id and turn.attempt == attempt.attempt
    return turn.status if is_its else None


def holds(record: SessionRecord, attempt: Attempt) -> bool:
    """Whether this attempt still has its run: the one with the turn, or an open child of it. (Children end in the commit
    that ends their parent's attempt.)"""
    if has_turn(record, attempt):
        return True
    return attempt.attempt == 1 and any(child.run_id == attempt.run_id for child in record.children)


def check_attempt(record: SessionRecord, attempt: Attempt) -> None:
    """Raises RunFenced."""
    if holds(record, attempt) and not record.arriving:
        return
    turn = record.turn
    if record.arriving:
        reason = "the session is being copied here, and leases do not travel"
    elif turn is not None and turn.run_id == attempt.run_id:
        reason = f"it is {turn.status}, attempt {turn.attempt}"
    else:
        reason = (
            "the run has ended: was its lease lost? Code that blocks the event loop for longer than the lease keeps it"
            " from being renewed (use asyncio.to_thread, a longer lease, or satchel.sync)"
        )
    raise RunFenced(run_id=attempt.run_id, attempt=attempt.attempt, reason=reason)


def version_conflict(record: SessionRecord, expected: int) -> VersionConflict:
    return VersionConflict(expected=expected, current=record.version, changed=record.changed.changed_since(expected))


def unchanged(
    record: SessionRecord, clock: Clock, *, seqs: tuple[int, ...] = (), ids: tuple[str, ...] = (), status: str = ""
) -> Unchanged:
    """A no-op, answered with the version that holds."""
    return Unchanged(
        answer=Answer(version=record.version, at=clock.now, seqs=seqs, ids=ids, status=status or record.status)
    )
