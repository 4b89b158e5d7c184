"""Events, replayed into a session chunk by chunk. A new one is seen by nobody before its last; one that was seen before stays
so, and is at each chunk what it was at the source after the same event."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from satchel.access import Access
from satchel.domain.bodies import SessionTransferred, TitleChanged, read_body
from satchel.domain.clock import DAY
from satchel.domain.decisions.imports import OVERTAKEN, WriteChunk
from satchel.domain.edit import OPERATOR, Edit, with_entries
from satchel.domain.event import Event
from satchel.domain.idempotency import Answer
from satchel.domain.json_text import NO_JSON, raw_json
from satchel.domain.message import Draft
from satchel.domain.record import SessionRecord, decode_record, encode_record
from satchel.domain.replay import Replay
from satchel.domain.replayed_runs import MOVED
from satchel.domain.run import Run, RunError, RunRow
from satchel.domain.session import session_from
from satchel.domain.state import Clock, Effect
from satchel.domain.tool_call import CallRow, ToolCall
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


def hidden(replay: Replay, clock: Clock) -> SessionRecord:
    return msgspec.structs.replace(
        replay.state.existing, hidden=True, sweep_at=clock.now + DAY, turn=None, queue=(), children=()
    )


def arriving(replay: Replay, clock: Clock, *, title: str, user_id: str) -> SessionRecord:
    """The beginning of what comes: seen, and as it was then. Its runs are nobody's to claim, and nothing ends, expires or is
    erased by itself: a copy that breaks off here is gone on with."""
    begun = msgspec.structs.replace(shown(replay, clock), arriving=True, title=title, user_id=user_id)
    return with_entries(msgspec.structs.replace(begun, sweep_at=None))


def shown(replay: Replay, clock: Clock) -> SessionRecord:
    """The record at the end: seen from now on, its clocks begin anew."""
    return with_entries(
        msgspec.structs.replace(
            replay.state.existing,
            hidden=False,
            active_at=clock.now,
            clock_from=clock.now,
            sweep_at=None,
            lease_until=None,
            lease_clock="",
        )
    )


def check_readable(record: SessionRecord, runs: Iterable[RunRow], calls: Iterable[CallRow]) -> None:
    """What is written can be read back, and shown. Raises ValueError, OverflowError."""
    if decode_record(encode_record(record)) != record:
        raise ValueError("the record would not come back as it is")
    session_from(record, now=record.updated_at).to_dict()
    for run in runs:
        bare = msgspec.structs.replace(run, metadata=NO_JSON, input=NO_JSON, input_metadata=NO_JSON)
        if msgspec.json.decode(_encode(bare), type=RunRow) != bare:
            raise ValueError(f"run {run.run_id} would not come back as it is")
        Run.from_row(run, session_id=record.session_id).to_dict()
    for call in calls:
        ToolCall.from_row(call).to_dict()


def close(replay: Replay, clock: Clock, *, waiting: Mapping[str, bytes], title: str, active: bool) -> tuple[Event, ...]:
    """Leases do not travel: open runs arrive as failed, open calls as unknown; what waited with a run is said, unanswered.
    The events that this takes are replayed by nobody: ``replay`` holds what they make."""
    state = replay.state
    for run_id, text in waiting.items():
        actor = replay.adders.get(run_id, "")
        state.runs[run_id] = msgspec.structs.replace(state.runs[run_id], input=raw_json(text), input_actor=actor)
    edit = Edit(state, clock, OPERATOR)
    error = RunError(code=MOVED, message="the session was copied while this run was open")
    record = state.existing
    run_ids = [child.run_id for child in record.children] + [waiting.run_id for waiting in record.queue]
    if record.turn is not None:
        run_ids.append(record.turn.run_id)
    for run_id in run_ids:
        row = edit.run(run_id)
        if row is not None:
            edit.end_run(row, "FAILED", stop_reason=MOVED, error=error, calls="unknown")
    for call in edit.get("open_calls"):
        edit.end_call(edit.call(call.seq), "unknown")
    if title != record.title:
        edit.event("title_changed", _encode({"title": title, "former": record.title}))
        edit.fields["title"] = title
        edit.touch("title")
    if active and record.status != "ACTIVE":
        edit.event("session_restored", _encode({"reason": "fork"}))
        edit.move_to("ACTIVE", reason="fork")
    if not edit.events:
        return ()
    closed = edit.finish(edit.answer())
    state.record = closed.record
    replay.put_rows(closed.runs, closed.calls)
    return closed.events
