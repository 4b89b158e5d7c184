"""Server-sent events: what follows a session's log over one connection.

A pump reads the log and fills a queue that is bounded by bytes; the sender empties it into the connection. Only events of
the log carry an id, so that a client that comes back with its Last-Event-ID loses and repeats nothing. Ownership is asked
with every read of the log, who the caller is with every heartbeat.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import AsyncIterator
from contextlib import ExitStack
from typing import Literal

from satchel.domain.event import Event
from satchel.domain.stream import TextDelta
from satchel.errors import (
    NotAllowed,
    NotFound,
    ResyncRequired,
    SatchelError,
    SessionDeleted,
    StoreError,
    Unauthenticated,
)
from satchel.http.answers import encode, event_json
from satchel.http.asgi import Receive, Scope, Send
from satchel.http.call import Call

RETRY = 2000  # milliseconds after which a client that was cut off comes back
PATIENCE = 10.0  # seconds that a reader may take for what is queued, once the queue is full
LAST_WORD = 10.0  # and then for the last word, before it is left
HEARTBEAT = b": still here\n\n"
END_KINDS = frozenset({"run_ended"})

_log = logging.getLogger("satchel.http")

EndReason = Literal["run_ended", "gone", "lagged", "resync", "unauthorized", "unavailable"]

HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"x-accel-buffering", b"no"),
]


def event_frame(event: Event | TextDelta) -> bytes:
    """Text that is being said has no id: it is given again, with its offsets, to who comes back before it is final."""
    if isinstance(event, TextDelta):
        return b"event: text_delta\ndata: %s\n\n" % encode(event.to_dict())
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (event.seq, event.kind.encode(), event_json(event))


def end_frame(reason: EndReason, **facts: object) -> bytes:
    return b"event: end\ndata: %s\n\n" % encode({"reason": reason} | facts)


class Lagged(Exception):
    """The reader is slower than the log."""


class Pipe:
    """Frames that wait for the connection: at most ``most`` bytes, or one frame."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._frames: deque[bytes] = deque()
        self._size = 0
        self._changed = asyncio.Event()
        self._is_closed = False

    async def put(self, frame: bytes) -> None:
        """Waits for room. Raises Lagged when there is none for too long."""
        if self._frames and self._size + len(frame) > self._most:
            try:
                async with asyncio.timeout(PATIENCE):
                    while self._frames and self._size + len(frame) > self._most:
                        await self._wait()
            except TimeoutError:
                raise Lagged from None
        self.push(frame)

    def drop(self) -> None:
        """What waits: who comes back is given it again."""
        self._frames.clear()
        self._size = 0

    def push(self, frame: bytes) -> None:
        """Whether there is room or not: a last word."""
        self._frames.append(frame)
        self._size += len(frame)
        self._changed.set()

    def close(self) -> None:
        self._is_closed = True
        self._changed.set()

    async def take(self, timeout: float) -> bytes | None:
        """All that is there; empty after ``timeout`` seconds without anything; None at the end."""
        if not self._frames and not self._is_closed:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout):
                    while not self._frames and not self._is_closed:
                        await self._wait()
        if not self._frames:
            return None if self._is_closed else b""
        taken: list[bytes] = []
        size = 0
        while self._frames and size < 256 * 1024:
            frame = self._frames.popleft()
            size += len(frame)
            taken.append(frame)
        self._size -= size
        self._changed.set()
        return b"".join(taken)

    async def _wait(self) -> None:
        self._changed.clear()
        await self._changed.wait()


class EventStream:
    """An ASGI answer. ``first`` is sent, then ``events``, then the end frame of a stream that has an end. ``place`` is closed
    then."""

    def __init__(
        self,
        call: Call,
        events: AsyncIterator[Event | TextDelta],
        place: ExitStack,
        *,
        ends_with_run: bool,
        first: bytes = b"",
    ) -> None:
        self._call = call
        self._events = events
        self._place = place
        self._ends_with_run = ends_with_run
        self._first = first

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        service = self._call.service
        with self._place:
            self._call.visit.is_stream = True
            await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
            await _send(send, b"retry: %d\n\n" % RETRY + self._first)
            pipe = Pipe(service.settings.stream_bytes)
            draining = asyncio.create_task(self._drain(pipe, send))
            duties = [
                asyncio.create_task(self._pump(pipe, draining)),
                draining,
                asyncio.create_task(_gone(receive)),
                asyncio.create_task(service.drained()),
            ]
            try:
                await asyncio.wait(duties[1:], return_when=asyncio.FIRST_COMPLETED)
            finally:
                for duty in duties:
                    duty.cancel()
                outcomes = await asyncio.gather(*duties, return_exceptions=True)
            for outcome in outcomes:
                if isinstance(outcome, Exception) and not isinstance(outcome, OSError):  # else the client has left
                    _log.error("a stream of events broke off", exc_info=outcome)
            with contextlib.suppress(OSError, TimeoutError):
                async with asyncio.timeout(LAST_WORD):
                    await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _pump(self, pipe: Pipe, draining: asyncio.Task[None]) -> None:
        try:
            async for event in self._events:
                await pipe.put(event_frame(event))
            if self._ends_with_run:
                pipe.push(end_frame("run_ended"))
        except Lagged:
            pipe.drop()
            pipe.push(end_frame("lagged"))
            asyncio.get_running_loop().call_later(LAST_WORD, draining.cancel)  # the reader must have taken it by then
        except (SessionDeleted, NotFound):
            pipe.push(end_frame("gone"))
        except ResyncRequired as ahead:
            pipe.push(end_frame("resync", last_seq=ahead.last_seq))
        except StoreError:
            pipe.push(end_frame("unavailable"))
        finally:
            pipe.close()

    async def _drain(self, pipe: Pipe, send: Send) -> None:
        heartbeat = self._call.service.settings.heartbeat_seconds
        loop = asyncio.get_running_loop()
        ask_at = loop.time() + heartbeat
        while (frames := await pipe.take(heartbeat)) is not None:
            await _send(send, frames or HEARTBEAT)
            if loop.time() >= ask_at:
                if not await self._is_still_the_caller():
                    await _send(send, end_frame("unauthorized"))
                    return
                ask_at = loop.time() + heartbeat

    async def _is_still_the_caller(self) -> bool:
        """A key may have been revoked, or have expired, since the stream began."""
        try:
            return await self._call.service.identity(self._call.scope) == self._call.principal
        except (Unauthenticated, NotAllowed):
            return False
        except SatchelError:
            return True  # the store is away: it is asked again at the next heartbeat


async def _send(send: Send, body: bytes) -> None:
    await send({"type": "http.response.body", "body": body, "more_body": True})


async def _gone(receive: Receive) -> None:
    """Until the client has left."""
    while (await receive())["type"] != "http.disconnect":
        pass
