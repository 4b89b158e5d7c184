"""Working memory: patched by field, or replaced whole."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from satchel.domain.decisions.decision import Decision, unchanged, version_conflict
from satchel.domain.edit import Edit
from satchel.domain.idempotency import Answer
from satchel.domain.limits import Limits
from satchel.domain.memory import MemoryPatch, WorkingMemory, memory_from, stored_memory
from satchel.domain.record import SessionRecord
from satchel.domain.rights import Right
from satchel.domain.state import Clock, Effect, SessionState, Unchanged, Want
from satchel.errors import VersionRequired

_encode = msgspec.json.Encoder().encode


class MemoryDecision(Decision[WorkingMemory], frozen=True, kw_only=True):
    """``expected_version`` holds if the memory has not changed since, so that messages do not starve its editor."""

    limits: Limits

    right: ClassVar[Right] = "work"
    action: ClassVar[str] = "write working memory"

    def want(self) -> Want:
        return Want(keys=() if self.key is None else (self.key,), working_memory=True)

    def check_version(self, record: SessionRecord) -> None:
        expected = self.expected_version
        if expected is None:
            if self.needs_version and self.attempt is None:
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

    def effect(self, state: SessionState, clock: Clock) -> Effect | Unchanged:
        changed, body = self.change(memory_from(state.working_memory))
        stored = stored_memory(changed, limits=self.limits)
        if stored == state.working_memory:
            return unchanged(state.existing, clock)
        edit = Edit(state, clock, self.principal.actor)
        edit.working_memory = stored
        edit.event("working_memory_changed", body, run_id=None if self.attempt is None else self.attempt.run_id)
        edit.touch("working_memory")
        return edit.finish(edit.answer())

    def view(self, state: SessionState, answer: Answer, *, replayed: bool) -> WorkingMemory:
        # A replay shows the memory as it is now, under the version of that.
        version = state.existing.changed.working_memory if replayed else answer.version
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


class ReplaceMemory(MemoryDecision, frozen=True, kw_only=True):
    memory: WorkingMemory

    def change(self, memory: WorkingMemory) -> tuple[WorkingMemory, bytes]:
        return self.memory, _encode({"replace": self.memory.to_dict()})
