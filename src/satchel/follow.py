"""Tail a session's log: read after N, wait for a hint or a while, read again. A lost hint costs time, never data.

Text that streams is read beside it, when the record says that there is some: an idle session costs no read more.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Protocol, TypeVar

import msgspec

from satchel.domain.event import Event
from satchel.domain.ids import SessionRef
from satchel.domain.record import SessionRecord
from satchel.domain.stream import OpenStream, StreamKey, TextDelta, TextPosition, text_of
from satchel.errors import ResyncRequired
from satchel.store import EventPage, PartialPage, Store

PAGE = 200
PIECES = 32  # of one message, read at once
PATIENCE = 5.0  # seconds between two looks when no hint comes

R = TypeVar("R", EventPage, PartialPage)


class Reader(Protocol):
    """Checks each page as any other read: ownership is asked again while it lasts, and a deleted session ends the following
    with SessionDeleted."""

    async def __call__(self, fetch: Callable[[], Awaitable[R]]) -> R: ...


class Follower:
    """Every event after ``after``, in order, for ever; with ``run_id`` those of one run, until it has ended.

    Who has seen what the log does not hold is told so by ResyncRequired: where a store cannot promise that what a reader saw stays,
    a failover may have taken it back.

    With ``text`` also what streams, from ``position`` on: each delta once it is stored, behind every event that was there
    when it was read and before the message that ends it. Held in memory: one page of each.
    """

    def __init__(
        self,
        store: Store,
        ref: SessionRef,
        read: Reader,
        *,
        after: int,
        run_id: str | None = None,
        text: bool = False,
        position: TextPosition | None = None,
    ) -> None:
        self._store = store
        self._ref = ref
        self._read = read
        self._after = after
        self._run_id = run_id
        self._text = text
        self._told: dict[StreamKey, int] = {} if position is None else {StreamKey(*position[:3]): position.offset}
        self._ended = False
        # Where a failover may take back what was not acknowledged yet, the last event that was seen is looked at again.
        self._looks_back = not store.capabilities.prefix_after_failover
        self._last: Event | None = None
        self._short: tuple[int, int] | None = None  # where the last look ended, and what the record counted

    async def follow(self) -> AsyncIterator[Event | TextDelta]:
        while not self._is_over():
            page = await self._page()
            for event in self._wanted(page):
                yield event
            record = page.record
            if len(page.events) == PAGE or record is None:
                continue
            self._pass_gap(page, record.last_seq)
            for stream in self._streams(record):
                while self._told.get(stream.key, 0) < stream.offset and not self._is_over():
                    for item in await self._next_text(stream):
                        yield item
            if not self._is_over():
                revision = record.revision if self._text else None
                await self._store.wait(self._ref, self._after, PATIENCE, revision=revision)

    def _is_over(self) -> bool:
        return self._ended

    async def _page(self, *, before: int | None = None) -> EventPage:
        """Raises ResyncRequired."""
        back = 1 if self._looks_back and self._after > 0 else 0
        page = await self._read(
            lambda: self._store.events(self._ref, after=self._after - back, before=before, limit=PAGE + back)
        )
        if page.record is None:
            return page
        first = page.events[0] if back and page.events else None
        there = first if first is not None and first.seq == self._after else None  # else its row is lost
        is_other = self._last is not None and there is not None and not there.is_corrupt and there != self._last
        if page.record.last_seq < self._after or is_other:
            raise ResyncRequired(session_id=self._ref.session_id, after=self._after, last_seq=page.record.last_seq)
        self._last = self._last or there
        return msgspec.structs.replace(page, events=page.events[:PAGE] if there is None else page.events[1:])

    def _wanted(self, page: EventPage) -> list[Event]:
        wanted: list[Event] = []
        for event in page.events:
            self._after = event.seq
            self._last = event if self._looks_back else None
            if self._run_id is None or event.run_id == self._run_id:
                wanted.append(event)
                if self._run_id is not None and event.kind == "run_ended":
                    self._ended = True
                    break
        return wanted

    def _pass_gap(self, page: EventPage, last_seq: int) -> None:
        """Rows at the log's end that the record counts and that are lost are passed by at the second look: who waits for them
        would look without a pause, for ever."""
        short = (self._after, last_seq)
        if len(page.events) == PAGE or self._after >= last_seq or self._ended:
            self._short = None
        elif self._short == short:
            self._after, self._short, self._last = last_seq, None, None
        else:
            self._short = short

    def _streams(self, record: SessionRecord) -> list[OpenStream]:
        """Those that are followed; what was told of others is forgotten."""
        if not self._text:
            return []
        self._told = {stream.key: self._told[stream.key] for stream in record.streams if stream.key in self._told}
        return [stream for stream in record.streams if self._run_id in (None, stream.run_id)]

    async def _next_text(self, stream: OpenStream) -> list[Event | TextDelta]:
        """What comes next of a message that is being said, behind the events that stand before it."""
        key = stream.key
        told = self._told.get(key, 0)
        page = await self._read(
            lambda: self._store.partial(
                self._ref, key.run_id, attempt=key.attempt, message=key.message, offset=told, limit=PIECES
            )
        )
        items: list[Event | TextDelta] = []
        if page.record is not None and page.record.last_seq > self._after:
            events = await self._page(before=page.record.last_seq + 1)
            items.extend(self._wanted(events))
            self._pass_gap(events, page.record.last_seq)
            if self._after < page.record.last_seq:
                return items  # more of them come first; the text is read again behind them
        if self._ended:
            return items
        text = text_of(page.pieces, start=told)
        if text:
            delta = TextDelta(run_id=key.run_id, attempt=key.attempt, message=key.message, offset=told, text=text)
            self._told[key] = delta.end
            items.append(delta)
        else:  # it is final by now, or cannot be read
            self._told[key] = stream.offset
        return items
