"""Requests per second of ``satchel serve``, beside a bare echo on the same HTTP server, over the same connections."""

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

_ECHO = """
import socket, sys
import uvicorn

async def echo(scope, receive, send):
    body = b""
    while True:
        message = await receive()
        body += message.get("body", b"")
        if not message.get("more_body"):
            break
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})

listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)  # for TCP_NODELAY
listener.bind(("127.0.0.1", 0))
listener.listen(2048)
print(f"http://127.0.0.1:{listener.getsockname()[1]}/", flush=True)
config = uvicorn.Config(echo, http="httptools", ws="none", loop="none", lifespan="off", log_config=None, access_log=False)
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
        settings = Path(folder, "satchel.toml")
        settings.write_text("[server]\nrequests_per_second = 1000000\nburst = 1000000\n")  # noqa: ASYNC240  # a small local file
        log = os.open(f"{folder}/server.log", os.O_WRONLY | os.O_CREAT)
        serve = (sys.executable, "-m", "satchel", "serve", "--no-agents", "--port", "0", "--store", "sqlite:///a.db")
        async with (
            process(*serve, cwd=folder, errors=log) as ours,
            process(sys.executable, "-c", _ECHO, cwd=folder) as echo,
        ):
            os.close(log)
            return await _figures(ours, echo, Path(folder, "a.db.key").read_text().strip(), rounds, each)  # noqa: ASYNC240


async def _figures(ours: str, echo: str, key: str, rounds: int, each: int) -> list[Figure]:
    message = json.dumps({"role": "user", "content": "x" * 400}).encode()
    session = (await _once(ours, request("POST", "/v1/sessions", key, b"{}")))["session_id"]
    sessions = [
        (await _once(ours, request("POST", "/v1/sessions", key, b"{}")))["session_id"] for _ in range(CONNECTIONS)
    ]
    for _ in range(50):
        await _once(ours, request("POST", f"/v1/sessions/{session}/messages", key, message))
    page = await _once(ours, request("GET", f"/v1/sessions/{session}/messages?limit=50", key))
    figures: list[Figure] = []
    kinds = {
        "http.append": (
            [request("POST", f"/v1/sessions/{one}/messages", key, message) for one in sessions],
            message,
            0.28,
        ),
        "http.get": ([request("GET", f"/v1/sessions/{session}?include=", key)] * CONNECTIONS, b"{}", 0.4),
        "http.messages50": (
            [request("GET", f"/v1/sessions/{session}/messages?limit=50", key)] * CONNECTIONS,
            json.dumps(page).encode(),
            0.35,
        ),
    }
    for name, (requests, body, reach) in kinds.items():
        bare = [request("POST", "/", key, body)] * CONNECTIONS
        alone: list[float] = []

        async def measure_ours(requests: list[bytes] = requests, alone: list[float] = alone) -> float:
            mean, seconds = await load(ours, requests, each)
            alone.extend(seconds)
            return mean * 1e6

        async def measure_echo(bare: list[bytes] = bare) -> float:
            return (await load(echo, bare, each))[0] * 1e6

        await measure_ours()
        alone.clear()
        mine, theirs = await in_turn(measure_ours, measure_echo, rounds=rounds)
        figures.append(compared(name, "µs a request", mine, theirs, reach=reach))
        quantiles = statistics.quantiles(alone, n=100)
        figures.append(bounded(f"{name}.p99", "× p50", quantiles[98] / quantiles[49], bound=10))
    return figures


async def _once(url: str, sent: bytes) -> dict[str, str]:
    host, port = url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(sent)
    head = await reader.readuntil(b"\r\n\r\n")
    found = re.search(rb"content-length: (\d+)", head)
    assert found is not None
    body = await reader.readexactly(int(found[1]))
    writer.close()
    await writer.wait_closed()
    answer: dict[str, str] = json.loads(body)
    return answer
