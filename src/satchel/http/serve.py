"""A server process: a store, the service over it, a worker beside it, and an orderly end."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import multiprocessing
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import ClassVar

import uvicorn

from satchel.domain.api_key import split_key
from satchel.errors import InvalidInput, SatchelError
from satchel.http.app import app_of
from satchel.http.identity import Credentials
from satchel.http.keys import KeyRing
from satchel.http.logs import AccessLines
from satchel.http.protocol import protocol_with
from satchel.http.service import Service
from satchel.http.settings import ServerSettings, Settings
from satchel.http.tokens import Tokens
from satchel.opened import OpenStore
from satchel.opening import open as open_store
from satchel.traces import traces_to
from satchel.worker import Served, Worker
from satchel.worker.heap import settle_heap

BACKLOG = 2048
DEVELOPER = "local"  # tenant and user of the key that is made at the first start

_log = logging.getLogger("satchel.http")


class AddressTaken(SatchelError):
    code: ClassVar[str] = "address_taken"

    def __init__(self, host: str, port: int, reason: str) -> None:
        super().__init__(f"cannot listen on {host}:{port}: {reason}")


class _Server(uvicorn.Server):
    """Signals are heeded by who runs it, and it says when it is up."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.is_up = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.is_up.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


Announce = Callable[[str, Path | None], None]


