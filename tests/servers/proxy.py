"""A wire between a client and a server that can be cut."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Literal

When = Literal["before", "after"]


class Wire:
    """Passes bytes on. ``cut_at`` arms it once: when the client sends ``marker``, the connection ends, either before the server
    gets it or when the server has had the time to do as it was told."""

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._marker: bytes | None = None
        self._when: When = "before"
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.port = 0
        self.cuts = 0
        self.is_down = False
        self.delay = 0.0  # seconds, each way

    def cut_at(self, marker: bytes, when: When) -> None:
        self._marker, self._when = marker, when

    def cut_all(self) -> None:
        for writer in self._writers:
            writer.transport.abort()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.is_down:
            writer.transport.abort()
            return
        there, here = await asyncio.open_connection(*self._target)
        self._writers |= {writer, here}
        back = asyncio.create_task(self._pass_back(there, writer))
        self._tasks.add(back)
        try:
            while data := await reader.read(1 << 16):
                if self._marker is not None and self._marker in data:
                    self._marker = None
                    self.cuts += 1
                    if self._when == "after":
                        back.cancel()
                        here.write(data)
                        await here.drain()
                        await asyncio.sleep(0.2)
                    break
                await asyncio.sleep(self.delay)
                here.write(data)
                await here.drain()
        except OSError:
            pass
        finally:
            back.cancel()
            self._tasks.discard(back)
            for end in (writer, here):
                end.transport.abort()
                self._writers.discard(end)

    async def _pass_back(self, there: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await there.read(1 << 16):
                await asyncio.sleep(self.delay)
                writer.write(data)
                await writer.drain()
        writer.transport.abort()


@asynccontextmanager
async def wire_to(host: str, port: int) -> AsyncIterator[Wire]:
    wire = Wire(host, port)
    server = await asyncio.start_server(wire.serve, "127.0.0.1", 0)
    wire.port = server.sockets[0].getsockname()[1]
    try:
        yield wire
    finally:
        wire.cut_all()
        server.close()
        await asyncio.sleep(0)
