"""A run is added, and waits for its turn."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Mapping
from typing import Any

from satchel.domain.clock import SECOND
from satchel.domain.run import Attempt, MemoryOf, OnBusy, Run
from satchel.errors import SatchelError
from satchel.runs import LEASE
from satchel.sessions.reading import SessionReading
from satchel.store import Snapshot

LONGEST_WAIT = 5.0  # seconds between two looks at whose turn it is, when no hint comes


class SessionTurns(SessionReading):
    """Methods that bring a run to the point where it is executed."""

    async def add_run(
        self,
        session_id: str,
        *,
        goal: str = "",
        agent: str | None = None,
        input: Mapping[str, Any] | str | bytes | None = None,
        on_busy: OnBusy = "reject",
        max_attempts: int = 1,
        memory: MemoryOf = "session",
        metadata: Mapping[str, Any] | None = None,
        start: bool = False,
        lease: float = LEASE,
        expected_version: int | None = None,
        idempotency_key: str | None = None,
    ) -> Run:
        """See :meth:`RunManager.add_run`."""
        return await self._runs.add_run(
            session_id,
            goal=goal,
            agent=agent,
            input=input,
            on_busy=on_busy,
            max_attempts=max_attempts,
            memory=memory,
            metadata=metadata,
            start=start,
            lease=lease,
            expected_version=expected_version,
            idempotency_key=idempotency_key,
        )

    async def _take_turn(self, session_id: str, run: Run, lease: float) -> Run:
        """Wait until the run has the turn, and start it; the lease of who waits is renewed meanwhile."""
        ref = self._access.ref(session_id)

        async def fetch() -> Snapshot:
            return await self._access.store.snapshot(ref, working_memory=False, metadata=False)

        loop = asyncio.get_running_loop()
        renew_at = loop.time() + lease / 3
        while True:
            page, record = await self._access.read(ref, fetch)
            if all(waiting.run_id != run.run_id for waiting in record.queue):
                return await self._runs.start_run(session_id, run.run_id, lease=lease)
            if loop.time() >= renew_at:
                await self._runs.keep_waiting(session_id, run.run_id)
                renew_at = loop.time() + lease / 3
            patience = min(LONGEST_WAIT, lease / 3)
            if record.lease_until is not None:  # nobody wakes us when a holder dies: its lease just ends
                patience = min(patience, max(0.01, (record.lease_until - page.clock.lease_now) / SECOND))
            await self._access.store.wait(ref, record.last_seq, patience)

    async def _withdraw(self, session_id: str, pending: Awaitable[Run], added: Run | None = None) -> None:
        """The caller went away while its run was being added, or while it waited: whatever became of the run, it ends."""
        run = added
        with contextlib.suppress(SatchelError, asyncio.CancelledError):
            run = await pending
        if run is None or run.replayed:
            return
        with contextlib.suppress(SatchelError):
            now = await self._runs.cancel_run(session_id, run.run_id)
            if now.status == "RUNNING":
                await self._runs.end_cancelled_run(session_id, Attempt(now.run_id, now.attempt))