async def serve(
    settings: Settings,
    agents: Mapping[str, Served],
    *,
    announce: Announce,
    listener: socket.socket | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> None:
    """Serve until SIGTERM or SIGINT. ``announce`` is told the address and the file of the development key, once requests
    are answered. ``listener``: a socket that listens already, and stays its opener's. Raises AddressTaken."""
    server = settings.server
    sock = listen(server.host, server.port) if listener is None else listener
    try:
        async with (
            open_store(server.store, limits=settings.limits, policy=settings.session_policy()) as store,
            traces_to(server.traces) as traces,
        ):
            keys = KeyRing(store)
            tokens = None if settings.jwt is None else Tokens(settings.jwt)
            key_file = await development_key(keys, server.store) if tokens is None else None
            access_log = AccessLines(sys.stderr)
            service = Service(
                store,
                Credentials(keys, tokens),
                settings=server,
                agents=list(agents),
                access_log=access_log,
                traces=traces,
            )
            try:
                await _Hosting(service, store, server, agents, sock, say).run(
                    lambda: announce(address_of(sock), key_file)
                )
            finally:
                access_log.flush()
    finally:
        if listener is None:
            sock.close()


class _Hosting:
    """The HTTP server and the worker, side by side on one loop; either's end is the other's."""

    def __init__(
        self,
        service: Service,
        store: OpenStore,
        settings: ServerSettings,
        agents: Mapping[str, Served],
        listener: socket.socket,
        say: Callable[[str], None],
    ) -> None:
        self._service = service
        self._listener = listener
        self._say = say
        config = uvicorn.Config(
            app_of(service),
            http=protocol_with(header_seconds=settings.header_seconds, header_bytes=settings.header_bytes),
            ws="none",
            loop="none",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            lifespan="off",
            backlog=BACKLOG,
            timeout_keep_alive=int(settings.keep_alive_seconds),
            timeout_graceful_shutdown=int(settings.drain_seconds),
        )
        self._server = _Server(config)
        self._worker: Worker | None = None
        if agents:
            traces = service.traces
            self._worker = Worker(
                store,
                agents if traces is None else traces.agents(agents),
                concurrency=settings.concurrency,
                lease=settings.lease,
                grace=settings.drain_seconds,
            )
        self._asked = False

    async def run(self, ready: Callable[[], None]) -> None:
        duties = [asyncio.create_task(self._server.serve(sockets=[self._listener]))]
        if self._worker is not None:
            duties.append(asyncio.create_task(self._worker.run_forever()))
        with self._heeded_signals():
            up = asyncio.create_task(self._server.is_up.wait())
            try:
                await asyncio.wait([up, *duties], return_when=asyncio.FIRST_COMPLETED)
                if up.done() and not any(duty.done() for duty in duties):
                    settle_heap()
                    ready()
                await asyncio.wait(duties, return_when=asyncio.FIRST_COMPLETED)
            finally:
                up.cancel()
                self.stop()
                await asyncio.gather(*duties, return_exceptions=True)
        for duty in duties:
            duty.result()

    def stop(self) -> None:
        """Streams end, requests that are here are answered, runs have their grace time. Twice is fine."""
        self._service.drain()
        self._server.should_exit = True
        if self._worker is not None:
            self._worker.stop()

    @contextlib.contextmanager
    def _heeded_signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()

        def heed() -> None:
            if self._asked:
                os._exit(130)  # whatever still runs: its lease will pass
            self._asked = True
            self._say("no more requests are taken; those that are here are finished")
            self.stop()

        parent = multiprocessing.parent_process()
        if parent is not None:  # of several on one port: a parent that was killed must not leave us on it
            loop.add_reader(parent.sentinel, self.stop)
        heeded = []
        for number in (signal.SIGINT, signal.SIGTERM):
            with contextlib.suppress(NotImplementedError, ValueError, RuntimeError):  # Windows, or not the main thread
                loop.add_signal_handler(number, heed)
                heeded.append(number)
        try:
            yield
        finally:
            for number in heeded:
                loop.remove_signal_handler(number)
            if parent is not None:
                loop.remove_reader(parent.sentinel)


def listen(host: str, port: int) -> socket.socket:
    """Raises AddressTaken, and InvalidInput for a host that is none."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # With its protocol named, asyncio sets TCP_NODELAY: else an answer of two writes waits 40 ms for an acknowledgement.
    sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((host, port))
        sock.listen(BACKLOG)
    except (OSError, OverflowError) as error:
        sock.close()
        if isinstance(error, socket.gaierror):
            raise InvalidInput(f"cannot listen on {host!r}: {error.strerror}", field="server.host") from None
        raise AddressTaken(host, port, getattr(error, "strerror", None) or "no such port") from error
    sock.setblocking(False)
    return sock


def address_of(sock: socket.socket) -> str:
    host, port = sock.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


async def first_key(settings: Settings) -> Path | None:
    """``development_key`` before several processes serve the store."""
    async with open_store(settings.server.store) as store:
        return None if settings.jwt is not None else await development_key(KeyRing(store), settings.server.store)


def key_file_of(store_url: str) -> Path:
    """Where the development key of a store is kept: beside its file; in this folder, when it has none, under a name that
    another store has not."""
    kind, _, place = store_url.partition(":")
    if kind == "sqlite":
        return Path(f"{store_url.removeprefix('sqlite:///')}.key")
    if kind == "memory":
        return Path("satchel-memory.key")
    public = place.rpartition("@")[2]  # without a password
    return Path(f"satchel-{kind.partition('+')[0]}-{hashlib.sha256(public.encode()).hexdigest()[:8]}.key")


async def development_key(keys: KeyRing, store_url: str) -> Path | None:
    """At the first start, when the store has no keys: one for whoever develops here, in a file for its owner's eyes only.
    The file, if it is there. Where none can be written no key is made, which the log says."""
    path = key_file_of(store_url)
    if not await keys.kept():
        try:
            await _make_key(keys, path)
        except OSError as error:
            _log.warning("no key for development was made: %s cannot be written (%s)", path, error.strerror)
    return path if path.is_file() else None


async def _make_key(keys: KeyRing, path: Path) -> None:
    """Its file first: a key that nobody can read is nobody's. The file is whole or not there, and never readable by others, not
    even for a moment. Raises OSError."""
    fresh = path.with_name(f"{path.name}.{os.getpid()}.new")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    key = ""
    try:
        try:
            os.fchmod(descriptor, 0o600)
            key = await keys.create(tenant_id=DEVELOPER, role="agent", acting_for=DEVELOPER)
            os.write(descriptor, key.encode() + b"\n")
        finally:
            os.close(descriptor)
        fresh.replace(path)
    except BaseException:
        fresh.unlink(missing_ok=True)
        if key:
            await keys.revoke(split_key(key)[0])
        raise
