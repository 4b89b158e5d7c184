"""Group commit: decisions that wait at the same time share one commit of the store.

One committer per open store, shared by all its managers. Decisions on one session are decided one after another in
memory and folded into one change. Whatever is answered without a commit was decided on a record read after the call
began, and is answered only after the decisions before it in its batch are committed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar

from satchel.commit.batch import Batch, Seen
from satchel.commit.waiting import Again, Apart, Committed, Waiting
from satchel.domain.decisions.decision import Decision
from satchel.domain.ids import SessionRef
from satchel.errors import OutcomeUnknown, StoreMisused
from satchel.store import Landing, Outcome, Store

V = TypeVar("V")

BATCH_DECISIONS = 256
BATCH_BYTES = 4 * 1024 * 1024
WORTH_SHARING = 16  # sessions that wait: where two batches may be in flight, each then takes a half
SURELY_LONE = 16  # batches of one decision, after which the next is not expected to have company


class Committer:
    """See the module. Lives on one event loop. ``observer`` is told of each commit."""

    def __init__(self, store: Store) -> None:
        self.observer: Callable[[Seen], None] | None = None
        self._store = store
        self._waiting: dict[SessionRef, list[Waiting]] = {}
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
        entering = Waiting(decision, future)
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
            batch = Batch(taken)
            self._lone_batches = self._lone_batches + 1 if batch.is_lone else 0
            try:
                found = self._store.transact(batch.wanted(), batch.decide)
                landing = found if isinstance(found, Landing) else asyncio.ensure_future(found)
            except Exception as error:  # noqa: BLE001  # somebody hears it; nobody may wait for ever
                self._in_flight.difference_update(taken)
                self._take_back(batch.fail(error))
                continue
            self._batches.add(landing)
            landed = partial(self._landed, batch)
            if isinstance(landing, Landing) and not landing.done():
                landing.heard = landed
            else:
                landing.add_done_callback(landed)

    def _landed(self, batch: Batch, landing: asyncio.Future[list[Outcome]]) -> None:
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
        if self._waiting:
            self._schedule(landing.get_loop())  # before others are told, whose faults would keep it from those who wait
        if self.observer is not None and not landing.cancelled() and landing.exception() is None:
            self.observer(batch.seen())

    def _take_back(self, again: Again) -> None:
        """They go before those that came after them."""
        for ref, waiting in again:
            self._some_apart = self._some_apart or waiting[0].apart is not Apart.NOT
            self._waiting[ref] = waiting + self._waiting.get(ref, [])

    def _take(self) -> dict[SessionRef, list[Waiting]]:
        """The decisions that waited longest, session by session, within a batch's bounds; a larger one goes alone."""
        if self._some_apart and (found := self._take_apart()):
            return found
        batch: dict[SessionRef, list[Waiting]] = {}
        count = size = 0
        most = self._share()
        for ref in list(self._waiting):
            if ref in self._in_flight:
                continue
            if len(batch) == most:
                break
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

    def _share(self) -> int:
        """Sessions for the next batch. Writers that all wait for one batch come back together, and the store is idle while they
        are answered and the next is decided: of two halves one is written while the other is decided."""
        waiting = len(self._waiting)
        if self._batches or waiting < WORTH_SHARING or self._store.capabilities.parallel_batches == 1:
            return waiting
        return (waiting + 1) // 2

    def _take_apart(self) -> dict[SessionRef, list[Waiting]]:
        """Of one session those that go apart, or the first of those that go alone. They stand before all others of it."""
        self._some_apart = False
        for ref, queue in self._waiting.items():
            how = queue[0].apart
            if how is Apart.NOT:
                continue
            self._some_apart = True
            if ref in self._in_flight:
                continue
            if how is Apart.ALONE:
                return {ref: self._pull(ref, 1)}
            return {ref: self._pull(ref, sum([waiting.apart is how for waiting in queue]))}
        return {}

    def _pull(self, ref: SessionRef, count: int) -> list[Waiting]:
        self._in_flight.add(ref)
        queue = self._waiting[ref]
        if count == len(queue):
            return self._waiting.pop(ref)
        self._waiting[ref] = queue[count:]
        return queue[:count]
