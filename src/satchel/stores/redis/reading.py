"""Reads of one session, each one script and so one snapshot. A row that is corrupt hides nothing but itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from satchel.domain.ids import SessionRef
from satchel.domain.stream import StreamKey
from satchel.errors import SatchelError, StoreCorrupt
from satchel.store import CallPage, EventPage, PartialPage, RunPage, Snapshot
from satchel.stores.redis.connection import Command, Reply, call, is_of_one_command, meaning_of
from satchel.stores.redis.loading import Ask, ReadClock
from satchel.stores.redis.names import Keys, stream_name
from satchel.stores.redis.rows import (
    piece_of,
    record_of,
    shown_call,
    shown_event,
    shown_memory,
    shown_metadata,
)
from satchel.stores.redis.run_rows import shown_run

LOOKED_AT = 5_000  # rows in one script: nobody else is served meanwhile
TRIES = 5  # at a page of a session that changes between two of its scripts
END = 2**53 - 1  # the greatest number that a sorted set holds exactly: beyond every seq, number and time


class Reader:
    """``ask`` runs reads; ``own_now``: b"" for the server's clock."""

    def __init__(self, ask: Ask, keys: Keys, read_clock: ReadClock, own_now: bytes | int) -> None:
        self._ask = ask
        self._keys = keys
        self._read_clock = read_clock
        self._now = own_now

    async def _one(self, command: Command, ref: SessionRef) -> Reply:
        (reply,) = await self._ask([command])
        if isinstance(reply, Exception):
            if is_of_one_command(reply):
                raise StoreCorrupt(f"session {ref.session_id}")
            raise reply if isinstance(reply, SatchelError) else meaning_of(reply)
        return reply

    async def snapshot(
        self, ref: SessionRef, *, working_memory: bool, metadata: bool, messages: int, tool_calls: int, runs: int
    ) -> Snapshot:
        names = self._keys.names(ref)
        used = (
            names.session,
            names.events,
            names.messages,
            names.newest,
            names.calls,
            names.call_order,
            names.runs,
            names.run_order,
        )
        counts = [_within(max(0, count)) for count in (messages, tool_calls, runs)]
        arguments = (self._now, int(working_memory), int(metadata), *counts)
        reply = await self._one(call(self._keys.slots[names.bucket], "snapshot", used, arguments), ref)
        if reply[1] is None:
            return Snapshot(record=None, clock=self._read_clock(reply[0]))
        now, record, memory, labels, said, seqs, called, ran = reply
        return Snapshot(
            record=record_of(ref.session_id, record),
            clock=self._read_clock(now),
            working_memory=shown_memory(memory),
            metadata=shown_metadata(labels),
            messages=tuple(shown_event(ref, seq, row) for seq, row in zip(reversed(seqs), reversed(said), strict=True)),
            tool_calls=tuple(shown_call(ref, int(seq), found) for seq, found in reversed(called)),
            runs=tuple(shown_run(ref, run_id.decode(), found) for run_id, found in reversed(ran)),
        )

    async def events(
        self,
        ref: SessionRef,
        *,
        after: int,
        before: int | None,
        newest_first: bool,
        kind: str | None,
        run_id: str | None,
        with_retracted: bool,
        limit: int,
    ) -> EventPage:
        names = self._keys.names(ref)
        used = (names.session, names.events, names.messages, names.newest)
        slot = self._keys.slots[names.bucket]

        def command(low: int, high: int | None, left: int, budget: int) -> Command:
            choice = (kind or "", run_id or "", int(with_retracted), left, budget)
            bounds = (_within(low), b"" if high is None else _within(high), int(newest_first))
            return call(slot, "events", used, (self._now, *bounds, *choice))

        rows: list[tuple[int, bytes]] = []
        back: set[int] = set()
        first, parts = await self._pages(ref, command, after, before, newest_first=newest_first, limit=limit)
        if first[1] is None:
            return EventPage(record=None, clock=self._read_clock(first[0]))
        for part in parts:
            rows += zip(part[4], part[3], strict=True)
            back.update(part[5])
        return EventPage(
            record=record_of(ref.session_id, first[1]),
            clock=self._read_clock(first[0]),
            events=tuple(shown_event(ref, seq, row) for seq, row in rows),
            retracted=frozenset(back),
        )

    async def _pages(
        self, ref: SessionRef, command: Any, after: int, before: int | None, *, newest_first: bool, limit: int
    ) -> tuple[Reply, list[Reply]]:
        """A page that looks at many rows is several scripts. They are one snapshot if none of them found another revision;
        else from the start, and in the end in one."""
        wanted = _within(max(0, limit))
        for turn in range(TRIES):
            low, high, left = after, before, wanted
            parts: list[Reply] = []
            while True:
                reply = await self._one(command(low, high, left, LOOKED_AT if turn < TRIES - 1 else END), ref)
                parts.append(reply)
                if reply[1] is None or reply[2] != parts[0][2]:
                    break
                came_to = reply[-1]
                if came_to is None:
                    return parts[0], parts
                left -= len(reply[3])
                if newest_first:
                    high = int(came_to)
                else:
                    low = int(came_to)
            if parts[-1][1] is None:
                return parts[-1], []
        raise AssertionError("the last is one script")

    async def tool_calls(
        self,
        ref: SessionRef,
        *,
        run_id: str | None,
        tool: str | None,
        arguments_hash: bytes | None,
        tool_call_id: str | None,
        is_open: bool | None,
        after: int,
        before: int | None,
        newest_first: bool,
        limit: int,
    ) -> CallPage:
        names = self._keys.names(ref)
        filters = _pairs(
            (3, tool),
            (4, None if arguments_hash is None else arguments_hash.hex()),
            (5, None if is_open is None else ("open" if is_open else "ended")),
            (8, tool_call_id),
            (9, run_id),
        )
        used = (names.session, names.call_order, names.calls, names.events)
        first, found = await self._rows("call", ref, used, after, before, b"", filters, newest_first, limit)
        if first[1] is None:
            return CallPage(record=None, clock=self._read_clock(first[0]))
        return CallPage(
            record=record_of(ref.session_id, first[1]),
            clock=self._read_clock(first[0]),
            tool_calls=tuple(shown_call(ref, int(seq), row) for seq, row in found),
        )

    async def runs(
        self,
        ref: SessionRef,
        *,
        run_id: str | None,
        parent_run_id: str | None,
        status: str | None,
        after_number: int,
        before_number: int | None,
        newest_first: bool,
        limit: int,
    ) -> RunPage:
        names = self._keys.names(ref)
        filters = _pairs((3, status), (4, parent_run_id))
        used = (names.session, names.run_order, names.runs, names.events)
        only = b"" if run_id is None else run_id.encode()
        if run_id == "":
            limit = 0  # no run is called that
        first, found = await self._rows(
            "run", ref, used, after_number, before_number, only, filters, newest_first, limit
        )
        if first[1] is None:
            return RunPage(record=None, clock=self._read_clock(first[0]))
        return RunPage(
            record=record_of(ref.session_id, first[1]),
            clock=self._read_clock(first[0]),
            runs=tuple(shown_run(ref, name.decode(), row) for name, row in found),
        )

    async def _rows(
        self,
        what: str,
        ref: SessionRef,
        used: Sequence[bytes],
        after: int,
        before: int | None,
        only: bytes,
        filters: list[bytes | str | int],
        newest_first: bool,  # noqa: FBT001  # handed on as it came
        limit: int,
    ) -> tuple[Reply, list[tuple[bytes, Reply]]]:
        slot = self._keys.slots[self._keys.names(ref).bucket]

        def command(low: int, high: int | None, left: int, budget: int) -> Command:
            bounds = (_within(low), b"" if high is None else _within(high), int(newest_first))
            return call(slot, "rows", used, (what, self._now, *bounds, left, budget, only, *filters))

        first, parts = await self._pages(ref, command, after, before, newest_first=newest_first, limit=limit)
        return first, [(row[0], row[1]) for part in parts for row in part[3]]

    async def partial(self, ref: SessionRef, key: StreamKey, *, offset: int, limit: int) -> PartialPage:
        names = self._keys.names(ref)
        used = (names.session, self._keys.pieces(ref, stream_name(key)))
        arguments = (self._now, _within(offset), _within(max(0, limit)))
        reply = await self._one(call(self._keys.slots[names.bucket], "partial", used, arguments), ref)
        if reply[1] is None:
            return PartialPage(record=None, clock=self._read_clock(reply[0]))
        return PartialPage(
            record=record_of(ref.session_id, reply[1]),
            clock=self._read_clock(reply[0]),
            pieces=tuple(piece_of(key, row) for row in reply[2]),
        )

    async def may_look(self, ref: SessionRef, after: int, revision: int | None) -> bool:
        """There is an event after ``after``, or another revision, or nothing to wait for: the session is gone, or was never there, or
        a failover took back what was seen of it."""
        names = self._keys.names(ref)
        row = await self._one(Command(self._keys.slots[names.bucket], ("HGET", names.session, "record")), ref)
        if row is None:
            return True
        try:
            record = record_of(ref.session_id, row)
        except StoreCorrupt:
            return True  # who looks hears of it
        return record.is_past(after, revision) or record.last_seq < after


def _pairs(*filters: tuple[int, str | None]) -> list[bytes | str | int]:
    found: list[bytes | str | int] = []
    for place, value in filters:
        if value is not None:
            found += (place, value)
    return found


def _within(bound: int) -> int:
    """As the server can compare it exactly."""
    return max(-END, min(bound, END))
