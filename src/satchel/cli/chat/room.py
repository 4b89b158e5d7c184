"""The conversation behind the terminal: a store, a session, and a worker for it, on an event loop of their own.

The main thread talks to the person and may block; leases are renewed here all the same. The run belongs to the store and
not to this process: what is left when it ends is found by whoever comes next.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

from satchel import (
    Event,
    IllegalTransition,
    Message,
    OpenStore,
    Principal,
    Question,
    Run,
    RunManager,
    Session,
    SessionManager,
    TextDelta,
    Worker,
    WorkingMemory,
)
from satchel.cli.chat.partner import Partner
from satchel.cli.failures import NothingToContinue
from satchel.cli.visible import one_line, shortened

LEASE = 10.0  # seconds: who comes back after a crash waits no longer
GRACE = 5.0
TITLE = 60  # characters

Item = Event | TextDelta | Exception | None
"""What a follower hears: an event of the run; some of a text while it is said; what went wrong; None at the end."""


class Room:
    """Not begun until somebody says something, or comes back to a session: nobody wants empty sessions."""

    def __init__(self, store: OpenStore, partner: Partner, *, tenant: str, user: str) -> None:
        who = Principal.user(user, tenant_id=tenant)
        self._store = store
        self._partner = partner
        self._sessions = SessionManager(store, who)
        self._runs = RunManager(store, who)
        self._worker: Worker | None = None
        self._working: asyncio.Task[None] | None = None
        self._following: asyncio.Task[None] | None = None
        self.session_id: str | None = None

    # -- coming and going

    async def resume(self, session_id: str | None) -> Session:
        """The session of that id, or the one that changed last; restored if it was closed or expired.

        Raises SessionNotFound, NothingToContinue, RestoreRefused.
        """
        session = await (self._newest() if session_id is None else self._sessions.get_session(session_id))
        if session.status != "ACTIVE":
            session = await self._sessions.restore_session(session.session_id, reason="the user is back")
        else:
            session = await self._sessions.get_session(session.session_id)  # what lists leave out
        self._begin(session)
        return session

    async def _newest(self) -> Session:
        cursor: str | None = None
        while True:
            page = await self._sessions.list_sessions(limit=1, cursor=cursor)
            if page.items:
                return page.items[0]
            cursor = page.next
            if cursor is None:
                raise NothingToContinue

    def _begin(self, session: Session) -> None:
        self.session_id = session.session_id
        agents = {self._partner.name: self._partner.served}
        self._worker = Worker(self._store, agents, concurrency=1, lease=LEASE, grace=GRACE, session=session)
        self._working = asyncio.create_task(self._worker.run_forever())

    async def leave(self, *, at_once: bool) -> None:
        """What still runs has a moment to finish, unless it must not wait; then it is handed back."""
        if self._following is not None:
            self._following.cancel()
        if self._worker is None or self._working is None:
            return
        if at_once:
            self._working.cancel()
        self._worker.stop()
        await asyncio.wait((self._working,))
        if not self._working.cancelled():
            self._working.result()

    # -- talking

    async def say(self, text: str) -> Run:
        """A run that answers this message."""
        if self.session_id is None:
            self._begin(await self._sessions.create_session(title=shortened(one_line(text), TITLE)))
        assert self.session_id is not None
        return await self._runs.add_run(
            self.session_id,
            agent=self._partner.name,
            input=text,
            on_busy="queue",
            max_attempts=self._partner.max_attempts,
        )

    async def cancel(self, run: Run) -> None:
        with contextlib.suppress(IllegalTransition):  # it ended by itself
            await self._runs.cancel_run(run.session_id, run.run_id, reason="the user pressed Ctrl-C")

    async def answer(self, run: Run, question: Question, answer: Any) -> None:
        """Raises InvalidInput when it does not fit the question, Conflict when nobody waits for it any more, AgentNotServed."""
        self._partner.check_serves(run)
        await self._runs.answer_run(run.session_id, run.run_id, answer, name=question.name)

    async def run(self, run: Run) -> Run:
        """As it is now."""
        return await self._runs.get_run(run.session_id, run.run_id)

    async def unfinished_run(self) -> Run | None:
        """The run that has the turn, if somebody left one behind. Raises AgentNotServed for one that waits for another agent
        or for an answer to it; one that is RUNNING elsewhere ends by itself."""
        assert self.session_id is not None
        active = (await self.session()).active_run_id
        if active is None:
            return None
        run = await self._runs.get_run(self.session_id, active)
        if run.status != "RUNNING":
            self._partner.check_serves(run)
        return run

    def check_serves(self, run: Run) -> None:
        """Raises AgentNotServed."""
        self._partner.check_serves(run)

    async def session(self) -> Session:
        assert self.session_id is not None
        return await self._sessions.get_session(self.session_id)

    async def messages(self, run: Run) -> tuple[Message, ...]:
        """The newest of this run, in order."""
        page = await self._sessions.messages(run.session_id, run_id=run.run_id, order="desc", limit=100)
        return tuple(reversed(page.items))

    async def memory(self) -> WorkingMemory:
        assert self.session_id is not None
        return await self._sessions.get_working_memory(self.session_id)

    # -- hearing

    async def follow(self, run: Run, hear: Callable[[Item], None]) -> None:
        """Begin to hand everything of this run to ``hear``, from its beginning to its end."""
        self._following = asyncio.create_task(self._follow(run, hear))

    async def _follow(self, run: Run, hear: Callable[[Item], None]) -> None:
        assert self._working is not None
        hearing = asyncio.create_task(self._hear(run, hear))
        try:
            # A worker that ends by itself has a fault, and nobody would answer any more.
            await asyncio.wait({hearing, self._working}, return_when=asyncio.FIRST_COMPLETED)
            if hearing.done():
                hearing.result()
            elif not self._working.cancelled():
                self._working.result()
        except Exception as error:  # noqa: BLE001  # raised where it is heard
            hear(error)
        finally:
            hearing.cancel()
        hear(None)

    async def _hear(self, run: Run, hear: Callable[[Item], None]) -> None:
        async for item in self._sessions.follow(run.session_id, after=0, run_id=run.run_id, text=True):
            hear(item)
