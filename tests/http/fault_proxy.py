"""A proxy between a client and a server that breaks connections: before the request arrives, after its effect, or in the
middle of the reply."""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import struct
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

FAULTS = ("request lost", "request cut", "reply lost", "reply cut")


class FaultProxy:
    """``share`` of the connections break, each in one of the ways. ``seen`` counts them."""

    def __init__(self, port: int, *, share: float, seed: int) -> None:
        self.upstream = port
        self.share = share
        self.seen: Counter[str] = Counter()
        self._random = random.Random(seed)
        self._tasks: set[asyncio.Task[object]] = set()
        self.port = 0

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        fault = self._random.choice(FAULTS) if self._random.random() < self.share else "none"
        self.seen[fault] += 1
        try:
            with contextlib.suppress(OSError):
                await self._carry(reader, writer, fault)
        finally:
            writer.close()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, fault: str) -> None:
        if fault == "request lost":
            await reader.read(65536)
            return _break(writer)
        ours, theirs = await asyncio.open_connection("127.0.0.1", self.upstream)
        try:
            if fault == "request cut":
                data = await reader.read(65536)
                theirs.write(data[: self._random.randrange(1, max(2, len(data)))])
                await theirs.drain()
                return _break(writer)
            sending = asyncio.create_task(_copy(reader, theirs))
            try:
                while data := await ours.read(65536):
                    if fault != "none":  # the server has answered: its effect is there
                        kept = 0 if fault == "reply lost" else self._random.randrange(len(data))
                        writer.write(data[:kept])
                        await writer.drain()
                        return _break(writer)
                    writer.write(data)
                    await writer.drain()
            finally:
                sending.cancel()
        finally:
            theirs.close()

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @classmethod
    @asynccontextmanager
    async def before(cls, port: int, *, share: float, seed: int) -> AsyncIterator[FaultProxy]:
        proxy = cls(port, share=share, seed=seed)
        server = await asyncio.start_server(proxy._serve, "127.0.0.1", 0)
        proxy.port = server.sockets[0].getsockname()[1]
        try:
            yield proxy
        finally:
            server.close()
            await proxy.close()
            await server.wait_closed()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()


def _break(writer: asyncio.StreamWriter) -> None:
    """With a reset, as when a machine in between goes away."""
    sock = writer.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
