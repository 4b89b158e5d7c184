"""Group commit: decisions that wait at the same time share one commit of the store.

One committer per open store, shared by all its managers. Decisions on one session are decided one after another in
memory and folded into one change. Whatever is answered without a commit was decided on a record read after the call
began, and is answered only after the decisions before it in its batch are committed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from enum import IntEnum
from functools import partial
from typing import Any, Generic, TypeVar

import msgspec

from satchel.domain.decisions.decision import Decision
from satchel.domain.event import Event
from satchel.domain.idempotency import Answer, IdempotencyRecord
from satchel.domain.ids import SessionRef
from satchel.domain.record import SessionRecord
from satchel.domain.rights import may_see
from satchel.domain.run import RunRow, stored_run
from satchel.domain.state import Clock, Effect, SessionState, Want, merge_wants
from satchel.domain.stream import Piece, StreamKey
from satchel.domain.tool_call import CallRow
from satchel.domain.upkeep import is_overdue, settle
from satchel.errors import (
    NotFound,
    OutcomeUnknown,
    SatchelError,
    StoreBusy,
    StoreCorrupt,
    StoreError,
    StoreMisused,
    StoreUnavailable,
)
from satchel.store import Change, Landing, Loaded, Outcome, Store

V = TypeVar("V")

BATCH_DECISIONS = 256
BATCH_BYTES = 4 * 1024 * 1024
SURELY_LONE = 16  # batches of one decision, after which the next is not expected to have company
PATIENCE = 10.0  # seconds of STALE before a caller hears StoreBusy


class Committed(msgspec.Struct, Generic[V], frozen=True, gc=False):
    """A decision's answer: what its caller is given, what the commit fixed, and whether it was answered before."""

    value: V
    answer: Answer
    replayed: bool


class Seen(msgspec.Struct, frozen=True):
    """What one commit was, for who measures: decisions, ``seconds`` from handing it in, and what was applied."""

    decisions: int
    seconds: float
    kinds: tuple[str, ...] = ()
    runs: tuple[RunRow, ...] = ()


class _Apart(IntEnum):
    """How far a decision stays away from others, after a batch that it was in could not be decided."""

    NOT = 0
    IN_ITS_SESSION = 1  # with the other decisions on its session
    ALONE = 2


class _Waiting:
    """One decision on its way. What it wants and weighs is asked of it once, while a fault is its own caller's."""

    __slots__ = ("apart", "decision", "entered", "future", "size", "unsettled", "want")

    def __init__(self, decision: Decision[Any], future: asyncio.Future[Any]) -> None:
        self.decision = decision
        self.future = future
        self.size = decision.size
        self.want = decision.want()
        self.entered = time.monotonic()
        self.unsettled: list[Answer] = []  # what may have been committed for it: the store could not tell
        self.apart = _Apart.NOT

    def answer(self, result: Committed[Any] | BaseException) -> None:
        if self.future.done():  # its caller went away
            return
        if isinstance(result, BaseException):
            self.future.set_exception(result)
        else:
            self.future.set_result(result)


