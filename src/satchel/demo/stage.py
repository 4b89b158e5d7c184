"""What every scene of the demo works with: the store, the agent's processes, the checks, and what is printed."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

import satchel
from satchel import Principal, Session, SessionManager
from satchel.demo.checks import Check
from satchel.demo.process import AgentProcess
from satchel.demo.show import Show

TENANT = "demo"
ADA = Principal.user("ada", tenant_id=TENANT)
BOB = Principal.user("bob", tenant_id=TENANT)
DESK = Principal.agent("desk", tenant_id=TENANT, acting_for="ada")  # an agent of Ada's that runs in this process

LEASE = 30.0  # seconds
UNHURRIED = 120.0  # seconds for one answer of the agent, on a machine that is very busy

Interlude = Callable[["Stage"], Awaitable[None]]


class Stage:
    """One play of the demo in one folder.

    ``interludes`` is the hook for a test that wants to see a check fail: what to do to the store at a named moment,
    between two acts of a scene.
    """

    def __init__(self, folder: Path, show: Show, interludes: Mapping[str, Interlude] | None = None) -> None:
        self.folder = folder
        self.show = show
        self.checks: list[Check] = []
        self.session_id = ""  # of the scene that plays
        self._scene = 0
        self._interludes = interludes or {}
        self._processes: list[AgentProcess] = []

    @property
    def database(self) -> Path:
        return self.folder / "demo.db"

    @property
    def url(self) -> str:
        return f"sqlite:///{self.database}"

    def begin(self, number: int, title: str) -> None:
        self._scene = number
        self.show.scene(number, title)

    async def interlude(self, moment: str) -> None:
        if moment in self._interludes:
            await self._interludes[moment](self)

    # -- checks

    def check(self, name: str, *, expected: Any, found: Any) -> None:
        """A claim that holds if what was found is what was expected."""
        expected, found = (msgspec.to_builtins(value) for value in (expected, found))
        check = Check(scene=self._scene, name=name, ok=expected == found, expected=expected, found=found)
        self.checks.append(check)
        self.show.check(check)

    # -- the store

    @asynccontextmanager
    async def sessions(self, principal: Principal = ADA) -> AsyncIterator[SessionManager]:
        """The sessions of ``principal``, in a store that is opened here and now: nothing is remembered from before."""
        async with satchel.open(self.url) as store:
            yield SessionManager(store, principal)

    async def new_session(self, title: str) -> str:
        async with self.sessions() as sessions:
            self.session_id = (await sessions.create_session(title=title)).session_id
        return self.session_id

    async def read(self, session_id: str | None = None) -> Session:
        """The session as the store holds it."""
        async with self.sessions() as sessions:
            return await sessions.get_session(session_id or self.session_id)

    # -- the agent

    async def start_agent(self, agent: str, workplace: Path) -> AgentProcess:
        with self.show.waiting("starting an agent process"):
            process = await AgentProcess.start(
                store=self.url,
                agent=agent,
                workplace=workplace,
                tenant=TENANT,
                user=ADA.subject,
                log=self.folder / "agents.log",
            )
        self._processes.append(process)
        self.show.note(f"agent process {process.pid} is up: {agent} agent, scripted, with real tools")
        return process

    async def talk(self, process: AgentProcess, text: str, *, meaning: str, lease: float = LEASE) -> Session:
        """Ada says ``text``, which in English is ``meaning``; the agent's run is shown as it comes into the store. The
        session afterwards."""
        self.show.meanings[text] = meaning
        async with self.telling(), asyncio.timeout(UNHURRIED):
            await process.ask(do="answer", session_id=self.session_id, text=text, lease=lease)
        return await self.read()

    @asynccontextmanager
    async def telling(self) -> AsyncIterator[None]:
        """Show what comes into the session's log while the block runs, all of it when it ends."""
        async with self.sessions() as sessions:
            shown = (await sessions.get_session(self.session_id, include=())).last_seq

            async def follow() -> None:
                nonlocal shown
                async for event in sessions.follow(self.session_id, after=shown):
                    self.show.event(event)
                    shown = event.seq

            following = asyncio.create_task(follow())
            try:
                with self.show.waiting("the agent works"):
                    yield
            finally:
                following.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await following
            for event in await sessions.events(self.session_id, after=shown):
                self.show.event(event)

    async def end_processes(self) -> None:
        """Those that still run. Twice is fine."""
        await asyncio.gather(*(process.end() for process in self._processes))
