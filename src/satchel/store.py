"""What Satchel asks of a database.

A store keeps rows and compares revisions. It decides nothing: who may do what, which change is legal and what a session
looks like after it are the domain's. Bodies are bytes of JSON and come back as they were given. Ids compare byte by byte.

Everything here may be called by several tasks at once, and any call may be cancelled.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from enum import Enum
from typing import Any, Literal, Protocol, TypeVar

import msgspec

from satchel.domain.event import Event, EventKind
from satchel.domain.idempotency import IdempotencyRecord
from satchel.domain.ids import SessionRef
from satchel.domain.record import SessionRecord, SessionStatus
from satchel.domain.run import RunRow, RunStatus
from satchel.domain.state import Clock, SessionState, Want
from satchel.domain.stream import Piece, StreamKey
from satchel.domain.tool_call import CallRow
from satchel.errors import OutcomeUnknown, SatchelError


class Capabilities(msgspec.Struct, frozen=True, kw_only=True):
    """What a store can promise and what it cannot."""

    name: str
    durable: bool  # what was acknowledged survives the death of the process, and a power cut
    shared: bool  # several processes may open it at once
    prefix_after_failover: bool  # what a reader saw stays, whatever fails
    clock: Literal["process", "server"]  # whose wall clock `now` is
    erases_traces: bool = True  # what was erased is in none of its files either, once it was scrubbed
    parallel_batches: int = 1  # commits of disjoint sessions that are worth having in flight at once


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """How a database is set up, in one thing. ``is_fatal``: it breaks a promise that was given for good; ``is_ok``: it is as
    it should be; neither: it may break one."""

    is_fatal: bool = False
    is_ok: bool = False
    what: str  # the setting, as its manual calls it, with its value
    why: str = ""  # what it weakens; of what is as it should be: what it keeps
    mend: str = ""  # the line that mends it, to be pasted
    promise: str = ""  # the one of the capabilities that hangs on it: "durable"; "" none

    @property
    def level(self) -> Literal["ok", "warning", "error"]:
        if self.is_fatal:
            return "error"
        return "ok" if self.is_ok else "warning"


class SchemaStep(msgspec.Struct, frozen=True, kw_only=True):
    """A numbered migration. ``about``: what it changes, and whether older programs can run on it."""

    number: int
    name: str
    about: str
    sql: str  # for a shell of this database: the whole step, in a transaction where the database has such
    applied_at: int | None = None  # microseconds; None: not yet


class Schema(msgspec.Struct, frozen=True, kw_only=True):
    """``found``: the version that the database has, 0 for a new one; ``known``: the newest that this program knows.
    ``comment``: what begins a comment in the database's shell; "" where it takes none."""

    found: int
    known: int
    steps: tuple[SchemaStep, ...]
    comment: str = "--"

    @property
    def pending(self) -> tuple[SchemaStep, ...]:
        return tuple(step for step in self.steps if step.number > self.found)


class Outcome(Enum):
    APPLIED = "applied"
    STALE = "stale"  # not applied: another revision, or not_after has passed
    REJECTED = "rejected"  # not applied: it cannot be stored, however often it is tried
    UNKNOWN = "unknown"  # the store cannot tell; load again


