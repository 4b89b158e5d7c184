"""A service in this process, on a port of its own, and connections to it for everybody."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import socket
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import uvicorn
from litestar.connection import ASGIConnection

import satchel
from satchel import OpenStore, Principal, Unauthenticated
from satchel.client.connection import Connection
from satchel.http.app import app_of
from satchel.http.identity import Hooked, Identity
from satchel.http.protocol import protocol_with
from satchel.http.serve import address_of, listen
from satchel.http.service import Service
from satchel.http.settings import ServerSettings

GRACE = 0.5  # seconds in which what was asked is answered; then uvicorn's own patience begins
SETTINGS: dict[str, Any] = {
    "access_log": False,
    "requests_per_second": 0.0,
    "streams_per_user": 1_000,
    "runs_per_user": 0,
}


def key_of(who: Principal) -> str:
    """What the services here take for a key."""
    return base64.urlsafe_b64encode(msgspec.json.encode(who)).decode().rstrip("=")


def who_is(request: ASGIConnection[Any, Any, Any, Any]) -> Principal:
    token = request.headers.get("authorization", "").removeprefix("Bearer ")
    try:
        return msgspec.json.decode(base64.urlsafe_b64decode(token + "=="), type=Principal)
    except (ValueError, msgspec.DecodeError):
        raise Unauthenticated("no identity") from None


class _Server(uvicorn.Server):
    """Ends when it is told to and all is answered; its own look at both comes ten times a second."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.is_up = asyncio.Event()
        self.ending = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.is_up.set()

    async def main_loop(self) -> None:
        while not self.ending.is_set():
            await self.on_tick(0)  # the date
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.ending.wait(), 1.0)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for server in self.servers:
            server.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        deadline = time.monotonic() + GRACE
        while (self.server_state.connections or self.server_state.tasks) and time.monotonic() < deadline:  # noqa: ASYNC110  # uvicorn tells nobody
            await asyncio.sleep(0.001)
        if self.server_state.connections or self.server_state.tasks:
            await super().shutdown(sockets)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@asynccontextmanager
async def served(
    store: OpenStore, *, port: int = 0, identity: Identity | None = None, agents: Sequence[str] = (), **settings: Any
) -> AsyncIterator[str]:
    """The address at which ``store`` is served. ``agents``: names alone, nobody executes their runs."""
    service = Service(store, identity or Hooked(who_is), settings=ServerSettings(**SETTINGS | settings), agents=agents)
    listener = listen("127.0.0.1", port)
    config = uvicorn.Config(
        app_of(service),
        http=protocol_with(header_seconds=10.0, header_bytes=64 * 1024),
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        timeout_graceful_shutdown=1,
    )
    server = _Server(config)
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        await server.is_up.wait()
        yield address_of(listener)
    finally:
        service.drain()
        server.ending.set()
        await serving
        listener.close()


class Connections:
    """One for each principal, closed together."""

    def __init__(self, url: str, **options: Any) -> None:
        self.url = url
        self._options = options
        self._open: dict[Principal, Connection] = {}

    def __getitem__(self, who: Principal) -> Connection:
        if who not in self._open:
            self._open[who] = satchel.connect(self.url, key_of(who), **self._options)
        return self._open[who]

    async def close(self) -> None:
        for connection in self._open.values():
            await connection.close()
