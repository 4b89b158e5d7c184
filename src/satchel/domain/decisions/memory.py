"""Working memory: patched by field, or replaced whole."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from satchel.domain.decisions.decision import Decision, has_turn, holds, unchanged, version_conflict
from satchel.domain.edit import Edit
from satchel.domain.idempotency import Answer
from satchel.domain.layer import layered, with_patch
from satchel.domain.limits import Limits
from satchel.domain.memory import FIELDS, MemoryPatch, WorkingMemory, memory_from, stored_memory
from satchel.domain.record import SessionRecord
from satchel.domain.rights import Right
from satchel.domain.run import RunRow
from satchel.domain.state import Clock, Effect, SessionState, Unchanged, Want
from satchel.errors import SessionDeleted, VersionRequired

_encode = msgspec.json.Encoder().encode


class MemoryDecision(Decision[WorkingMemory], frozen=True, kw_only=True):
    """``expected_version`` holds if the memory has not changed since, so that messages do not starve its editor."""

    limits: Limits

    right: ClassVar[Right] = "work"
    action: ClassVar[str] = "write working memory"

    def want(self) -> Want:
        keys = () if self.key is None else (self.key,)
        return Want(keys=keys, working_memory=True, layer=self.attempt is not None)

    def check_version(self, record: SessionRecord) -> None:
        expected = self.expected_version
        if expected is None:
            # A child run has no turn: its siblings write at the same time.
            if self.needs_version and (self.attempt is None or not has_turn(record, self.attempt)):
                raise VersionRequired(action=self.version_action)
        elif expected > record.version or record.changed.working_memory > expected:
            raise version_conflict(record, expected)

    @property
    def needs_version(self) -> bool:
        return True

    @property
    def version_action(self) -> str:
        return "replacing the working memory"

    def change(self, memory: WorkingMemory) -> tuple[WorkingMemory, bytes]:
        """The new memory, and the body of its event."""
        raise NotImplementedError

    def as_patch(self) -> MemoryPatch:
        """The change as a patch, for a run's layer."""
        raise NotImplementedError

    def layered_run(self, state: SessionState) -> RunRow | None:
        """The run into whose layer this goes: that of the run that has the turn, also for its child runs."""
        turn = state.existing.turn
        if self.attempt is None or turn is None or not turn.has_layer or not holds(state.existing, self.attempt):
            return None
        return state.runs.get(turn.run_id)

    def effect(self, state: SessionState, clock: Clock) -> Effect | Unchanged:
        row = self.layered_run(state)
        if row is not None:
            return self.change_layer(state, clock, row)
        changed, body = self.change(memory_from(state.working_memory))
        stored = stored_memory(changed, limits=self.limits)
        if stored == state.working_memory:
            return unchanged(state.existing, clock)
        edit = Edit(state, clock, self.principal.actor)
        edit.working_memory = stored
        edit.event("working_memory_changed", body, run_id=None if self.attempt is None else self.attempt.run_id)
        edit.touch("working_memory")
        return edit.finish(edit.answer())

    def change_layer(self, state: SessionState, clock: Clock, row: RunRow) -> Effect | Unchanged:
        if self.expected_version is not None and row.layer_version > self.expected_version:
            raise version_conflict(state.existing, self.expected_version)
        edit = Edit(state, clock, self.principal.actor)
        patch = self.as_patch()
        memory = memory_from(state.working_memory)
        changed = with_patch(row, patch, memory, version=edit.version, limits=self.limits)
        if (bytes(changed.layer), changed.layer_base) == (bytes(row.layer), row.layer_base):
            return unchanged(state.existing, clock)
        edit.put_run(changed)
        assert self.attempt is not None  # it has a layer
        edit.event("run_memory_changed", _encode(patch.to_dict()), run_id=self.attempt.run_id)
        return edit.finish(edit.answer())

    def view(self, state: SessionState, answer: Answer, *, replayed: bool) -> WorkingMemory:
        if state.existing.status == "DELETED":  # it went in the commit of the deletion
            raise SessionDeleted(self.ref.session_id)
        row = self.layered_run(state)
        if row is not None:
            changed_at = state.existing.changed.working_memory
            return layered(memory_from(state.working_memory, version=changed_at, replayed=replayed), row)
        # What is found again shows the memory as it is now, under the version of that.
        version = max(state.existing.changed.working_memory, answer.version)
        return memory_from(state.working_memory, version=version, replayed=replayed)


class PatchMemory(MemoryDecision, frozen=True, kw_only=True):
    patch: MemoryPatch

    @property
    def size(self) -> int:
        return self.limits.working_memory

    @property
    def needs_version(self) -> bool:
        return self.patch.needs_version

    @property
    def version_action(self) -> str:
        return "set or clear in the working memory"

    def change(self, memory: WorkingMemory) -> tuple[WorkingMemory, bytes]:
        return self.patch.apply(memory), _encode(self.patch.to_dict())

    def as_patch(self) -> MemoryPatch:
        return self.patch


class ReplaceMemory(MemoryDecision, frozen=True, kw_only=True):
    memory: WorkingMemory

    def change(self, memory: WorkingMemory) -> tuple[WorkingMemory, bytes]:
        return self.memory, _encode({"replace": self.memory.as_spelled()})

    def as_patch(self) -> MemoryPatch:
        return MemoryPatch(set={name: self.memory.part(name) for name in FIELDS})
