"""A proxy between a client and a service that cuts connections, wherever it pleases."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

KINDS = ("request", "answer", "middle")


class CuttingProxy:
    """Of the exchanges that pass it, a ``share`` is cut: before the service hears of them, after it heard and before it
    answers, or in the middle of the answer. ``bytes_of_answers``: a cut comes after at most so many bytes of an answer."""

    def __init__(self, target: str, *, share: float, seed: int, bytes_of_answers: int, kinds: Sequence[str]) -> None:
        self._host, self._port = urlsplit(target).hostname or "", urlsplit(target).port or 0
        self._random = random.Random(seed)
        self._most = bytes_of_answers
        self._kinds = kinds
        self._busy: set[asyncio.Task[None]] = set()
        self.share = share
        self.cuts = dict.fromkeys(kinds, 0)

    async def pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._busy.add(task)
        try:
            # Cancelled by cut_all: its end is the end of this connection, and no fault.
            with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
                to_reader, to_writer = await asyncio.open_connection(self._host, self._port)
                try:
                    await self._exchange(reader, writer, to_reader, to_writer)
                finally:
                    to_writer.close()
        finally:
            writer.close()
            self._busy.discard(task)

    async def _exchange(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        to_reader: asyncio.StreamReader,
        to_writer: asyncio.StreamWriter,
    ) -> None:
        """One direction each; a cut ends the whole connection."""
        while True:
            request = await self._request(reader)
            if request is None:
                return
            cut = self._random.choice(self._kinds) if self._random.random() < self.share else None
            if cut == "request":
                self.cuts[cut] += 1
                return
            to_writer.write(request)
            await to_writer.drain()
            if cut == "answer":
                first = await to_reader.read(1)  # it is done by now
                self.cuts[cut] += bool(first)
                return
            left = self._random.randrange(1, self._most) if cut == "middle" else None
            if not await self._answer(to_reader, writer, left):
                return

    @staticmethod
    async def _request(reader: asyncio.StreamReader) -> bytes | None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(
            (int(line.split(b":")[1]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length")), 0
        )
        return head + await reader.readexactly(length)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, left: int | None) -> bool:
        """False: it was cut. A stream lasts until it is cut, or ends."""
        head = await reader.readuntil(b"\r\n\r\n")
        lines = head.lower().split(b"\r\n")
        length = next((int(line.split(b":")[1]) for line in lines if line.startswith(b"content-length")), None)
        rest: int | None = length if length is not None else 0 if b" 204 " in lines[0] else None
        part = head
        while True:
            if left is not None and len(part) >= left:
                writer.write(part[:left])
                await writer.drain()
                self.cuts["middle"] += 1
                return False
            if left is not None:
                left -= len(part)
            writer.write(part)
            await writer.drain()
            if rest == 0:
                return True
            part = await reader.read(65_536 if rest is None else rest)
            if not part:
                return False
            if rest is not None:
                rest -= len(part)

    async def cut_all(self) -> None:
        for task in list(self._busy):
            task.cancel()
        await asyncio.gather(*self._busy, return_exceptions=True)


@asynccontextmanager
async def cutting(
    target: str, *, share: float, seed: int = 1, bytes_of_answers: int = 400, kinds: Sequence[str] = KINDS
) -> AsyncIterator[tuple[CuttingProxy, str]]:
    """The proxy, and its address."""
    proxy = CuttingProxy(target, share=share, seed=seed, bytes_of_answers=bytes_of_answers, kinds=kinds)
    server = await asyncio.start_server(proxy.pass_on, "127.0.0.1", 0)
    try:
        yield proxy, f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        await proxy.cut_all()
        await server.wait_closed()