class _Fold:
    """The decisions of one batch on one session, folded into one change."""

    __slots__ = (
        "base",
        "calls",
        "ended_streams",
        "events",
        "idempotency",
        "metadata",
        "not_after",
        "partials",
        "results",
        "runs",
        "state",
        "waiting",
        "working_memory",
        "written",
    )

    def __init__(self, waiting: list[_Waiting], state: SessionState) -> None:
        self.waiting = waiting
        self.state = state
        self.base = None if state.record is None else state.record.revision
        self.not_after: int | None = None
        self.events: list[Event] = []
        self.runs: dict[str, RunRow] = {}
        self.calls: dict[int, CallRow] = {}
        self.partials: list[Piece] = []
        self.ended_streams: list[StreamKey] = []
        self.working_memory: bytes | None = None
        self.metadata: bytes | None = None
        self.idempotency: list[IdempotencyRecord] = []
        self.written = False
        self.results: list[Committed[Any] | BaseException] = []

    def decide_all(self, clock: Clock) -> None:
        for waiting in self.waiting:
            try:
                self.results.append(self._decide(waiting.decision, waiting.unsettled, clock))
            except Exception as refusal:  # noqa: BLE001  # also a fault of ours: it is this caller's alone
                self.results.append(refusal)

    def _decide(self, decision: Decision[Any], unsettled: Sequence[Answer], clock: Clock) -> Committed[Any]:
        state = self.state
        record = state.record
        if record is not None and not record.hidden and may_see(decision.principal, record):
            while is_overdue(record, clock):
                due = settle(state, clock, writer=decision.attempt)
                if due is None:
                    break
                self._lay(due)
                record = due.record
            self._bound(record)
        if unsettled and (landed := self._landed(decision, unsettled)) is not None:
            return landed
        decided = decision.decide(state, clock)
        if isinstance(decided, Effect):
            self._lay(decided)
            self._remember(decision, decided.answer)
            return Committed(decision.view(state, decided.answer, replayed=False), decided.answer, False)
        if not decided.replayed and decision.caller_key and state.existing.status != "DELETED":
            self._remember(decision, decided.answer)
        replayed = decided.replayed and decided.answer not in unsettled  # or this very call finds itself
        view = decision.view(state, decided.answer, replayed=replayed)
        return Committed(view, decided.answer, replayed)

    def _landed(self, decision: Decision[Any], unsettled: Sequence[Answer]) -> Committed[Any] | None:
        """What the store could not tell of: the former attempt is there. Nothing that came after it, a deletion in the same
        batch say, makes that a refusal."""
        kept = None if decision.key is None else self.state.keys.get(decision.key)
        if kept is None or kept.answer not in unsettled:
            return None
        try:
            return Committed(decision.view(self.state, kept.answer, replayed=False), kept.answer, False)
        except NotFound:  # its rows are erased by now
            return None

    def _bound(self, record: SessionRecord) -> None:
        """The instant at which a decision on this record would turn out otherwise."""
        instant = record.due_at
        if instant is not None and (self.not_after is None or instant < self.not_after):
            self.not_after = instant

    def _lay(self, effect: Effect) -> None:
        self.state.lay(effect)
        self.events.extend(effect.events)
        for run in effect.runs:
            self.runs[run.run_id] = run
        for call in effect.calls:
            self.calls[call.seq] = call
        if effect.partials or effect.ended_streams:
            self._lay_streams(effect)
        if effect.working_memory is not None:
            self.working_memory = effect.working_memory
        if effect.metadata is not None:
            self.metadata = effect.metadata
        self.written = True

    def _lay_streams(self, effect: Effect) -> None:
        ended = effect.ended_streams
        self.partials = [piece for piece in (*self.partials, *effect.partials) if piece.key not in ended]
        self.ended_streams.extend(ended)

    def _remember(self, decision: Decision[Any], answer: Answer) -> None:
        if decision.key is None:
            return
        record = IdempotencyRecord(decision.key, decision.fingerprint, answer)
        self.state.keys[decision.key] = record
        self.idempotency.append(record)
        self.written = True

    def note_unsettled(self) -> None:
        """The store could not tell whether the change was applied: its answers may be found again as replays."""
        for waiting, result in zip(self.waiting, self.results, strict=False):  # fewer, if deciding broke off
            if isinstance(result, Committed) and not result.replayed:
                waiting.unsettled.append(result.answer)

    def change(self, ref: SessionRef) -> Change:
        record = self.state.existing
        if self.base is not None and record.revision != self.base + 1:
            record = msgspec.structs.replace(record, revision=self.base + 1)
        return Change(
            ref=ref,
            base=self.base,
            record=record,
            not_after=self.not_after,
            events=tuple(self.events),
            runs=tuple([stored_run(run) for run in self.runs.values()]) if self.runs else (),
            calls=tuple(self.calls.values()),
            partials=tuple(self.partials),
            ended_streams=tuple(self.ended_streams),
            working_memory=self.working_memory,
            metadata=self.metadata,
            idempotency=tuple(self.idempotency),
        )


_Again = list[tuple[SessionRef, list[_Waiting]]]


