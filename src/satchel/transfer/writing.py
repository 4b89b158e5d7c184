"""Events, replayed into a session chunk by chunk. A new one is seen by nobody before its last; one that was seen before stays
so, and is at each chunk what it was at the source after the same event."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from satchel.access import Access
from satchel.domain.arrival import arriving, check_readable, close, hidden, shown
from satchel.domain.bodies import SessionTransferred, TitleChanged, read_body
from satchel.domain.decisions.imports import OVERTAKEN, WriteChunk
from satchel.domain.event import Event
from satchel.domain.idempotency import Answer
from satchel.domain.message import Draft
from satchel.domain.record import SessionRecord
from satchel.domain.replay import Replay
from satchel.domain.state import Clock, Effect
from satchel.errors import StoreBusy

CHUNK_EVENTS = 200
CHUNK_BYTES = 2 * 1024 * 1024

_encode = msgspec.json.Encoder().encode


class Writer:
    """``written`` is what a former call left; if it is not hidden it is never hidden, and ``former`` is its metadata. ``first``: the key and fingerprint that the first chunk is written under, if
    the caller has one. ``over``: the revision of a record whose place it takes. ``replayed``: another call had written this
    before."""

    def __init__(
        self,
        access: Access,
        replay: Replay,
        *,
        metadata: bytes,
        written: SessionRecord | None,
        clock: Clock,
        first: Mapping[str, Any] | None = None,
        over: int | None = None,
        former: bytes = b"",
    ) -> None:
        self._access = access
        self._over = over
        self._first = first
        self._metadata = metadata
        self._clock = clock
        self._done = 0 if written is None else written.last_seq
        self._seen = None if written is None or written.hidden else written
        self._former: bytes | None = former
        self._replay = replay
        self._chunk: list[Event] = []
        self._bytes = 0
        self.replayed = False

    async def add(self, event: Event, draft: Draft | None = None) -> None:
        if event.seq > self._done and self._seen is not None:
            await self._before(event, self._seen)
        self._replay.take(event, draft)
        if event.seq <= self._done:
            if event.seq == self._done:
                self._replay.take_rows()  # they are there
            return
        self._chunk.append(event)
        self._bytes += len(event.body) + len(event.metadata or b"")
        if self._seen is None and self._is_full:
            await self._write(hidden(self._replay, self._clock))

    @property
    def _is_full(self) -> bool:
        return len(self._chunk) >= CHUNK_EVENTS or self._bytes >= CHUNK_BYTES

    async def _before(self, event: Event, seen: SessionRecord) -> None:
        """What is seen ends with a whole version. Title, owner and metadata stand in no log but as changes: they go on from
        what is there."""
        record = self._replay.state.existing
        if self._former is not None:
            self._replay.state.metadata, self._former = self._former, None
        if self._is_full and event.version != record.version:
            await self._write(arriving(self._replay, self._clock, title=seen.title, user_id=seen.user_id))
        if event.kind == "title_changed":
            self._seen = msgspec.structs.replace(seen, title=read_body(event.body, TitleChanged).title)
        elif event.kind == "session_transferred":
            self._seen = msgspec.structs.replace(seen, user_id=read_body(event.body, SessionTransferred).to)

    async def finish(self, *, waiting: Mapping[str, bytes], title: str, active: bool = False) -> SessionRecord:
        """Close what is open, and show the session: under ``title``, and ``active`` whatever the log ended with."""
        self._chunk.extend(close(self._replay, self._clock, waiting=waiting, title=title, active=active))
        record = shown(self._replay, self._clock)
        await self._write(record, last=True)
        return record

    async def _write(self, record: SessionRecord, *, last: bool = False) -> None:
        runs, calls = self._replay.take_rows()
        check_readable(record, runs, calls)
        chunk = Effect(
            record=record,
            answer=Answer(version=record.version, at=record.updated_at),
            events=tuple(self._chunk),
            runs=runs,
            calls=calls,
            working_memory=self._replay.working_memory if last or record.arriving else None,
            metadata=self._metadata if last else self._replay.state.metadata if record.arriving else None,
        )
        decision = WriteChunk(
            ref=record.ref,
            principal=self._access.principal,
            **(self._access.key(None) if self._first is None or self._done > 0 else self._first),
            over=self._over,
            start=self._done,
            chunk=chunk,
            bytes_written=self._bytes,
        )
        done = await self._access.submit(decision)
        if done.value == OVERTAKEN and not last:
            raise StoreBusy("another call is writing this session at the same time; repeat this one later")
        self.replayed = self.replayed or done.replayed or done.value == OVERTAKEN
        self._done = record.last_seq
        self._chunk = []
        self._bytes = 0
