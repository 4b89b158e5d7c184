"""What the tests of the worker share: a store with sessions in it, and workers in this process."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from satchel import Event, OpenStore, Principal, Run, RunManager, SessionManager, Worker
from satchel.domain.ids import SessionRef
from satchel.worker import Served

TENANT = "acme"
ADA = Principal.user("ada", tenant_id=TENANT)


class Stage:
    """Ada's doors to one store."""

    def __init__(self, store: OpenStore, who: Principal = ADA) -> None:
        self.store = store
        self.who = who
        self.sessions = SessionManager(store, who)
        self.runs = RunManager(store, who)

    async def session(self) -> str:
        return (await self.sessions.create_session()).session_id

    async def added(self, agent: str, session_id: str | None = None, **options: Any) -> Run:
        """A new run, in a session of its own unless one is given."""
        sid = await self.session() if session_id is None else session_id
        return await self.runs.add_run(sid, agent=agent, on_busy="queue", **options)

    async def now(self, run: Run) -> Run:
        """As it is kept: looking at it settles nothing, so that what a test waits for was done by a worker."""
        page = await self.store.store.runs(SessionRef(self.who.tenant_id, run.session_id), run_id=run.run_id, limit=1)
        return Run.from_row(page.runs[0], session_id=run.session_id)

    async def ended(self, run: Run, *, within: float = 15) -> Run:
        return await self.reached(run, "COMPLETED", "FAILED", "CANCELLED", within=within)

    async def reached(self, run: Run, *statuses: str, within: float = 15) -> Run:
        async def look() -> Run | None:
            found = await self.now(run)
            return found if found.status in statuses else None

        found: Run = await until(look, within=within)
        return found

    async def log(self, session_id: str) -> tuple[Event, ...]:
        """As it is kept: reading it settles nothing."""
        return (await self.store.store.events(SessionRef(self.who.tenant_id, session_id), limit=1_000)).events

    async def calls(self, session_id: str) -> list[str]:
        """The outcomes of the session's tool calls, oldest first."""
        return [call.status for call in await self.sessions.tool_history(session_id)]


async def until(look: Callable[[], Awaitable[Any]] | Callable[[], Any], *, within: float = 15) -> Any:
    """What ``look`` gives, once that is something."""
    deadline = time.monotonic() + within
    while True:
        found = look()
        if isinstance(found, Awaitable):
            found = await found
        if found:
            return found
        assert time.monotonic() < deadline, f"it did not happen within {within} s"
        await asyncio.sleep(0.01)


@asynccontextmanager
async def working(
    store: OpenStore, agents: Mapping[str, Served], *, lease: float = 30.0, grace: float = 5.0, **options: Any
) -> AsyncIterator[Worker]:
    """A worker for as long as the block lasts."""
    worker = Worker(store, agents, lease=lease, grace=grace, **options)
    task = asyncio.create_task(worker.run_forever())
    try:
        yield worker
    finally:
        worker.stop()
        await task
