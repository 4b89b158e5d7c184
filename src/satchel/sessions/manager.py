"""SessionManager: the one door to sessions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from satchel.domain.run import MemoryOf, OnBusy
from satchel.errors import RunFenced
from satchel.holding import working
from satchel.runs import LEASE
from satchel.sessions.lifecycle import SessionLifecycle
from satchel.sessions.log import SessionLog
from satchel.sessions.memory import SessionMemory
from satchel.sessions.messages import SessionMessages
from satchel.sessions.tool_history import SessionToolHistory
from satchel.sessions.transfer import SessionTransfer
from satchel.sessions.turns import SessionTurns
from satchel.working import RunInProgress


class SessionManager(
    SessionLifecycle, SessionMessages, SessionToolHistory, SessionMemory, SessionTurns, SessionLog, SessionTransfer
):
    """Sessions that its principal may see.

    Every write takes ``expected_version`` (VersionConflict if it is not the session's current one; nothing is stored) and
    ``idempotency_key`` (a repeated call gives the first answer, marked ``replayed``). ``attempt`` names the run that
    writes. A session of somebody else is SessionNotFound, as one that does not exist.
    """

    @asynccontextmanager
    async def run(
        self,
        session_id: str,
        *,
        goal: str = "",
        input: Mapping[str, Any] | str | bytes | None = None,
        agent: str = "",
        on_busy: OnBusy = "queue",
        memory: MemoryOf = "session",
        metadata: Mapping[str, Any] | None = None,
        lease: float = LEASE,
        idempotency_key: str | None = None,
    ) -> AsyncIterator[RunInProgress]:
        """Execute a run here: wait for the turn, renew the lease, and at the end complete it, or fail it if the block raises.

        ``async with sessions.run(session_id, goal=…, input=…) as run: …`` gives a RunContext. Leaving the wait (a
        cancelled task) cancels the run. Raises as :meth:`RunManager.add_run`; RunFenced from a write of a run that is
        lost, and at once when an earlier call with this ``idempotency_key`` added the run: it is executed once.
        """
        adding = asyncio.ensure_future(
            self._runs.add_run(
                session_id,
                goal=goal,
                input=input,
                agent=agent,
                on_busy=on_busy,
                memory=memory,
                metadata=metadata,
                start=True,
                lease=lease,
                idempotency_key=idempotency_key,
            )
        )
        try:
            run = await asyncio.shield(adding)
        except asyncio.CancelledError:
            await asyncio.shield(self._withdraw(session_id, adding))
            raise
        if run.replayed:
            reason = "an earlier call with this idempotency key added the run, and executes it"
            raise RunFenced(run_id=run.run_id, attempt=run.attempt, reason=reason)
        if run.status == "READY":
            taking = asyncio.ensure_future(self._take_turn(session_id, run, lease))
            try:
                run = await asyncio.shield(taking)
            except BaseException:  # also a store that went away: nobody else will start this run
                taking.cancel()
                await asyncio.shield(self._withdraw(session_id, taking, run))
                raise
        async with working(self, self._runs, run, lease=lease) as ctx:
            yield ctx
