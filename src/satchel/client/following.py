"""A session's log, followed over connections that may be cut: what came is never given again, and nothing is missed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import msgspec

from satchel.client.connection import Refused, Tries, load_httpx, name_of
from satchel.client.frames import Frame, frames_of
from satchel.client.snapshots import event_from
from satchel.client.understanding import understood
from satchel.domain.event import Event
from satchel.domain.stream import StreamKey, TextDelta, TextPosition
from satchel.errors import ResyncRequired, SatchelError, StoreUnavailable

if TYPE_CHECKING:
    from satchel.client.connection import Connection

TRIES = 1_000  # until the patience ends
RESTART = 60.0  # seconds that a service may take to be there again


class _Delta(msgspec.Struct, kw_only=True):
    run_id: str
    attempt: int
    message: int
    offset: int
    text: str


class _End(msgspec.Struct):
    reason: str
    last_seq: int = 0


_decode_delta = msgspec.json.Decoder(_Delta).decode
_decode_end = msgspec.json.Decoder(_End).decode


class Following:
    """Goes on behind the last event that was given out, and drops of the texts what was."""

    def __init__(
        self,
        server: Connection,
        session_id: str,
        path: str,
        *,
        after: int,
        run_id: str | None,
        text: bool,
        position: TextPosition | None,
    ) -> None:
        self._server = server
        self._path = path
        self._session_id = session_id
        self._about = {"session_id": session_id, "run_id": run_id}
        self._query = {"run_id": run_id, "text": text}
        self._after = after
        self._told: dict[StreamKey, int] = {} if position is None else {StreamKey(*position[:3]): position.offset}
        self._ended = False
        self._pause: float | None = None  # that the service asks for before we come back

    async def follow(self) -> AsyncIterator[Event | TextDelta]:
        httpx = load_httpx()
        tries = self._tries()
        while True:
            trouble: Exception | None = None
            try:
                async for item in self._one_connection():
                    tries = self._tries()  # it is there
                    if item is not None:
                        yield item
                if self._ended:
                    return
            except Refused as refused:
                trouble = refused.refusal.error(self._about)
                if not refused.refusal.is_worth_waiting:
                    raise trouble from None
                self._pause = refused.refusal.retry_after
            except httpx.TransportError as broken:
                trouble = broken
            if not await tries.next(self._pause):
                if isinstance(trouble, SatchelError):
                    raise trouble
                said = "" if trouble is None else f": {name_of(trouble)}"
                raise StoreUnavailable(f"the service cannot be reached{said}") from None
            self._pause = None

    def _tries(self) -> Tries:
        return Tries(max(RESTART, self._server.patience), most=TRIES)

    async def _one_connection(self) -> AsyncIterator[Event | TextDelta | None]:
        """None: a sign of life."""
        headers = {"Last-Event-ID": str(self._after)}
        async with self._server.stream(self._path, query=self._query, headers=headers, about=self._about) as chunks:
            if chunks is None:
                self._ended = True
                return
            async for frame in frames_of(chunks):
                yield self._read(frame)
                if self._ended or frame.event == "end":
                    return

    def _read(self, frame: Frame) -> Event | TextDelta | None:
        if frame.event == "end":
            # For all other ends the next connection is told why there is no more; or there is more.
            end = understood(_decode_end)(frame.data)
            if end.reason == "resync":
                raise ResyncRequired(session_id=self._session_id, after=self._after, last_seq=end.last_seq)
            self._ended = end.reason == "run_ended"
            return None
        if not frame.data:
            return None
        if frame.event == "text_delta":
            return self._new_text(understood(_decode_delta)(frame.data))
        event = event_from(frame.data)
        if event.seq <= self._after:
            return None
        self._after = event.seq
        self._forget(event)
        return event

    def _new_text(self, delta: _Delta) -> TextDelta | None:
        """What is new of it."""
        key = StreamKey(delta.run_id, delta.attempt, delta.message)
        told = self._told.get(key, 0)
        end = delta.offset + len(delta.text)
        if end <= told:
            return None
        self._told[key] = end
        skipped = max(0, told - delta.offset)
        return TextDelta(
            run_id=key.run_id,
            attempt=key.attempt,
            message=key.message,
            offset=delta.offset + skipped,
            text=delta.text[skipped:],
        )

    def _forget(self, event: Event) -> None:
        """Of texts that are final, or whose run is over, nothing comes any more."""
        if event.kind == "message" and event.streamed is not None:
            over = {key for key in self._told if (key.run_id, key.message) == (event.run_id, event.streamed)}
        elif event.kind == "run_ended":
            over = {key for key in self._told if key.run_id == event.run_id}
        else:
            return
        for key in over:
            del self._told[key]
