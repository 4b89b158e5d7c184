"""Across sessions: lists, and the queues of what is to be done. Each bucket has its own, in the order that is wanted; here they
are merged."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from satchel.domain.ids import SessionRef
from satchel.domain.record import SessionRecord, SessionStatus
from satchel.domain.state import Clock
from satchel.errors import SatchelError, StoreCorrupt
from satchel.store import ListedSession, SessionPage
from satchel.stores.redis.connection import Command, Reply, call, meaning_of
from satchel.stores.redis.loading import Ask, ReadClock
from satchel.stores.redis.names import BUCKETS, Keys, in_order, refs_in
from satchel.stores.redis.reading import END
from satchel.stores.redis.rows import OWN_CLOCK, record_of, shown_metadata
from satchel.stores.redis.servers import slot_of

LEAST = 8  # entries that each bucket is asked for, of those that are spread evenly
LEAST_SWEPT = 100  # and of what is due

Place = tuple[int, bytes]  # where a session stands in a list: updated_at, session_id


class _Bucket:
    """One bucket's part of a list, read bit by bit: newest first, of equal times the greater id first."""

    def __init__(self, slot: int, key: bytes, upper: str) -> None:
        self._slot = slot
        self._key = key
        self._upper = upper
        self._at_upper: set[bytes] = set()  # those with the score of the bound were seen already
        self.ahead: list[Place] = []  # the next is the last
        self.is_read = False

    def command(self, lower: str, count: int) -> Command:
        wanted = count + len(self._at_upper)
        words = ("ZREVRANGEBYSCORE", self._key, self._upper, lower, "WITHSCORES", "LIMIT", 0, wanted)
        return Command(self._slot, words)

    def read(self, reply: Reply, count: int) -> None:
        pairs = list(zip(reply[::2], reply[1::2], strict=True))
        self.is_read = len(pairs) < count + len(self._at_upper)
        found = [(int(float(score)), session) for session, score in pairs if session not in self._at_upper]
        if found:
            last = found[-1][0]
            same = {session for at, session in found if at == last}
            self._at_upper = same | (self._at_upper if self._upper == str(last) else set())
            self._upper = str(last)
        self.ahead = found[::-1]