class _Batch:
    """What goes to the store together: decisions by session, in the order in which they came."""

    __slots__ = ("_applied", "_began", "_folds", "_unreadable", "taken")

    def __init__(self, taken: dict[SessionRef, list[_Waiting]]) -> None:
        self.taken = taken
        self._began = time.monotonic()
        self._applied: list[_Fold] = []
        self._folds: dict[SessionRef, _Fold] = {}
        self._unreadable: dict[SessionRef, SatchelError] = {}

    @property
    def is_lone(self) -> bool:
        return len(self.taken) == 1 and len(next(iter(self.taken.values()))) == 1

    def wanted(self) -> dict[SessionRef, Want]:
        return {ref: _want(waiting) for ref, waiting in self.taken.items()}

    def decide(self, loaded: Loaded) -> Sequence[Change]:
        self._folds = {}
        self._unreadable = {}
        for ref, waiting in self.taken.items():
            state = loaded.sessions[ref]
            if isinstance(state, SatchelError):
                self._unreadable[ref] = state
                continue
            fold = self._folds[ref] = _Fold(waiting, state)
            fold.decide_all(loaded.clock)
        return [fold.change(ref) for ref, fold in self._folds.items() if fold.written]

    def settle(self, outcomes: Sequence[Outcome]) -> _Again:
        """Answer what is certain; what is to be decided again is given back."""
        again: _Again = []
        written = [ref for ref, fold in self._folds.items() if fold.written]
        told = dict(zip(written, outcomes, strict=True))
        for ref, fold in self._folds.items():
            outcome = told.get(ref, Outcome.APPLIED)
            if outcome is Outcome.APPLIED:
                self._applied.append(fold)
                for waiting, result in zip(fold.waiting, fold.results, strict=True):
                    waiting.answer(result)
            elif outcome is Outcome.REJECTED:
                rejected = StoreCorrupt(
                    f"session {ref.session_id}", trouble="does not take this write; it was not stored"
                )
                again += _refuse(ref, fold.waiting, rejected)
            else:
                if outcome is Outcome.UNKNOWN:
                    fold.note_unsettled()
                kept = _still_patient(fold.waiting)
                if kept:
                    again.append((ref, kept))
        for ref, error in self._unreadable.items():
            again += _refuse(ref, self.taken[ref], error)
        return again

    def seen(self) -> Seen:
        return Seen(
            sum([len(waiting) for waiting in self.taken.values()]),
            time.monotonic() - self._began,
            tuple([event.kind for fold in self._applied for event in fold.events]),
            tuple([run for fold in self._applied for run in fold.runs.values()]),
        )

    def fail(self, error: BaseException) -> _Again:
        """The whole of it failed. If the store is not to blame one decision is, and nobody else may hear of it: what was
        taken together is given back, to be tried apart."""
        if not isinstance(error, Exception) or (isinstance(error, StoreError) and not isinstance(error, StoreCorrupt)):
            for waiting in self.taken.values():
                _fail(waiting, error)
            return []
        for fold in self._folds.values():
            fold.note_unsettled()
        if len(self.taken) > 1:
            return [(ref, _apart(waiting, _Apart.IN_ITS_SESSION)) for ref, waiting in self.taken.items()]
        return [kept for ref, waiting in self.taken.items() for kept in _refuse(ref, waiting, error)]


def _apart(waiting: list[_Waiting], how: _Apart) -> list[_Waiting]:
    for one in waiting:
        one.apart = max(one.apart, how)
    return waiting


def _refuse(ref: SessionRef, waiting: list[_Waiting], error: BaseException) -> _Again:
    """An error of one session. Among several decisions it is the fault of one: each is given back, to be tried alone."""
    if len(waiting) > 1:
        return [(ref, _apart(waiting, _Apart.ALONE))]
    _fail(waiting, error)
    return []


def _still_patient(waiting: list[_Waiting]) -> list[_Waiting]:
    now = time.monotonic()
    kept: list[_Waiting] = []
    for one in waiting:
        if now - one.entered > PATIENCE:
            _fail([one], StoreBusy())
        else:
            kept.append(one)
    return kept


