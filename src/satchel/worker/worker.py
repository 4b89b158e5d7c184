"""The worker: looks for runs, holds those that it claimed, looks after what other workers lost, and stops in order."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Mapping

from satchel.domain.ids import SessionRef
from satchel.domain.session import Session
from satchel.errors import SatchelError, SchemaMismatch, StoreError, StoreMisused
from satchel.opened import OpenStore
from satchel.patience import AWAY, pauses
from satchel.runs import LEASE
from satchel.sweeper import Sweeper, SweepReport
from satchel.worker.agents import Served, checked_agents
from satchel.worker.claims import ReadyRuns, claim
from satchel.worker.holding import TELLING, Holding
from satchel.worker.options import check_options
from satchel.worker.threads import AgentThreads, give_way_sooner

CONCURRENCY = 8
GRACE = 20.0  # seconds
POLL = 0.02  # seconds between two looks of a worker that has nothing to do
SWEEP = 10.0  # seconds between two sweeps, at most
SHUN = 1.0  # seconds without a session whose run could not be claimed; doubled each time
LONGEST_SHUN = 60.0
LAST_WORDS = 5.0  # seconds, at most, for the commits of a worker that stops

_log = logging.getLogger("satchel.worker")


class Worker:
    """Executes runs of ``agents``: by name, an engine, an async function of a context, or a factory of one of these.

    Takes READY runs that name one of these agents and have their session's turn, of any session and tenant, ``concurrency`` at
    once, each under a lease of ``lease`` seconds (at least 0.5). A run that names no agent is taken by no worker. ``grace``: seconds
    that an agent has to return after its run was cancelled or lost, and that running runs have to finish after ``stop``. With
    ``session`` it takes the runs of that session alone. Any number of workers may share a store. The store stays its opener's.
    """

    def __init__(
        self,
        store: OpenStore,
        agents: Mapping[str, Served],
        *,
        concurrency: int = CONCURRENCY,
        lease: float = LEASE,
        grace: float = GRACE,
        session: Session | None = None,
    ) -> None:
        check_options(concurrency=concurrency, lease=lease, grace=grace)
        self._opened = store
        self._agents = checked_agents(agents)
        self._concurrency = concurrency
        self._lease = float(lease)
        self._grace = float(grace)
        only = None if session is None else SessionRef(session.tenant_id, session.session_id)
        self._ready = ReadyRuns(store.store, self._agents, only=only)
        self._threads = AgentThreads(self._agents)
        self._slots: dict[asyncio.Task[None], SessionRef] = {}
        self._holdings: set[Holding] = set()
        self._shunned: dict[SessionRef, tuple[float, float]] = {}  # until when, and for how long
        self._wake = asyncio.Event()
        self._stopping = asyncio.Event()
        self._is_letting_go = False
        self._is_over = False

    @property
    def agents(self) -> tuple[str, ...]:
        return tuple(self._agents)

    @property
    def held_runs(self) -> tuple[str, ...]:
        """The ids of the runs that are being executed here now."""
        return tuple(holding.run.run_id for holding in self._holdings)

    def stop(self) -> None:
        """Take no more runs; those that run have ``grace`` seconds to finish. Then ``run_forever`` returns. Twice is fine."""
        self._stopping.set()
        self._wake.set()

    async def run_forever(self) -> None:
        """Work until ``stop``. A store that is away is waited for.

        What is left after the grace time is handed back if it has attempts left, and else FAILED with ``worker_lost``; so
        it is at once when this is cancelled. Raises what a factory of an agent raises, before a run is claimed.
        """
        give_way_sooner()
        thread = self._threads.take()
        self._threads.give_back(thread)
        try:
            await thread.make_all()
        except BaseException:
            await self._threads.close()
            raise
        duties = [asyncio.create_task(self._claim_forever()), asyncio.create_task(self._sweep_forever())]
        stopped = asyncio.create_task(self._stopping.wait())
        grace = self._grace
        try:
            await asyncio.wait({*duties, stopped}, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            grace = 0.0
            raise
        finally:
            self.stop()
            for duty in (*duties, stopped):
                duty.cancel()
            try:
                await asyncio.gather(*duties, stopped, return_exceptions=True)
            except asyncio.CancelledError:
                grace = 0.0
                raise
            finally:
                await self._let_go(grace)
        for duty in duties:
            if not duty.cancelled():
                duty.result()  # a fault of ours: it is to be heard

    async def _let_go(self, grace: float) -> None:
        """A cancellation cuts short what it meets: the grace time, or the moment for the last commits."""
        try:
            if self._slots and grace > 0:
                await asyncio.wait(self._slots, timeout=grace)
        finally:
            await self._hand_back()

    async def _hand_back(self) -> None:
        self._is_letting_go = True
        for holding in self._holdings:
            holding.hand_back()
        try:
            if self._slots:
                await asyncio.wait(self._slots, timeout=TELLING + LAST_WORDS)
        finally:
            self._is_over = True
            for slot in self._slots:
                slot.cancel()
            await asyncio.gather(*self._slots, return_exceptions=True)
            await self._threads.close()

    # -- claiming

    async def _claim_forever(self) -> None:
        pause = None
        while not self._stopping.is_set():
            self._wake.clear()
            free = self._concurrency - len(self._slots)
            if free == 0:
                await self._wake.wait()
                continue
            try:
                found = await self._ready.find(free, without={*self._slots.values(), *self._shunned_now()})
            except (StoreMisused, SchemaMismatch):
                raise  # nobody will mend it for us
            except Exception as away:  # noqa: BLE001  # also one that a store did not foresee: a worker that ends is no help
                if pause is None:
                    pause = pauses()
                    foreseen = isinstance(away, StoreError)
                    _log.warning("the store is away, and asked until it is back: %r", away, exc_info=not foreseen)
                await asyncio.sleep(next(pause))
                continue
            if pause is not None:
                pause = None
                _log.warning("the store is back")
            for ref, agent in found:
                slot = asyncio.create_task(self._work(ref, agent))
                self._slots[slot] = ref
                slot.add_done_callback(self._slot_free)
            if not found:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._wake.wait(), POLL)

    def _slot_free(self, slot: asyncio.Task[None]) -> None:
        self._slots.pop(slot, None)
        self._wake.set()  # the run's end may have given the turn to the next
        if not slot.cancelled() and (fault := slot.exception()) is not None:
            _log.error("a run could not be looked after", exc_info=fault)

    async def _work(self, ref: SessionRef, agent: str) -> None:
        try:
            claimed = await claim(self._opened, ref, agent, lease=self._lease, is_over=self._is_stopped)
        except AWAY as away:
            _log.debug("no claim in session %s: %s", ref.session_id, away)
            await asyncio.sleep(random.uniform(0.05, 0.5))  # noqa: S311  # spreads load, keeps no secret
            return
        except SatchelError as refused:
            self._shun(ref, refused)
            return
        if claimed is None:
            return
        self._shunned.pop(ref, None)
        holding = Holding(self._opened, claimed, lease=self._lease, grace=self._grace)
        if self._is_letting_go:
            holding.hand_back()
        self._holdings.add(holding)
        thread = self._threads.take()
        try:
            await holding.execute(thread)
        finally:
            self._holdings.discard(holding)
            self._threads.give_back(thread)

    def _is_stopped(self) -> bool:
        return self._is_over

    def _shun(self, ref: SessionRef, why: SatchelError) -> None:
        """A session that cannot be read must not be asked for fifty times a second."""
        _, last = self._shunned.get(ref, (0.0, SHUN / 2))
        pause = min(2 * last, LONGEST_SHUN)
        self._shunned[ref] = (asyncio.get_running_loop().time() + pause, pause)
        if last < SHUN:
            _log.error("the run of session %s cannot be claimed: %s", ref.session_id, why)

    def _shunned_now(self) -> set[SessionRef]:
        now = asyncio.get_running_loop().time()
        for ref, (until, _) in list(self._shunned.items()):
            if now > until + LONGEST_SHUN:  # nobody asks for it any more
                del self._shunned[ref]
        return {ref for ref, (until, _) in self._shunned.items() if now < until}

    # -- sweeping

    async def _sweep_forever(self) -> None:
        """What another worker lost is found within its lease and the time between two sweeps."""
        sweeper = Sweeper(self._opened)
        interval = min(SWEEP, self._lease / 3)
        while True:
            await asyncio.sleep(interval * random.uniform(0.5, 1.0))  # noqa: S311  # no two workers alike
            if any(holding.is_late for holding in self._holdings):
                continue  # who is slow itself takes nobody for dead
            try:
                report = await sweeper.sweep_once()
            except SatchelError as error:
                _log.debug("the sweep broke off: %s", error)
                continue
            except Exception:  # noqa: BLE001  # a fault of ours must not end the looking after
                _log.exception("the sweep broke off")
                report = SweepReport()
            if report.runs_settled:
                self._wake.set()
