"""What every scene of the demo works with: the store, the servers on it, the checks, and what is printed."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import msgspec

import satchel
from satchel import Principal, Session, SessionManager, SessionNotFound
from satchel.demo.checks import Check
from satchel.demo.keys import ADA, Caller, Keys
from satchel.demo.process import ServerEnded, ServerProcess
from satchel.demo.served import Build, prepare, workplace_of
from satchel.demo.show import Show
from satchel.demo.stream import Stream, decoded

LEASE = 30.0  # seconds
UNHURRIED = 120.0  # seconds for one answer of the agent, on a machine that is very busy

Interlude = Callable[["Stage"], Awaitable[None]]


class Stage:
    """One play of the demo in one folder, on the store at ``store``: left out, a SQLite file in the folder.

    ``interludes`` is the hook for a test that wants to see a check fail: what to do to the store at a named moment,
    between two acts of a scene.
    """

    def __init__(
        self,
        folder: Path,
        show: Show,
        interludes: Mapping[str, Interlude] | None = None,
        *,
        store: str | None = None,
    ) -> None:
        self.folder = folder
        self.show = show
        self.database = folder / "demo.db"
        self.url = f"sqlite:///{self.database}" if store is None else store
        self.is_own_store = store is None
        self.checks: list[Check] = []
        self.session_id = ""  # of the scene that plays
        self.servers: list[ServerProcess] = []  # those that live; Ada's requests go to the first
        self._tenant = (
            "demo" if self.is_own_store else f"demo-{secrets.token_hex(4)}"
        )  # nobody else's, on a store of others
        self._keys = Keys(self._tenant)
        self._made: list[str] = []
        self._scene = 0
        self._lease = LEASE
        self._interludes = interludes or {}
        self._door = ""
        self._streams: list[Stream] = []
        self._http = httpx.AsyncClient(trust_env=False, timeout=60)  # a proxy is not for this machine's own address

    @property
    def tenant(self) -> str:
        return self._tenant

    @property
    def is_networked(self) -> bool:
        """Whether the store is a server of its own, which several machines may share."""
        return not self.url.startswith("sqlite:///")

    @property
    def shown_url(self) -> str:
        """The store's address without a password."""
        if not self.is_networked:
            return self.url
        parts = urlsplit(self.url)
        return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()

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

    # -- the store, behind the servers' backs

    def principal_of(self, caller: Caller) -> Principal:
        """Who the servers take for ``caller``."""
        return caller.principal(self._tenant)

    @asynccontextmanager
    async def behind(self, caller: Caller = ADA) -> AsyncIterator[SessionManager]:
        """The sessions of ``caller``, in the store itself, which is opened here and now: nothing is remembered from before,
        and no server is asked."""
        async with satchel.open(self.url) as store:
            yield SessionManager(store, self.principal_of(caller))

    async def read(self, session_id: str | None = None) -> Session:
        """The session as the store holds it."""
        async with self.behind() as sessions:
            return await sessions.get_session(session_id or self.session_id)

    # -- the servers

    async def open(self) -> None:
        """Make the keys of all who call."""
        async with satchel.open(self.url) as store:
            await self._keys.make(store)

    async def serve(self, *, lease: float = LEASE, also: bool = False) -> ServerProcess:
        """Start a server. Unless ``also``, Ada's requests go to it from now on."""
        self._lease = lease
        with self.show.waiting("starting a server process"):
            server = await self._start(0)
        if also:
            self.servers.append(server)
        else:
            self.servers.insert(0, server)
            self._door = server.url
        self.show.note(f"server process {server.pid} is up: satchel serve at {server.url}, with a worker inside")
        return server

    async def stand_by(self) -> None:
        """On a store that several machines share, a second server is there before the first is killed."""
        if self.is_networked:
            await self.serve(lease=self._lease, also=True)

    async def kill(self) -> tuple[ServerProcess, int]:
        """Kill the server that Ada's requests go to: who it was, and the exit status that the operating system tells."""
        server = self.servers.pop(0)
        status = await server.kill()
        self.show.note(f"server process {server.pid} killed with SIGKILL")
        return server, status

    async def go_on(self, killed: ServerProcess) -> ServerProcess:
        """Another server for Ada's requests: the one that stands by, or one that is started where the dead one was."""
        if not self.servers:
            with self.show.waiting("starting the server again"):
                self.servers.append(await self._start(0 if self.is_networked else killed.port))
        server = self.servers[0]
        self._door = server.url
        self.show.note(f"server process {server.pid} serves at {server.url}; it never saw this session")
        return server

    async def _start(self, port: int) -> ServerProcess:
        return await ServerProcess.start(
            store=self.url, workplaces=self._workplaces, log=self.folder / "server.log", lease=self._lease, port=port
        )

    def next_door(self) -> None:
        """Ada's requests go to another of the servers from now on; to the only one, if it is one."""
        at = next((number for number, server in enumerate(self.servers) if server.url == self._door), -1)
        self._door = self.servers[(at + 1) % len(self.servers)].url

    @property
    def _workplaces(self) -> Path:
        return self.folder / "workplaces"

    def workplace(self, build: Build, *, agent: str = "coding") -> Path:
        """Where the agent works in this session, built by ``build``."""
        path = workplace_of(self._workplaces, agent, self.session_id)
        prepare(path, build)
        return path

    # -- who calls

    @asynccontextmanager
    async def sessions(self, caller: Caller = ADA, *, at: ServerProcess | None = None) -> AsyncIterator[SessionManager]:
        """The sessions of ``caller``, over HTTP."""
        url = self._door if at is None else at.url
        async with satchel.connect(url, self._keys.of(caller), http=self._http) as connection:
            yield connection.sessions

    async def ask(
        self,
        method: str,
        path: str,
        *,
        caller: Caller | None = ADA,
        headers: Mapping[str, str] | None = None,
        body: Any = None,
    ) -> httpx.Response:
        """One request as it is, to see its status and headers. ``caller`` None: without a key."""
        sent = dict(headers or {})
        if caller is not None:
            sent["Authorization"] = f"Bearer {self._keys.of(caller)}"
        return await self._http.request(method, self._door + path, headers=sent, json=body)

    async def new_session(self, title: str) -> str:
        async with self.sessions() as sessions:
            self.session_id = (await sessions.create_session(title=title)).session_id
        self._made.append(self.session_id)
        return self.session_id

    def follow(self) -> Stream:
        """Ada's stream of the session, from its beginning: what comes is shown. It is closed at the scene's end."""
        stream = Stream(self._http, lambda: self._door, self.session_id, self._keys.of(ADA), self.show.event)
        self._streams.append(stream)
        return stream

    async def say(self, text: str, *, agent: str = "coding", key: str | None = None, wait: float = 0) -> httpx.Response:
        """Ada says it; the run that answers is READY, or as it is after ``wait`` seconds."""
        body = {"session_id": self.session_id, "message": text, "agent": agent, "wait": wait}
        answer = await self.ask("POST", "/v1/chat", headers={} if key is None else {"Idempotency-Key": key}, body=body)
        if answer.status_code not in (200, 202):
            raise ServerEnded(f"the server answered {answer.status_code}: {answer.text[:300]}")
        return answer

    async def talk(self, stream: Stream, text: str, *, meaning: str, agent: str = "coding") -> Session:
        """Ada says ``text``, which in English is ``meaning``; the run that answers is shown as it comes. The session
        afterwards."""
        self.show.meanings[text] = meaning
        with self.show.waiting("the agent works"):
            async with asyncio.timeout(UNHURRIED):
                answer = await self.say(text, agent=agent)
                await stream.run_ended(decoded(answer)["run"]["run_id"])
        return await self.read()

    # -- the end

    async def end_scene(self) -> None:
        """Streams and servers. Twice is fine."""
        streams, self._streams = self._streams, []
        for stream in streams:
            with contextlib.suppress(httpx.HTTPError):
                await stream.close()
        servers, self.servers = self.servers, []
        await asyncio.gather(*(server.end() for server in servers))

    async def close(self, *, keep: bool) -> None:
        """On a store that is not ours the keys go, and so do the sessions unless ``keep``."""
        await self._http.aclose()
        if self.is_own_store:
            return
        async with satchel.open(self.url) as store:
            if not keep:
                sessions = SessionManager(store, self.principal_of(ADA))
                for session_id in self._made:
                    with contextlib.suppress(SessionNotFound):
                        await sessions.delete_session(session_id, reason="the demo is over")
            await self._keys.revoke(store)
