"""SessionManager over HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Iterable
from typing import TYPE_CHECKING, Any

from satchel.client.lifecycle import RemoteLifecycle
from satchel.client.log import RemoteLog
from satchel.client.memory import RemoteMemory
from satchel.client.messages import RemoteMessages
from satchel.client.runs import RemoteRunManager
from satchel.client.tool_history import RemoteToolHistory
from satchel.domain.imported import Imported
from satchel.domain.run import Run
from satchel.errors import NotServed
from satchel.sessions import SessionManager

if TYPE_CHECKING:
    from satchel.client.connection import Connection

LOOK = 1.0  # seconds between two looks at whose turn it is: nobody tells when the lease of who has it ends


class RemoteSessionManager(RemoteLifecycle, RemoteMessages, RemoteToolHistory, RemoteMemory, RemoteLog, SessionManager):
    """A SessionManager whose store is on the other side of a service. ``run`` and ``add_run`` are those of any manager."""

    def __init__(self, server: Connection, runs: RemoteRunManager) -> None:
        self._server = server
        self._runs = runs

    def export_sessions(self, session_ids: Iterable[str] | None = None, **filters: Any) -> AsyncIterator[bytes]:
        """Raises NotServed."""
        raise NotServed("export sessions")

    def import_sessions(
        self, lines: Iterable[bytes | str] | AsyncIterable[bytes | str], *, user_id: str | None = None
    ) -> AsyncIterator[Imported]:
        """Raises NotServed."""
        raise NotServed("import sessions")

    async def _take_turn(self, session_id: str, run: Run, lease: float) -> Run:
        """As of any manager: wait for the turn, with a lease that is renewed."""
        loop = asyncio.get_running_loop()
        renew_at = loop.time() + lease / 3
        while True:
            session = await self.get_session(session_id, include=())
            if run.run_id not in session.queued_run_ids:
                return await self._runs.start_run(session_id, run.run_id, lease=lease)
            if loop.time() >= renew_at:
                await self._runs.keep_waiting(session_id, run.run_id)
                renew_at = loop.time() + lease / 3
            await self._something_new(session_id, session.last_seq, min(LOOK, lease / 3))
