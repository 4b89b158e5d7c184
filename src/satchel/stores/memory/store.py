"""Sessions in this process's memory: private, gone with it. What is kept is frozen, so nothing is shared with callers."""

from __future__ import annotations

import asyncio
import bisect
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal, TypeVar

from satchel.domain.event import EventKind
from satchel.domain.ids import SessionRef
from satchel.domain.record import SessionRecord, SessionStatus
from satchel.domain.run import RunStatus
from satchel.domain.state import Clock, SessionState, Want
from satchel.domain.stream import StreamKey
from satchel.errors import InvalidInput, SatchelError, StoreCorrupt, StoreMisused
from satchel.store import (
    CallPage,
    Capabilities,
    Change,
    EventPage,
    ListedSession,
    Loaded,
    Outcome,
    PartialPage,
    RunPage,
    SessionPage,
    Setting,
    Snapshot,
    Store,
)
from satchel.stores.memory.kept import Kept
from satchel.stores.memory.waiting import Waiter

T = TypeVar("T")

_CAPABILITIES = Capabilities(name="memory", durable=False, shared=False, prefix_after_failover=True, clock="process")


def process_clock() -> Clock:
    """Wall time, and a lease clock that nobody sets."""
    return Clock(time.time_ns() // 1000, time.monotonic_ns() // 1000, "process")


class MemoryStore(Store):
    """``clock`` may be replaced, to test what time does."""

    def __init__(self, *, clock: Callable[[], Clock] = process_clock) -> None:
        self._clock = clock
        self._sessions: dict[SessionRef, Kept] = {}
        self._settings: dict[str, Setting] = {}
        self._waiting: dict[SessionRef, set[Waiter]] = {}
        self._open = True

    @property
    def capabilities(self) -> Capabilities:
        return _CAPABILITIES

    async def open(self) -> None:
        self._open = True

    async def close(self) -> None:
        self._open = False
        for waiters in self._waiting.values():
            for waiter in waiters:
                waiter.wake()

    def _check_open(self) -> None:
        if not self._open:
            raise StoreMisused("the store is closed")

    # Writing

    async def load(self, wanted: Mapping[SessionRef, Want]) -> Loaded:
        self._check_open()
        return self._load(wanted)

    def _load(self, wanted: Mapping[SessionRef, Want]) -> Loaded:
        clock = self._clock()
        sessions: dict[SessionRef, SessionState | SatchelError] = {}
        for ref, want in wanted.items():
            try:
                kept = self._sessions.get(ref)
                sessions[ref] = SessionState(None) if kept is None else kept.state(want, clock)
            except Exception as error:  # noqa: BLE001  # whatever it is, it is this session's own
                sessions[ref] = _own_error(ref, error)
        return Loaded(sessions=sessions, clock=clock)

    async def commit(self, changes: Sequence[Change]) -> list[Outcome]:
        self._check_open()
        return self._commit(changes)

    def _commit(self, changes: Sequence[Change]) -> list[Outcome]:
        now = self._clock().now
        outcomes = [self._apply_alone(change, now) for change in changes]
        if self._waiting:
            self._wake([change.record for change in changes])
        return outcomes

    async def transact(
        self, wanted: Mapping[SessionRef, Want], decide: Callable[[Loaded], Sequence[Change]]
    ) -> list[Outcome]:
        self._check_open()
        return self._commit(decide(self._load(wanted)))

    def _apply_alone(self, change: Change, now: int) -> Outcome:
        try:
            return self._apply(change, now)
        except (TypeError, ValueError):
            return Outcome.REJECTED

    def _apply(self, change: Change, now: int) -> Outcome:
        kept = self._sessions.get(change.ref)
        revision = None if kept is None else kept.record.revision
        if revision != change.base or (change.not_after is not None and now >= change.not_after):
            return Outcome.STALE
        if kept is None:
            kept = Kept(change.record)
        kept.apply(change)
        self._sessions[change.ref] = kept
        return Outcome.APPLIED

    # One session

    async def snapshot(
        self,
        ref: SessionRef,
        *,
        working_memory: bool = True,
        metadata: bool = True,
        messages: int = 0,
        tool_calls: int = 0,
        runs: int = 0,
    ) -> Snapshot:
        self._check_open()
        clock = self._clock()
        kept = self._sessions.get(ref)
        if kept is None:
            return Snapshot(record=None, clock=clock)
        return Snapshot(
            record=kept.record,
            clock=clock,
            working_memory=kept.working_memory if working_memory else b"",
            metadata=kept.metadata if metadata else b"",
            messages=newest(kept.messages(), messages),
            tool_calls=tuple(kept.with_bodies(kept.calls[seq]) for seq in newest(sorted(kept.calls), tool_calls)),
            runs=tuple(kept.with_input(run) for run in newest(kept.runs_in_order(), runs)),
        )

    async def events(
        self,
        ref: SessionRef,
        *,
        after: int = 0,
        before: int | None = None,
        newest_first: bool = False,
        kind: EventKind | None = None,
        run_id: str | None = None,
        with_retracted: bool = True,
        limit: int,
    ) -> EventPage:
        self._check_open()
        clock = self._clock()
        kept = self._sessions.get(ref)
        if kept is None:
            return EventPage(record=None, clock=clock)
        found = [
            event
            for event in kept.events[max(0, after) : None if before is None else max(0, before - 1)]
            if (kind is None or event.kind == kind)
            and (run_id is None or event.run_id == run_id)
            and (with_retracted or event.seq not in kept.retracted)
        ]
        page = tuple(_page(found, limit, newest_first=newest_first))
        retracted = frozenset(event.seq for event in page if event.seq in kept.retracted)
        return EventPage(record=kept.record, clock=clock, events=page, retracted=retracted)

    async def tool_calls(
        self,
        ref: SessionRef,
        *,
        run_id: str | None = None,
        tool: str | None = None,
        arguments_hash: bytes | None = None,
        tool_call_id: str | None = None,
        is_open: bool | None = None,
        after: int = 0,
        before: int | None = None,
        newest_first: bool = True,
        limit: int,
    ) -> CallPage:
        self._check_open()
        clock = self._clock()
        kept = self._sessions.get(ref)
        if kept is None:
            return CallPage(record=None, clock=clock)
        found = [
            row
            for seq, row in sorted(kept.calls.items())
            if seq > after
            and (before is None or seq < before)
            and (run_id is None or row.run_id == run_id)
            and (tool is None or row.tool == tool)
            and (arguments_hash is None or row.arguments_hash == arguments_hash)
            and (tool_call_id is None or row.tool_call_id == tool_call_id)
            and (is_open is None or (row.status == "started") == is_open)
        ]
        page = tuple(kept.with_bodies(row) for row in _page(found, limit, newest_first=newest_first))
        return CallPage(record=kept.record, clock=clock, tool_calls=page)

    async def runs(
        self,
        ref: SessionRef,
        *,
        run_id: str | None = None,
        parent_run_id: str | None = None,
        status: RunStatus | None = None,
        after_number: int = 0,
        before_number: int | None = None,
        newest_first: bool = True,
        limit: int,
    ) -> RunPage:
        self._check_open()
        clock = self._clock()
        kept = self._sessions.get(ref)
        if kept is None:
            return RunPage(record=None, clock=clock)
        found = [
            row
            for row in kept.runs_in_order()
            if row.number > after_number
            and (before_number is None or row.number < before_number)
            and (run_id is None or row.run_id == run_id)
            and (parent_run_id is None or row.parent_run_id == parent_run_id)
            and (status is None or row.status == status)
        ]
        page = tuple(kept.with_input(row) for row in _page(found, limit, newest_first=newest_first))
        return RunPage(record=kept.record, clock=clock, runs=page)

    async def partial(
        self, ref: SessionRef, run_id: str, *, attempt: int, message: int, offset: int = 0, limit: int
    ) -> PartialPage:
        self._check_open()
        clock = self._clock()
        kept = self._sessions.get(ref)
        if kept is None:
            return PartialPage(record=None, clock=clock)
        pieces = kept.partials.get(StreamKey(run_id, attempt, message), ())
        first = max(0, bisect.bisect_right(pieces, offset, key=lambda piece: piece.offset) - 1)
        return PartialPage(record=kept.record, clock=clock, pieces=pieces[first : first + max(0, limit)])

    # Across sessions

    async def sessions(
        self,
        tenant_id: str,
        *,
        user_id: str | None = None,
        status: SessionStatus | None = None,
        updated_from: int | None = None,
        updated_before: int | None = None,
        after: tuple[int, str] | None = None,
        limit: int,
    ) -> SessionPage:
        self._check_open()
        clock = self._clock()
        found = [
            kept
            for ref, kept in self._sessions.items()
            if ref.tenant_id == tenant_id
            and not kept.record.hidden
            and kept.record.status_at(clock.now) != "DELETED"
            and (user_id is None or kept.record.user_id == user_id)
            and (status is None or kept.record.status_at(clock.now) == status)
            and (updated_from is None or kept.record.updated_at >= updated_from)
            and (updated_before is None or kept.record.updated_at < updated_before)
            and (after is None or _list_key(kept.record) < (after[0], after[1].encode()))
        ]
        found.sort(key=lambda kept: _list_key(kept.record), reverse=True)
        return SessionPage(
            clock=clock,
            sessions=tuple(ListedSession(record=kept.record, metadata=kept.metadata) for kept in found[:limit]),
        )

    async def due(
        self, queue: Literal["ready", "sweep"], *, agent: str | None = None, after: SessionRef | None = None, limit: int
    ) -> list[SessionRef]:
        self._check_open()
        clock = self._clock()
        found = [
            ref
            for ref, kept in self._sessions.items()
            if (after is None or _ref_key(ref) > _ref_key(after)) and _is_due(kept.record, queue, agent, clock)
        ]
        return sorted(found, key=_ref_key)[:limit]

    async def refs(self, *, after: SessionRef | None = None, limit: int) -> list[SessionRef]:
        self._check_open()
        found = [ref for ref in self._sessions if after is None or _ref_key(ref) > _ref_key(after)]
        return sorted(found, key=_ref_key)[: max(0, limit)]

    async def wait(self, ref: SessionRef, after: int, timeout: float, *, revision: int | None = None) -> None:
        self._check_open()
        kept = self._sessions.get(ref)
        waiter = Waiter(after, revision)
        if kept is None or waiter.is_behind(kept.record):
            return
        waiting = self._waiting.setdefault(ref, set())
        waiting.add(waiter)
        try:
            # Not wait_for: it loses a cancellation that comes together with the wake (bpo-37658, mended in 3.12).
            await asyncio.wait((waiter.future,), timeout=timeout)
        finally:
            waiting.discard(waiter)
            if not waiting and self._waiting.get(ref) is waiting:
                del self._waiting[ref]

    def _wake(self, records: Iterable[SessionRecord]) -> None:
        for record in records:
            for waiter in self._waiting.get(record.ref, ()):
                if waiter.is_behind(record):
                    waiter.wake()

    # Housekeeping

    async def erase(self, ref: SessionRef, limit: int) -> int:
        self._check_open()
        kept = self._sessions.get(ref)
        if kept is None or kept.record.status != "DELETED":
            return 0
        return kept.erase(limit)

    async def scrub(self, *, most: int | None = None) -> bool:
        self._check_open()
        return True

    async def setting(self, name: str, *, base: int | None = None, value: bytes | None = None) -> Setting | None:
        self._check_open()
        kept = self._settings.get(name)
        if value is None or base != (None if kept is None else kept.revision):
            return kept
        kept = self._settings[name] = Setting(1 if base is None else base + 1, bytes(value))
        return kept


def _own_error(ref: SessionRef, error: Exception) -> SatchelError:
    """What a session has instead of a state."""
    if isinstance(error, SatchelError):
        return error
    own: SatchelError = StoreCorrupt(f"session {ref.session_id}")
    if isinstance(error, (TypeError, ValueError, OverflowError)):
        own = InvalidInput(f"holds a value that this store cannot look for ({type(error).__name__})", field="request")
    own.__cause__ = error
    return own


def _list_key(record: SessionRecord) -> tuple[int, bytes]:
    return record.updated_at, record.session_id.encode()


def _ref_key(ref: SessionRef) -> tuple[bytes, bytes]:
    return ref.tenant_id.encode(), ref.session_id.encode()


def _is_due(record: SessionRecord, queue: str, agent: str | None, clock: Clock) -> bool:
    if queue == "ready":
        return record.ready_agent is not None and (agent is None or record.ready_agent == agent)
    if record.lease_until is not None and (
        record.lease_clock != clock.lease_clock or clock.lease_now >= record.lease_until
    ):
        return True
    return record.sweep_at is not None and record.sweep_at <= clock.now


def newest(items: Sequence[T], count: int) -> tuple[T, ...]:
    return tuple(items[-count:]) if count > 0 else ()


def _page(items: list[T], limit: int, *, newest_first: bool) -> list[T]:
    return items[::-1][:limit] if newest_first else items[:limit]
