"""A wire between a client and a server that is cut at random: before what was asked arrives, in the middle of it, and before
or in the middle of the answer."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import random
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

FAULTS = ("request lost", "request cut", "reply lost", "reply cut")
CHUNK = 1 << 16


class Cutter:
    """Of what clients send, ``share`` meets a fault, and its connection ends with a reset. ``seen`` counts."""

    def __init__(self, port: int, *, share: float, seed: int) -> None:
        self._target = port
        self._share = share
        self._random = random.Random(seed)
        self._tasks: set[asyncio.Task[object]] = set()
        self.seen: collections.Counter[str] = collections.Counter()
        self.port = 0

    @property
    def cuts(self) -> int:
        return self.seen.total() - self.seen["none"]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        try:
            there, here = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            writer.transport.abort()
            return
        try:
            with contextlib.suppress(OSError):
                await self._carry(reader, writer, there, here)
        except asyncio.CancelledError:
            pass  # the wire is taken down
        finally:
            _reset(writer)
            here.transport.abort()

    async def _carry(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        there: asyncio.StreamReader,
        here: asyncio.StreamWriter,
    ) -> None:
        kept: asyncio.Future[float] = asyncio.get_running_loop().create_future()  # how much of the next answer
        answering = asyncio.create_task(self._answer(there, writer, kept))
        self._tasks.add(answering)
        try:
            while data := await reader.read(CHUNK):
                fault = self._random.choice(FAULTS) if self._random.random() < self._share else "none"
                self.seen[fault] += 1
                if fault == "request lost":
                    return
                if fault == "request cut":
                    here.write(data[: self._random.randrange(1, max(2, len(data)))])
                    await here.drain()
                    return
                if fault != "none" and not kept.done():
                    kept.set_result(0.0 if fault == "reply lost" else self._random.random())
                here.write(data)
                await here.drain()
                if fault != "none":
                    await asyncio.wait((answering,))
                    return
        finally:
            answering.cancel()
            self._tasks.discard(answering)

    async def _answer(
        self, there: asyncio.StreamReader, writer: asyncio.StreamWriter, kept: asyncio.Future[float]
    ) -> None:
        """Until the one of which only so much is to arrive: the server has done what it was asked."""
        with contextlib.suppress(OSError):
            while data := await there.read(CHUNK):
                if kept.done():
                    data = data[: int(len(data) * kept.result())]
                writer.write(data)
                await writer.drain()
                if kept.done():
                    return

    async def close(self) -> None:
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


@asynccontextmanager
async def cutter_before(port: int, *, share: float, seed: int) -> AsyncIterator[Cutter]:
    cutter = Cutter(port, share=share, seed=seed)
    server = await asyncio.start_server(cutter.serve, "127.0.0.1", 0)
    cutter.port = server.sockets[0].getsockname()[1]
    try:
        yield cutter
    finally:
        server.close()
        await cutter.close()


def _reset(writer: asyncio.StreamWriter) -> None:
    """As when a machine in between goes away."""
    end = writer.get_extra_info("socket")
    with contextlib.suppress(OSError):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
