"""What the agent keeps in mind."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from satchel.access import attempt_part, request
from satchel.answered.memory import memory_as_answered
from satchel.domain.decisions.memory import MemoryDecision, PatchMemory, ReplaceMemory
from satchel.domain.layer import layered
from satchel.domain.memory import WorkingMemory, admit_memory, admit_patch, memory_from
from satchel.domain.run import Attempt
from satchel.sessions.reading import SessionReading
from satchel.sessions.run_view import read_for_run
from satchel.store import Snapshot

_encode = msgspec.json.Encoder().encode


class SessionMemory(SessionReading):
    """Methods for a session's working memory."""

    async def get_working_memory(self, session_id: str, *, run_id: str | None = None) -> WorkingMemory:
        """The session's memory; with ``run_id`` as that run sees it, under its own layer if it has one. Raises RunNotFound."""
        ref = self._access.ref(session_id)

        async def fetch() -> Snapshot:
            return await self._access.store.snapshot(ref, metadata=False)

        if run_id is None:
            page, record = await self._access.read(ref, fetch)
            return memory_from(page.working_memory, version=record.changed.working_memory)
        page, record, run = await read_for_run(self._access, ref, run_id, fetch)
        memory = memory_from(page.working_memory, version=record.changed.working_memory)
        return memory if run.layer is None else layered(memory, run.layer)

    async def update_working_memory(
        self,
        session_id: str,
        patch: Mapping[str, Any],
        *,
        attempt: Attempt | None = None,
        expected_version: int | None = None,
        idempotency_key: str | None = None,
    ) -> WorkingMemory:
        """Patch by field: ``{"clear": [field…], "remove": {…}, "append": {…}, "set": {…}}``, in this order, all or nothing.

        ``append`` and ``remove`` act on the memory as it is at the commit. ``set`` and ``clear`` need ``expected_version``
        (VersionRequired), or come from the run that has the turn. It holds if the memory has not changed since: messages
        do not matter to it. Raises VersionConflict, LimitExceeded (the memory would be over 64 KiB).

        The patch of an ``attempt`` whose run has a layer of its own (``add_run(memory="run")``) goes into that layer, which is
        bounded like the memory; the answer is the memory as the run sees it. A child run writes where its parent does; as it
        has no turn, its ``set`` and ``clear`` need ``expected_version``.
        """
        admitted = admit_patch(patch, limits=self._access.limits)
        decision = PatchMemory(
            **self._access.common(session_id, idempotency_key, expected_version, attempt),
            fingerprint=request("update_working_memory", attempt_part(attempt), _encode(admitted.to_dict())),
            patch=admitted,
            limits=self._access.limits,
        )
        return await self._memory_written(decision)

    async def replace_working_memory(
        self,
        session_id: str,
        memory: WorkingMemory | Mapping[str, Any],
        *,
        attempt: Attempt | None = None,
        expected_version: int | None = None,
        idempotency_key: str | None = None,
    ) -> WorkingMemory:
        """The whole memory anew; fields that are not given are empty. Needs ``expected_version``, or the run that has the
        turn."""
        admitted = admit_memory(memory, limits=self._access.limits)
        decision = ReplaceMemory(
            **self._access.common(session_id, idempotency_key, expected_version, attempt),
            fingerprint=request("replace_working_memory", attempt_part(attempt), admitted.to_json()),
            memory=admitted,
            limits=self._access.limits,
        )
        return await self._memory_written(decision)

    async def _memory_written(self, decision: MemoryDecision) -> WorkingMemory:
        done = await self._access.submit(decision)
        return await memory_as_answered(self._access, decision.ref, done, decision.attempt)
