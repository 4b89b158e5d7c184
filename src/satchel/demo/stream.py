"""A browser's view of a session: server-sent events, and after a cut on from the last one that came."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx
import msgspec

from satchel import Event
from satchel.client.frames import frames_of
from satchel.client.snapshots import event_from

AGAIN = 0.1  # seconds before the next try, when a server is away


class Stream:
    """Follows one session from its beginning at whatever address ``door`` gives, and hands each event to ``show``."""

    def __init__(
        self, http: httpx.AsyncClient, door: Callable[[], str], session_id: str, key: str, show: Callable[[Event], None]
    ) -> None:
        self._http = http
        self._door = door
        self._path = f"/v1/sessions/{session_id}/events"
        self._key = key
        self._show = show
        self._came = asyncio.Condition()
        self._task = asyncio.create_task(self._follow())
        self.seqs: list[int] = []  # as they came
        self.resumed_after: list[int] = []  # what Last-Event-ID said, on each connection after the first
        self.ended_runs: set[str] = set()

    async def run_ended(self, run_id: str) -> None:
        """Raises what ended the stream before."""
        await self._until(lambda: run_id in self.ended_runs)

    async def reached(self, seq: int) -> None:
        await self._until(lambda: bool(self.seqs) and self.seqs[-1] >= seq)

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.wait((self._task,))

    async def _until(self, holds: Callable[[], bool]) -> None:
        async def wait() -> None:
            async with self._came:
                await self._came.wait_for(holds)

        waiting = asyncio.create_task(wait())
        await asyncio.wait({waiting, self._task}, return_when=asyncio.FIRST_COMPLETED)
        if not waiting.done():
            waiting.cancel()
            self._task.result()
            raise ConnectionError("the stream ended")
        await waiting

    async def _follow(self) -> None:
        is_first = True
        while True:
            with contextlib.suppress(httpx.TransportError):
                headers = {"Authorization": f"Bearer {self._key}", "Accept": "text/event-stream"}
                if self.seqs:
                    headers["Last-Event-ID"] = str(self.seqs[-1])
                timeout = httpx.Timeout(10, read=60)
                async with self._http.stream(
                    "GET", self._door() + self._path, headers=headers, timeout=timeout
                ) as answer:
                    if answer.status_code < 500:
                        answer.raise_for_status()
                        if not is_first:
                            self.resumed_after.append(self.seqs[-1] if self.seqs else 0)
                        is_first = False
                        await self._read(answer.aiter_raw())
            await asyncio.sleep(AGAIN)

    async def _read(self, chunks: AsyncIterator[bytes]) -> None:
        async for frame in frames_of(chunks):
            if not frame.data or frame.event in ("end", "text_delta"):
                continue
            event = event_from(frame.data)
            async with self._came:
                self.seqs.append(event.seq)
                if event.kind == "run_ended" and event.run_id is not None:
                    self.ended_runs.add(event.run_id)
                self._show(event)
                self._came.notify_all()


def decoded(answer: httpx.Response) -> dict[str, Any]:
    """The members of a JSON answer."""
    return msgspec.json.decode(answer.content, type=dict[str, Any])
