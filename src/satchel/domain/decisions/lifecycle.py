"""Create, close, restore, expire, delete; and the record's own fields: title, owner, metadata."""

from __future__ import annotations

from typing import ClassVar, Literal

import msgspec

from satchel.domain.decisions.decision import Decision, check_active, replay_of, unchanged
from satchel.domain.edit import Edit, with_entries
from satchel.domain.event import EventKind
from satchel.domain.idempotency import Answer
from satchel.domain.limits import Limits
from satchel.domain.policy import SessionPolicy
from satchel.domain.record import SessionRecord
from satchel.domain.rights import Right, require
from satchel.domain.state import Clock, Effect, SessionState, Unchanged, Want
from satchel.errors import LimitExceeded, RestoreRefused, SessionDeleted, SessionExists, SessionNotFound, StoreBusy

_encode = msgspec.json.Encoder().encode


class GenerationTaken(Exception):
    """The external_id's session was deleted or given away: the name goes to a session of the next generation."""

    def __init__(self, generation: int) -> None:
        self.generation = generation
        super().__init__(generation)


class CreateSession(Decision[SessionRecord], frozen=True, kw_only=True):
    """Version 0, without an event. ``first_revision`` is random, so that a new record is never taken for an old one."""

    user_id: str
    title: str
    metadata: bytes
    policy: SessionPolicy
    first_revision: int
    external_id: str | None = None
    generation: int = 0
    if_exists: Literal["return", "raise"] = "return"

    action: ClassVar[str] = "create a session"

    def want(self) -> Want:
        return Want(keys=() if self.key is None else (self.key,))

    def decide(self, state: SessionState, clock: Clock) -> Effect | Unchanged:
        require(self.principal, self.right, self.action)
        record = state.record
        if record is None:
            return self.effect(state, clock)
        if record.status == "DELETED" or record.user_id != self.user_id:
            # Deleted, or transferred away: the name is free again, the id is not.
            if self.external_id is not None:
                raise GenerationTaken(self.generation)
            if record.user_id == self.user_id:
                raise SessionDeleted(self.ref.session_id)
            raise SessionNotFound(self.ref.session_id)
        if record.hidden:
            raise StoreBusy("a conversation of this external_id is being imported; repeat the call later")
        replay = replay_of(state.keys, self.key, self.fingerprint)
        if replay is not None:
            return replay
        if self.external_id is not None and self.if_exists == "raise":
            raise SessionExists(self.ref.session_id)
        return unchanged(record, clock)

    def effect(self, state: SessionState, clock: Clock) -> Effect:
        record = SessionRecord(
            tenant_id=self.ref.tenant_id,
            session_id=self.ref.session_id,
            user_id=self.user_id,
            revision=self.first_revision,
            created_at=clock.now,
            updated_at=clock.now,
            active_at=clock.now,
            clock_from=clock.now,
            title=self.title,
            external_id=self.external_id,
            generation=self.generation,
            policy=self.policy,
        )
        return Effect(
            record=with_entries(record),
            answer=Answer(version=0, at=clock.now, ids=(self.ref.session_id,), status="ACTIVE"),
            metadata=self.metadata or None,
        )

    def view(self, state: SessionState, answer: Answer, *, replayed: bool) -> SessionRecord:
        return state.existing


class LifecycleDecision(Decision[SessionRecord], frozen=True, kw_only=True):
    """``reason`` is the caller's own word for the lifecycle history."""

    reason: str = ""

    def want(self) -> Want:
        return Want(keys=() if self.key is None else (self.key,), open_work=True)

    def view(self, state: SessionState, answer: Answer, *, replayed: bool) -> SessionRecord:
        return state.existing

    def body(self) -> bytes:
        return _encode({"reason": self.reason}) if self.reason else b"{}"

    def leave_active(self, state: SessionState, clock: Clock, kind: EventKind, status: str) -> Effect:
        edit = Edit(state, clock, self.principal.actor)
        edit.end_open_work(kind)
        edit.event(kind, self.body())
        edit.move_to("CLOSED" if status == "CLOSED" else "EXPIRED", reason=self.reason)
        return edit.finish(edit.answer(status=status))


class CloseSession(LifecycleDecision, frozen=True, kw_only=True):
    action: ClassVar[str] = "close a session"
    needs_active: ClassVar[bool] = False

    def check_turn(self, record: SessionRecord) -> None:
        if record.status != "CLOSED":
            check_active(record)

    def effect(self, state: SessionState, clock: Clock) -> Effect | Unchanged:
        if state.existing.status == "CLOSED":
            return unchanged(state.existing, clock)
        return self.leave_active(state, clock, "session_closed", "CLOSED")


class ExpireSession(LifecycleDecision, frozen=True, kw_only=True):
    action: ClassVar[str] = "expire a session"
    right: ClassVar[Right] = "govern"
    needs_active: ClassVar[bool] = False

    def check_turn(self, record: SessionRecord) -> None:
        if record.status != "EXPIRED":
            check_active(record)

    def effect(self, state: SessionState, clock: Clock) -> Effect | Unchanged:
        if state.existing.status == "EXPIRED":
            return unchanged(state.existing, clock)
        return self.leave_active(state, clock, "session_expired", "EXPIRED")