class Committer:
    """See the module. Lives on one event loop. ``observer`` is told of each commit."""

    def __init__(self, store: Store) -> None:
        self.observer: Callable[[Seen], None] | None = None
        self._store = store
        self._waiting: dict[SessionRef, list[_Waiting]] = {}
        self._in_flight: set[SessionRef] = set()
        self._batches: set[asyncio.Future[list[Outcome]]] = set()
        self._scheduled = False
        self._lone_batches = 0  # in a row, that held one decision each
        self._some_apart = False
        self._closed = False

    @property
    def is_closed(self) -> bool:
        return self._closed

    def submit(self, decision: Decision[V]) -> Awaitable[Committed[V]]:
        """Decide and commit. Raises the decision's refusal, or a StoreError. If the caller is cancelled the decision may
        still be committed."""
        if self._closed:
            raise StoreMisused("the store is closed")
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Committed[V]] = loop.create_future()
        entering = _Waiting(decision, future)
        waiting = self._waiting.get(decision.ref)
        if waiting is None:
            self._waiting[decision.ref] = [entering]
        else:
            waiting.append(entering)
        if not self._scheduled:
            if self._lone_batches >= SURELY_LONE and not self._batches:
                self._start_batches()  # a lone writer waits for every turn of the loop, and nobody else will come in this
            else:
                self._schedule(loop)
        return future

    async def close(self) -> None:
        """Finish what waits; take nothing more."""
        self._closed = True
        while self._batches or self._waiting:
            if self._batches:
                await asyncio.wait(self._batches)
            else:
                await asyncio.sleep(0)

    def _schedule(self, loop: asyncio.AbstractEventLoop) -> None:
        if not self._scheduled and self._has_room():
            self._scheduled = True
            loop.call_soon(self._start_batches)  # after the tasks that are ready now have handed in theirs

    def _has_room(self) -> bool:
        """For another batch in flight."""
        return not self._batches or len(self._batches) < self._store.capabilities.parallel_batches

    def _start_batches(self) -> None:
        self._scheduled = False
        while self._has_room():
            taken = self._take()
            if not taken:
                return
            batch = _Batch(taken)
            self._lone_batches = self._lone_batches + 1 if batch.is_lone else 0
            try:
                landing = asyncio.ensure_future(self._store.transact(batch.wanted(), batch.decide))
            except Exception as error:  # noqa: BLE001  # somebody hears it; nobody may wait for ever
                self._in_flight.difference_update(taken)
                self._take_back(batch.fail(error))
                continue
            self._batches.add(landing)
            landed = partial(self._landed, batch)
            if isinstance(landing, Landing):
                landing.heard = landed
            else:
                landing.add_done_callback(landed)

    def _landed(self, batch: _Batch, landing: asyncio.Future[list[Outcome]]) -> None:
        """A callback, not a task: a lone write waits for every turn of the loop."""
        self._batches.discard(landing)
        self._in_flight.difference_update(batch.taken)
        if landing.cancelled():
            batch.fail(OutcomeUnknown("the event loop stopped"))
        elif (failure := landing.exception()) is not None:
            self._take_back(batch.fail(failure))
        else:
            try:
                again = batch.settle(landing.result())
            except Exception as error:  # noqa: BLE001  # a store's answer that is none: nobody may wait for ever
                again = batch.fail(error)
            self._take_back(again)
            if self.observer is not None:
                self.observer(batch.seen())
        if self._waiting:
            self._schedule(landing.get_loop())

    def _take_back(self, again: _Again) -> None:
        """They go before those that came after them."""
        for ref, waiting in again:
            self._some_apart = self._some_apart or waiting[0].apart is not _Apart.NOT
            self._waiting[ref] = waiting + self._waiting.get(ref, [])

    def _take(self) -> dict[SessionRef, list[_Waiting]]:
        """The decisions that waited longest, session by session, within a batch's bounds; a larger one goes alone."""
        if self._some_apart and (found := self._take_apart()):
            return found
        batch: dict[SessionRef, list[_Waiting]] = {}
        count = size = 0
        for ref in list(self._waiting):
            if ref in self._in_flight:
                continue
            queue = self._waiting[ref]
            taken = 0
            for waiting in queue:
                if count and (count == BATCH_DECISIONS or size + waiting.size > BATCH_BYTES):
                    break
                count += 1
                taken += 1
                size += waiting.size
            if taken:
                batch[ref] = self._pull(ref, taken)
            if count == BATCH_DECISIONS or size > BATCH_BYTES:
                break
        return batch

    def _take_apart(self) -> dict[SessionRef, list[_Waiting]]:
        """Of one session those that go apart, or the first of those that go alone. They stand before all others of it."""
        self._some_apart = False
        for ref, queue in self._waiting.items():
            how = queue[0].apart
            if how is _Apart.NOT:
                continue
            self._some_apart = True
            if ref in self._in_flight:
                continue
            if how is _Apart.ALONE:
                return {ref: self._pull(ref, 1)}
            return {ref: self._pull(ref, sum([waiting.apart is how for waiting in queue]))}
        return {}

    def _pull(self, ref: SessionRef, count: int) -> list[_Waiting]:
        self._in_flight.add(ref)
        queue = self._waiting[ref]
        if count == len(queue):
            return self._waiting.pop(ref)
        self._waiting[ref] = queue[count:]
        return queue[:count]


def _want(waiting: list[_Waiting]) -> Want:
    return waiting[0].want if len(waiting) == 1 else merge_wants([one.want for one in waiting])


def _fail(waiting: list[_Waiting], error: BaseException) -> None:
    """Refuse all; those whose earlier attempt may have landed are told so, when the store will not say."""
    for one in waiting:
        unknown = one.unsettled and isinstance(error, (StoreUnavailable, StoreBusy))
        one.answer(OutcomeUnknown(str(error)) if unknown else error)
