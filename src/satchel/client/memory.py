"""Working memory over HTTP."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from satchel.access import checked_filters
from satchel.client.reading import RemoteReading, path_of
from satchel.client.snapshots import memory_from_json
from satchel.domain.json_text import admit
from satchel.domain.memory import WorkingMemory, admit_memory, admit_patch
from satchel.domain.run import Attempt


class RemoteMemory(RemoteReading):
    """See satchel.sessions.memory.SessionMemory."""

    async def get_working_memory(self, session_id: str, *, run_id: str | None = None) -> WorkingMemory:
        """See satchel.SessionManager.get_working_memory."""
        path = path_of(session_id) + "/working-memory"
        checked_filters(self._server.limits, run_id=run_id)
        about = {"session_id": session_id, "run_id": run_id}
        return memory_from_json((await self._server.read(path, query={"run_id": run_id}, about=about)).body)

    async def update_working_memory(
        self,
        session_id: str,
        patch: Mapping[str, Any],
        *,
        attempt: Attempt | None = None,
        expected_version: int | None = None,
        idempotency_key: str | None = None,
    ) -> WorkingMemory:
        """See satchel.SessionManager.update_working_memory."""
        admit_patch(patch, limits=self._server.limits)
        return await self._remember(
            "PATCH",
            session_id,
            admit(patch, field="patch", limits=self._server.limits)[0],
            attempt,
            expected_version,
            idempotency_key,
        )

    async def replace_working_memory(
        self,
        session_id: str,
        memory: WorkingMemory | Mapping[str, Any],
        *,
        attempt: Attempt | None = None,
        expected_version: int | None = None,
        idempotency_key: str | None = None,
    ) -> WorkingMemory:
        """See satchel.SessionManager.replace_working_memory."""
        given: Any = memory.to_json() if isinstance(memory, WorkingMemory) else memory
        admit_memory(given, limits=self._server.limits)
        return await self._remember(
            "PUT",
            session_id,
            admit(given, field="working_memory", limits=self._server.limits)[0],
            attempt,
            expected_version,
            idempotency_key,
        )

    async def _remember(
        self,
        method: Literal["PUT", "PATCH"],
        session_id: str,
        body: bytes,
        attempt: Attempt | None,
        expected_version: int | None,
        idempotency_key: str | None,
    ) -> WorkingMemory:
        reply = await self._server.write(
            method,
            path_of(session_id) + "/working-memory",
            body,
            about={"session_id": session_id},
            attempt=attempt,
            expected_version=expected_version,
            idempotency_key=idempotency_key,
        )
        return memory_from_json(reply.body, replayed=reply.replayed)