class RestoreSession(LifecycleDecision, frozen=True, kw_only=True):
    action: ClassVar[str] = "restore a session"
    needs_active: ClassVar[bool] = False

    def want(self) -> Want:
        return Want(keys=() if self.key is None else (self.key,))

    def effect(self, state: SessionState, clock: Clock) -> Effect | Unchanged:
        record = state.existing
        if record.status == "ACTIVE":
            return unchanged(record, clock)
        allowed = record.policy.restore_closed if record.status == "CLOSED" else record.policy.restore_expired
        if allowed == "never" or (allowed == "admin" and self.principal.role not in ("admin", "operator")):
            raise RestoreRefused(status=record.status, policy=allowed)
        edit = Edit(state, clock, self.principal.actor)
        edit.event("session_restored", self.body())
        edit.move_to("ACTIVE", reason=self.reason)
        edit.fields["active_at"] = edit.fields["clock_from"] = clock.now
        return edit.finish(edit.answer(status="ACTIVE"))


class DeleteSession(LifecycleDecision, frozen=True, kw_only=True):
    """The tombstone: from this commit on nothing else is readable. Rows are erased after it, in steps."""

    action: ClassVar[str] = "delete a session"
    needs_active: ClassVar[bool] = False

    def want(self) -> Want:
        return Want(keys=() if self.key is None else (self.key,))  # no open work: all of it goes

    def on_deleted(self, record: SessionRecord, clock: Clock) -> Unchanged:
        return unchanged(record, clock)

    def effect(self, state: SessionState, clock: Clock) -> Effect:
        return tombstone(Edit(state, clock, self.principal.actor), reason=self.reason)


def tombstone(edit: Edit, *, reason: str) -> Effect:
    """Only what proves that the id is used stays: whose it was, and the lifecycle history."""
    edit.event("session_deleted", b"{}")
    edit.move_to("DELETED", reason=reason)
    effect = edit.finish(edit.answer(status="DELETED"))
    record = effect.record
    bare = SessionRecord(
        tenant_id=record.tenant_id,
        session_id=record.session_id,
        user_id=record.user_id,
        revision=record.revision,
        created_at=record.created_at,
        updated_at=record.updated_at,
        active_at=record.active_at,
        clock_from=record.clock_from,
        status="DELETED",
        version=record.version,
        last_seq=record.last_seq,
        generation=record.generation,
        closed_at=record.closed_at,
        changed=record.changed,
        lifecycle=record.lifecycle,
        transitions=record.transitions,
        erasing=True,
        sweep_at=edit.clock.now,
    )
    return Effect(record=bare, answer=effect.answer, events=effect.events, working_memory=b"", metadata=b"")


class UpdateSession(Decision[SessionRecord], frozen=True, kw_only=True):
    """A new title, a merge patch (RFC 7396) of the metadata, or both in one version."""

    title: str | None = None
    metadata_patch: bytes | None = None
    limits: Limits

    action: ClassVar[str] = "change a session"

    def want(self) -> Want:
        return Want(keys=() if self.key is None else (self.key,), metadata=self.metadata_patch is not None)

    def effect(self, state: SessionState, clock: Clock) -> Effect | Unchanged:
        edit = Edit(state, clock, self.principal.actor)
        if self.title is not None and self.title != state.existing.title:
            edit.event("title_changed", _encode({"title": self.title, "former": state.existing.title}))
            edit.fields["title"] = self.title
            edit.touch("title")
        if self.metadata_patch is not None:
            metadata = merge_patch(state.metadata or b"{}", self.metadata_patch)
            if len(metadata) > self.limits.metadata:
                raise LimitExceeded(
                    field="metadata", size=len(metadata), limit=self.limits.metadata, setting="limits.metadata"
                )
            if metadata != (state.metadata or b"{}"):
                edit.event("metadata_changed", self.metadata_patch)
                edit.metadata = metadata
                edit.touch("metadata")
        if not edit.events:
            return unchanged(state.existing, clock)
        return edit.finish(edit.answer())

    def view(self, state: SessionState, answer: Answer, *, replayed: bool) -> SessionRecord:
        return state.existing


def merge_patch(target: bytes, patch: bytes) -> bytes:
    """RFC 7396 on JSON text: what the patch does not name keeps its bytes."""
    changes = _members(patch)
    if changes is None:
        return patch
    merged = _members(target) or {}
    for name, value in changes.items():
        if bytes(value) == b"null":
            merged.pop(name, None)
        else:
            kept = bytes(merged[name]) if name in merged else b"null"
            merged[name] = msgspec.Raw(merge_patch(kept, bytes(value)))
    return _encode(merged)


def _members(text: bytes) -> dict[str, msgspec.Raw] | None:
    """The members of a JSON object as text; None for any other value."""
    return msgspec.json.decode(text, type=dict[str, msgspec.Raw]) if text.lstrip().startswith(b"{") else None


class TransferSession(Decision[SessionRecord], frozen=True, kw_only=True):
    """To another user of the tenant."""

    user_id: str

    action: ClassVar[str] = "transfer a session"
    right: ClassVar[Right] = "govern"

    def want(self) -> Want:
        return Want(keys=() if self.key is None else (self.key,))

    def effect(self, state: SessionState, clock: Clock) -> Effect | Unchanged:
        record = state.existing
        if record.user_id == self.user_id:
            return unchanged(record, clock)
        edit = Edit(state, clock, self.principal.actor)
        edit.event("session_transferred", _encode({"from": record.user_id, "to": self.user_id}))
        edit.fields["user_id"] = self.user_id
        edit.touch("status")
        return edit.finish(edit.answer())

    def view(self, state: SessionState, answer: Answer, *, replayed: bool) -> SessionRecord:
        return state.existing