class Lister:
    """``ask`` runs reads; ``own``: the clock, where it is not the server's."""

    def __init__(self, ask: Ask, keys: Keys, read_clock: ReadClock, own: Clock | None, *, is_cluster: bool) -> None:
        self._ask = ask
        self._keys = keys
        self._read_clock = read_clock
        self._own = own
        self._is_cluster = is_cluster

    async def _all(self, commands: Sequence[Command]) -> list[Reply]:
        replies = await self._ask(commands)
        for reply in replies:
            if isinstance(reply, Exception):
                raise reply if isinstance(reply, SatchelError) else meaning_of(reply)
        return replies

    async def sessions(
        self,
        tenant_id: str,
        *,
        user_id: str | None,
        status: SessionStatus | None,
        updated_from: int | None,
        updated_before: int | None,
        after: tuple[int, str] | None,
        limit: int,
    ) -> SessionPage:
        directory = self._keys.buckets_of(tenant_id, user_id)
        slot = slot_of(directory)
        time, numbers = await self._all([Command(slot, ("TIME",)), Command(slot, ("SMEMBERS", directory))])
        clock = self._read_clock(int(time[0]) * 1_000_000 + int(time[1]))
        end = None if after is None else (after[0], after[1].encode())
        upper = "+inf" if updated_before is None else f"({_exact(updated_before)}"
        if end is not None and (updated_before is None or end[0] < updated_before):
            upper = str(_exact(end[0]))
        lower = "-inf" if updated_from is None else str(_exact(updated_from))
        left = [self._bucket(tenant_id, user_id, int(number), upper) for number in sorted(numbers)]
        found: list[ListedSession] = []
        unreadable: list[str] = []
        while len(found) < limit:
            left = await self._read_ahead(left, lower, limit - len(found))
            places = _merged(left, limit - len(found))
            if not places:
                break
            for place, record, metadata in await self._records(
                tenant_id, [p for p in places if end is None or p < end]
            ):
                if isinstance(record, StoreCorrupt):
                    unreadable.append(place[1].decode())
                elif len(found) < limit and _belongs(record, clock, user_id, status, lower, upper, end):
                    found.append(ListedSession(record=record, metadata=metadata))
        # What changed between its list and its record stands where it belongs by now.
        found.sort(key=lambda one: (one.record.updated_at, one.record.session_id.encode()), reverse=True)
        return SessionPage(clock=clock, sessions=tuple(found), unreadable=tuple(unreadable))

    def _bucket(self, tenant_id: str, user_id: str | None, number: int, upper: str) -> _Bucket:
        if user_id is None:
            key = self._keys.tenant_list(number, tenant_id)
        else:
            key = self._keys.user_list(number, tenant_id, user_id)
        return _Bucket(self._keys.slots[number], key, upper)

    async def _read_ahead(self, buckets: list[_Bucket], lower: str, wanted: int) -> list[_Bucket]:
        """Until each bucket that is not at its end has its next; those that are at their ends are left out."""
        dry = [bucket for bucket in buckets if not bucket.ahead and not bucket.is_read]
        count = min(1_000, max(4, 2 * wanted // max(1, len(buckets)) + 1))
        while dry:
            for bucket, reply in zip(dry, await self._all([one.command(lower, count) for one in dry]), strict=True):
                bucket.read(reply, count)
            dry = [bucket for bucket in dry if not bucket.ahead and not bucket.is_read]
        return [bucket for bucket in buckets if bucket.ahead]

    async def _records(
        self, tenant_id: str, places: Sequence[Place]
    ) -> list[tuple[Place, SessionRecord | StoreCorrupt, bytes]]:
        commands = []
        for _, session in places:
            names = self._keys.names(SessionRef(tenant_id, session.decode()))
            commands.append(Command(self._keys.slots[names.bucket], ("HMGET", names.session, "record", "metadata")))
        found: list[tuple[Place, SessionRecord | StoreCorrupt, bytes]] = []
        for place, (row, metadata) in zip(places, await self._all(commands) if commands else (), strict=True):
            if row is None:
                continue
            try:
                found.append((place, record_of(place[1].decode(), row), shown_metadata(metadata)))
            except StoreCorrupt as error:
                found.append((place, error, b""))
        return found

    async def due(
        self, queue: Literal["ready", "sweep"], *, agent: str | None, after: SessionRef | None, limit: int
    ) -> list[SessionRef]:
        if queue == "ready":
            head = b"*" if agent is None else b"a" + in_order(agent.encode())
            return await self._in_order(self._keys.ready, head, after, limit)
        own = self._own
        clocks = ("", "", OWN_CLOCK) if own is None else (str(own.now), str(own.lease_now), own.lease_clock)
        least = min(max(0, limit), LEAST_SWEPT)
        past = b"" if after is None else _entry(after)
        found: list[bytes] = []
        while least and len(found) < limit:
            lists = await self._lists("swept", self._keys.swept, (*clocks, past, least))
            entries, past = _as_far_as_known(lists, least)
            found += entries
            if not past:
                break
        return [refs_in(entry) for entry in found[: max(0, limit)]]

    async def refs(self, *, after: SessionRef | None, limit: int) -> list[SessionRef]:
        return await self._in_order(self._keys.all, b"", after, limit)

    async def _in_order(
        self, keys: Sequence[bytes], head: bytes, after: SessionRef | None, limit: int
    ) -> list[SessionRef]:
        """Of all buckets those entries that begin with ``head``, without it. They are spread evenly, so a few of each will do."""
        each = max(LEAST, 2 * max(0, limit) // BUCKETS)
        past = head + (b"" if after is None else _entry(after))
        found: list[bytes] = []
        while len(found) < limit:
            bounds = (b"(" + past if past else b"-", b"(" + head + b"\xff", each)
            entries, past = _as_far_as_known(await self._lists("entries", [[key] for key in keys], bounds), each)
            found += entries
            if not past:
                break
        return [refs_in(entry[len(head) :]) for entry in found[: max(0, limit)]]

    async def _lists(
        self, script: str, groups: Sequence[Sequence[bytes]], arguments: Sequence[bytes | str | int]
    ) -> list[list[bytes]]:
        """A list of each bucket: in one script, or in one for each where they lie apart."""
        if self._is_cluster:
            commands = [call(self._keys.slots[bucket], script, groups[bucket], arguments) for bucket in range(BUCKETS)]
        else:
            commands = [call(0, script, [key for group in groups for key in group], arguments)]
        return [entries for reply in await self._all(commands) for entries in reply]


def _entry(ref: SessionRef) -> bytes:
    return in_order(ref.tenant_id.encode()) + in_order(ref.session_id.encode())


def _as_far_as_known(lists: Sequence[list[bytes]], each: int) -> tuple[list[bytes], bytes]:
    """All in order up to where a bucket that gave ``each`` may have more; and that place, or b"" when all have given theirs."""
    ends = [max(entries) for entries in lists if len(entries) >= each]
    end = min(ends, default=b"")
    return sorted(entry for entries in lists for entry in entries if not end or entry <= end), end


def _merged(buckets: Sequence[_Bucket], count: int) -> list[Place]:
    """The next of all, until one bucket does not know its own next."""
    places: list[Place] = []
    while len(places) < count:
        ahead = [bucket for bucket in buckets if bucket.ahead]
        if not ahead:
            break
        first = max(ahead, key=lambda bucket: bucket.ahead[-1])
        places.append(first.ahead.pop())
        if not first.ahead and not first.is_read:
            break
    return places


def _belongs(
    record: SessionRecord,
    clock: Clock,
    user_id: str | None,
    status: SessionStatus | None,
    lower: str,
    upper: str,
    end: Place | None,
) -> bool:
    """Also when it changed after its list was read."""
    now = record.status_at(clock.now)
    if record.hidden or now == "DELETED" or (status is not None and now != status):
        return False
    if user_id is not None and record.user_id != user_id:
        return False
    if end is not None and (record.updated_at, record.session_id.encode()) >= end:
        return False
    if lower != "-inf" and record.updated_at < int(lower):
        return False
    return not upper.startswith("(") or record.updated_at < int(upper[1:])


def _exact(bound: int) -> int:
    return max(-END, min(bound, END))