class Change(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """All or nothing, for one session. The store applies it only if the session is still at revision ``base``, and before
    ``not_after``; then ``record`` is the whole new record."""

    ref: SessionRef
    base: int | None  # None: no record may exist
    record: SessionRecord
    not_after: int | None = None  # the store's wall clock; at or past it: STALE
    events: tuple[Event, ...] = ()
    runs: tuple[RunRow, ...] = ()
    calls: tuple[CallRow, ...] = ()
    partials: tuple[Piece, ...] = ()  # new ones, of streams that are not among the ended
    ended_streams: tuple[StreamKey, ...] = ()  # all pieces of these go; there need not be any
    working_memory: bytes | None = None  # None: as it was; b"": none
    metadata: bytes | None = None
    idempotency: tuple[IdempotencyRecord, ...] = ()


T = TypeVar("T")


class Landing(asyncio.Future[T]):
    """What ``transact`` may answer with: ``heard`` is called in the very turn of the event loop that brings the outcomes. A
    future's callbacks come a turn later, and a lone write waits for every turn."""

    heard: Callable[[asyncio.Future[T]], None] | None = None

    def set_result(self, result: T, /) -> None:
        super().set_result(result)
        if self.heard is not None:
            self.heard(self)

    def set_exception(self, exception: type[BaseException] | BaseException, /) -> None:
        super().set_exception(exception)
        if self.heard is not None:
            self.heard(self)

    async def bring(self, work: Callable[[], Coroutine[Any, Any, T]]) -> None:
        """What ``work`` comes to, for a task of its own, of which ``left`` is told. Who goes away from the landing does not stop
        the work."""
        try:
            outcomes = await work()
        except Exception as error:  # noqa: BLE001  # whoever waits for the landing hears it
            if not self.done():
                self.set_exception(error)
        else:
            if not self.done():
                self.set_result(outcomes)

    def left(self, task: asyncio.Future[None]) -> None:
        """The task is over: it was cancelled, perhaps before its first step, if nothing was brought."""
        del task
        if not self.done():
            self.set_exception(OutcomeUnknown("the event loop stopped"))


class Loaded(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A snapshot of each session by itself. A session that is not there has a state without a record; one of which
    something that is wanted cannot be read, or even asked for, has its error instead, and does not harm the others."""

    sessions: Mapping[SessionRef, SessionState | SatchelError]
    clock: Clock


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """One session, read in one snapshot. ``messages``, ``tool_calls`` and ``runs`` in order, oldest first."""

    record: SessionRecord | None
    clock: Clock
    working_memory: bytes = b""
    metadata: bytes = b""
    messages: tuple[Event, ...] = ()
    tool_calls: tuple[CallRow, ...] = ()
    runs: tuple[RunRow, ...] = ()


class EventPage(msgspec.Struct, frozen=True, kw_only=True):
    """``retracted``: the seqs among ``events`` of messages that were taken back."""

    record: SessionRecord | None
    clock: Clock
    events: tuple[Event, ...] = ()
    retracted: frozenset[int] = frozenset()


class CallPage(msgspec.Struct, frozen=True, kw_only=True):
    record: SessionRecord | None
    clock: Clock
    tool_calls: tuple[CallRow, ...] = ()


class RunPage(msgspec.Struct, frozen=True, kw_only=True):
    record: SessionRecord | None
    clock: Clock
    runs: tuple[RunRow, ...] = ()


class PartialPage(msgspec.Struct, frozen=True, kw_only=True):
    record: SessionRecord | None
    clock: Clock
    pieces: tuple[Piece, ...] = ()


class ListedSession(msgspec.Struct, frozen=True, kw_only=True):
    record: SessionRecord
    metadata: bytes = b""


class SessionPage(msgspec.Struct, frozen=True, kw_only=True):
    """``unreadable``: the ids of sessions that belong among these and are left out, because their records are corrupt."""

    clock: Clock
    sessions: tuple[ListedSession, ...] = ()
    unreadable: tuple[str, ...] = ()


class Setting(msgspec.Struct, frozen=True):
    """What is kept under a name for the whole store, and how often it was written."""

    revision: int
    value: bytes


class Store(Protocol):
    """A database, open. Raises StoreUnavailable when it is away (nothing was stored) and StoreMisused when it is not open;
    a driver's own errors never leave it."""

    @property
    def capabilities(self) -> Capabilities: ...

    async def open(self) -> None:
        """Connect, and bring the schema up to date: safe when several processes do it at once. Raises SchemaMismatch."""
        ...

    async def close(self) -> None:
        """Release everything; twice is fine. What was handed in is finished first."""
        ...

    async def check(self) -> Sequence[Finding]:
        """What an operator should know before trusting this database: all that was looked at. Before the store is open, what
        needs no schema: the database's settings. Changes nothing.

        What ``capabilities`` promise by ``durable`` holds if no finding with that ``promise`` is other than ok, and one is there.
        """
        return ()

    async def schema(self) -> Schema | None:
        """Which schema the database has. Changes nothing, and the store need not be open. None: it keeps none."""
        return None

    # Writing

    async def load(self, wanted: Mapping[SessionRef, Want]) -> Loaded:
        """Each session with what is wanted of it.

        The state holds: the record; of ``keys`` the idempotency records that exist; the rows of ``run_ids`` and
        ``call_seqs``; for each of ``arguments_hashes`` the seq of the newest call with it; for each of ``steps`` (a run and
        a name) the newest call that the run made under it; the events of ``event_seqs``
        and the retractions that refer to them; with ``open_work`` (and always when the record ``may_settle``) the rows
        of the run that has the turn, of its open children, of the queue and of the open calls, and the pieces of the record's
        streams; those of ``streams`` in any case (a piece that cannot be read is given as it is); with ``layer``, and only
        if the run that has the turn has one (``Want.layered``), its row and the memory. Memory and metadata are b""
        unless wanted.
        Runs come with their input (also when it is a message by now), calls with their bodies.
        """
        ...

    async def commit(self, changes: Sequence[Change]) -> list[Outcome]:
        """Apply each change, whole or not at all, each for itself; durable before this returns APPLIED.

        ``changes`` name each session at most once. One that cannot be applied does not harm its neighbours.
        """
        ...

    def transact(
        self, wanted: Mapping[SessionRef, Want], decide: Callable[[Loaded], Sequence[Change]]
    ) -> Awaitable[list[Outcome]]:
        """Load, decide, commit. ``decide`` is pure and quick, and may be called in another thread, and again.

        An embedded store does all of it under its one writer's lock, so that nothing is ever STALE there. One that works
        on a thread may answer with a Landing.
        """
        return self._load_decide_commit(wanted, decide)

    async def _load_decide_commit(
        self, wanted: Mapping[SessionRef, Want], decide: Callable[[Loaded], Sequence[Change]]
    ) -> list[Outcome]:
        return await self.commit(decide(await self.load(wanted)))

    # One session. Every answer holds the record and the clock of the same snapshot; without a record nothing else.
    # A row that cannot be read is not left out: a placeholder keeps its place (Event.is_corrupt). To load it is StoreCorrupt.

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
        """The record, and the newest of each kind, as many as asked for; messages without the retracted ones."""
        ...

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
        """Events with ``after < seq < before``, exactly ``limit`` of them if there are as many. Without ``with_retracted``
        messages that were taken back are left out and do not count."""
        ...

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
    ) -> CallPage: ...

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
    ) -> RunPage: ...

    async def partial(
        self, ref: SessionRef, run_id: str, *, attempt: int, message: int, offset: int = 0, limit: int
    ) -> PartialPage:
        """The pieces of one streamed message in order, at most ``limit``, beginning with the one that holds the character at
        ``offset``, or the last one before it. None when it is final, or nothing was stored."""
        ...

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
        """Newest ``updated_at`` first; of equal ones the greater session_id (by its bytes) first. ``after`` is the
        (updated_at, session_id) of the last one seen. ``status`` is the one that holds now. Neither tombstones (nor what
        is as good as one by its retention) nor hidden sessions. Exactly ``limit`` that can be read, if there are as many.
        """
        ...

    async def due(
        self, queue: Literal["ready", "sweep"], *, agent: str | None = None, after: SessionRef | None = None, limit: int
    ) -> list[SessionRef]:
        """Sessions with work, in order of their refs, those after ``after``: ``ready``: a run of ``agent`` (None: of any)
        to claim. ``sweep``: ``sweep_at`` has come, or a lease is over."""
        ...

    async def refs(self, *, after: SessionRef | None = None, limit: int) -> list[SessionRef]:
        """Every session of every tenant, those after ``after``, in order of their refs by bytes: tombstones and hidden ones
        too. One that is there throughout comes once."""
        ...

    async def wait(self, ref: SessionRef, after: int, timeout: float, *, revision: int | None = None) -> None:
        """Until the session may have an event after ``after``, or, with ``revision``, a record of another revision (which is
        how a streamed piece is heard of); at most ``timeout`` seconds. A hint: may return early."""
        ...

    # Housekeeping

    async def erase(self, ref: SessionRef, limit: int) -> int:
        """Erase at most ``limit`` rows of a tombstone, in one commit; 0: none are left."""
        ...

    async def scrub(self, *, most: int | None = None) -> bool:
        """Remove every trace of rows that were erased from the store's files. It may take as long as the store is large,
        and keep writers waiting: with ``most``, only if it is at most that many bytes. False: not now, come back."""
        ...

    async def setting(self, name: str, *, base: int | None = None, value: bytes | None = None) -> Setting | None:
        """What is kept under ``name`` (an id) beside all sessions: API keys and the like. None: nothing is.

        With ``value``, which is JSON text, it is written first, durably, if the setting is still at revision ``base`` (None: there is none
        yet); revisions count from 1. The answer is what is kept then: whoever finds another value than its own lost, and
        nothing of it was written."""
        ...
