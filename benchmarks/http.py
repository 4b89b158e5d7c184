"""Requests of ``satchel serve``, beside a bare echo of one message in the same framework, over the same connections."""

from __future__ import annotations

import asyncio
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

from benchmarks.figures import Figure, bounded, compared, in_turn

CONNECTIONS = 32
MESSAGE = json.dumps({"role": "user", "content": "x" * 400}).encode()

# The same framework on the same HTTP server, as one writes it: a route that takes JSON and answers with it.
_ECHO = """
import socket
from typing import Any

import uvicorn
from litestar import Litestar, post

@post("/", status_code=200)
async def echo(data: dict[str, Any]) -> dict[str, Any]:
    return data

app = Litestar([echo], openapi_config=None, logging_config=None)
listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)  # for TCP_NODELAY
listener.bind(("127.0.0.1", 0))
listener.listen(2048)
print(f"http://127.0.0.1:{listener.getsockname()[1]}/", flush=True)
config = uvicorn.Config(app, http="httptools", ws="none", loop="none", lifespan="off", log_config=None, access_log=False)
uvicorn.Server(config).run(sockets=[listener])
"""


class Client(asyncio.Protocol):
    """One connection that sends the same request again as soon as the answer is whole."""

    def __init__(self, request: bytes, count: int) -> None:
        self._request = request
        self._left = count
        self._buffer = b""
        self._sent = 0.0
        self.seconds: list[float] = []
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._send()

    def _send(self) -> None:
        self._sent = time.perf_counter()
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head = self._buffer.find(b"\r\n\r\n")
        if head < 0:
            return
        length = int(self._buffer[self._buffer.index(b"content-length: ") + 16 :].split(b"\r\n", 1)[0])
        if len(self._buffer) < head + 4 + length:
            return
        assert self._buffer.startswith(b"HTTP/1.1 2"), self._buffer[:500]
        self.seconds.append(time.perf_counter() - self._sent)
        self._buffer = b""
        self._left -= 1
        if self._left:
            self._send()
        else:
            self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.done.done():
            self.done.set_result(None)


async def load(url: str, requests: Sequence[bytes], each: int) -> tuple[float, list[float]]:
    """Seconds for one request (all connections together), and of each by itself."""
    port = int(url.rpartition(":")[2].strip("/"))
    loop = asyncio.get_running_loop()
    began = time.perf_counter()
    clients = [
        (await loop.create_connection(partial(Client, request, each), "127.0.0.1", port))[1] for request in requests
    ]
    await asyncio.gather(*(client.done for client in clients))
    seconds = [one for client in clients for one in client.seconds]
    assert len(seconds) == each * len(requests)
    return (time.perf_counter() - began) / len(seconds), seconds


def request(method: str, path: str, key: str, body: bytes = b"") -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: 127.0.0.1", f"Authorization: Bearer {key}"]
    if body:
        lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
    return "\r\n".join([*lines, "", ""]).encode() + body


@asynccontextmanager
async def process(*command: str, cwd: str, errors: int = subprocess.DEVNULL) -> AsyncIterator[str]:
    """The address that the process prints."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SATCHEL_")}
    running = await asyncio.create_subprocess_exec(
        *command, cwd=cwd, env=environment, stdout=subprocess.PIPE, stderr=errors
    )
    assert running.stdout is not None
    try:
        found = re.search(r"http://[0-9.:]+", (await running.stdout.readline()).decode())
        assert found is not None
        yield found[0]
    finally:
        running.kill()
        await running.wait()


async def http(*, rounds: int, each: int) -> list[Figure]:
    """With authentication, limits, metrics and a log line for each request."""
    with tempfile.TemporaryDirectory() as folder:
        async with _served(folder, "a.db") as ours, process(sys.executable, "-c", _ECHO, cwd=folder) as echo:
            figures = await _figures(*ours, echo, rounds, each)
            async with _served(folder, "b.db", "--workers", "2") as several:
                return [*figures, await _by_several(ours, several, rounds, each)]


_Server = tuple[str, str]  # its address, and a key for it


@asynccontextmanager
async def _served(folder: str, file: str, *flags: str) -> AsyncIterator[_Server]:
    settings = Path(folder, "satchel.toml")
    settings.write_text("[server]\nrequests_per_second = 1000000\nburst = 1000000\n")  # noqa: ASYNC240  # a small local file
    log = os.open(f"{folder}/{file}.log", os.O_WRONLY | os.O_CREAT)
    command = ("-m", "satchel", "serve", "--no-agents", "--port", "0", "--store", f"sqlite:///{file}", *flags)
    try:
        async with process(sys.executable, *command, cwd=folder, errors=log) as address:
            yield address, Path(folder, f"{file}.key").read_text().strip()  # noqa: ASYNC240  # the same
    finally:
        os.close(log)


async def _by_several(one: _Server, several: _Server, rounds: int, each: int) -> Figure:
    """Appends to two processes on one file and one port, beside those to one. Each is in its session, once."""
    sessions = [await _sessions(*server) for server in (one, several)]
    counts = [0, 0]

    async def measure(number: int) -> float:
        url, key = (one, several)[number]
        counts[number] += each
        return (await load(url, _appends(sessions[number], key), each))[0] * 1e6

    for number in (0, 1):
        await measure(number)
    ours, limits = await in_turn(partial(measure, 1), partial(measure, 0), rounds=rounds)
    for (url, key), made, count in zip((one, several), sessions, counts, strict=True):
        for session in made:
            found = await _once(url, request("GET", f"/v1/sessions/{session}?include=", key))
            assert found["last_seq"] == count, found
    return compared("http.append.workers", "µs a request", ours, limits, reach=0.9)


async def _figures(ours: str, key: str, echo: str, rounds: int, each: int) -> list[Figure]:
    session = (await _once(ours, request("POST", "/v1/sessions", key, b"{}")))["session_id"]
    sessions = await _sessions(ours, key)
    for _ in range(50):
        await _once(ours, request("POST", f"/v1/sessions/{session}/messages", key, MESSAGE))
    figures: list[Figure] = []
    kinds = {
        "http.append": (_appends(sessions, key), 0.28),
        "http.get": ([request("GET", f"/v1/sessions/{session}?include=", key)] * CONNECTIONS, 0.4),
        "http.messages50": (
            [request("GET", f"/v1/sessions/{session}/messages?limit=50", key)] * CONNECTIONS,
            0.35,
        ),
    }
    bare = [request("POST", "/", key, MESSAGE)] * CONNECTIONS
    for name, (requests, reach) in kinds.items():
        alone: list[float] = []

        async def measure_ours(requests: list[bytes] = requests, alone: list[float] = alone) -> float:
            mean, seconds = await load(ours, requests, each)
            alone.extend(seconds)
            return mean * 1e6

        async def measure_echo() -> float:
            return (await load(echo, bare, each))[0] * 1e6

        await measure_ours()
        alone.clear()
        mine, theirs = await in_turn(measure_ours, measure_echo, rounds=rounds)
        figures.append(compared(name, "µs a request", mine, theirs, reach=reach))
        quantiles = statistics.quantiles(alone, n=100)
        figures.append(bounded(f"{name}.p99", "× p50", quantiles[98] / quantiles[49], bound=10))
    return figures


async def _sessions(url: str, key: str) -> list[str]:
    """A new one for each connection."""
    return [
        str((await _once(url, request("POST", "/v1/sessions", key, b"{}")))["session_id"]) for _ in range(CONNECTIONS)
    ]


def _appends(sessions: Sequence[str], key: str) -> list[bytes]:
    return [request("POST", f"/v1/sessions/{session}/messages", key, MESSAGE) for session in sessions]


async def _once(url: str, sent: bytes) -> dict[str, str | int]:
    host, port = url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(sent)
    head = await reader.readuntil(b"\r\n\r\n")
    found = re.search(rb"content-length: (\d+)", head)
    assert found is not None
    body = await reader.readexactly(int(found[1]))
    writer.close()
    await writer.wait_closed()
    answer: dict[str, str | int] = json.loads(body)
    return answer
