"""A run that this worker holds: its lease is renewed, its agent is told what it must know, its end is written."""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Literal

from satchel.domain.decisions.decision import holds, waits
from satchel.domain.principal import Principal
from satchel.domain.run import Run
from satchel.errors import IllegalTransition, NotFound, RunFailed, RunFenced, SessionNotActive, StoreError
from satchel.failing import failure_of
from satchel.opened import OpenStore
from satchel.patience import patient_store
from satchel.runs import RunManager
from satchel.sessions import SessionManager
from satchel.worker.carried import CarriedContext
from satchel.worker.claims import Claim
from satchel.worker.threads import AgentThread, Execution
from satchel.working import RunInProgress

Told = Literal["cancelled", "lost", "stopped", "suspended"]

LOOK = 0.1  # seconds between two looks whether somebody asked the run to stop
TELLING = 1.0  # seconds for an agent to leave in order, when its worker stops

_log = logging.getLogger("satchel.worker")


class Holding:
    """One claimed run. The agent reaches this run of this session, and nothing else of the store."""

    def __init__(self, opened: OpenStore, claim: Claim, *, lease: float, grace: float) -> None:
        self._opened = opened
        self._ref = claim.ref
        self._agent = claim.agent
        self._run = claim.run
        self._lease = lease
        self._grace = grace
        self._held_until = claim.began + lease  # at least: the lease began later, at the commit
        self._told: Told | None = None
        self._is_let_go = False
        self._has_said_lost = False
        self._fence: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._execution: Execution | None = None
        principal = Principal.agent(claim.agent, tenant_id=claim.ref.tenant_id, acting_for=claim.user_id)
        patient = patient_store(opened, is_over=self._is_over)
        self._runs = RunManager(patient, principal)
        self._renewing = RunManager(opened, principal)
        self._ctx = RunInProgress(SessionManager(patient, principal), self._runs, claim.run)

    @property
    def _lost_at(self) -> float:
        return self._held_until + self._lease / 3

    @property
    def run(self) -> Run:
        return self._run

    @property
    def is_late(self) -> bool:
        """Whether a renewal that was due is not answered yet."""
        return asyncio.get_running_loop().time() > self._held_until - self._lease / 3

    def _is_over(self) -> bool:
        """Nobody waits for the store any more: the run is lost, or was let go."""
        return self._told == "lost" or self._is_let_go

    async def execute(self, thread: AgentThread) -> None:
        """Until the agent has returned, or the run was taken away from it. Writes the run's end."""
        carried = CarriedContext(self._ctx, is_over=self._is_over)
        execution = self._execution = thread.execute(self._agent, carried)
        guards = [asyncio.create_task(self._renew()), asyncio.create_task(self._watch())]
        try:
            if self._told is not None:  # before there was an execution to hear it: it never begins
                execution.cancel()
            either: list[asyncio.Future[Any]] = [execution.ended, self._fence]
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if execution.ended.done():
                await self._write_end(execution.ended.result())
            else:
                await self._end_by_fence()
        finally:
            self._is_let_go = True
            carried.release()
            for guard in guards:
                guard.cancel()
            await asyncio.gather(*guards, return_exceptions=True)
            execution.cancel()  # of no effect on code that has returned

    def hand_back(self) -> None:
        """The worker stops: the agent is told, has a moment to leave in order, and the run goes to whoever comes next."""
        self._tell("stopped", TELLING)

    def _tell(self, why: Told, patience: float) -> None:
        """What is told first decides how the run ends, but for a loss: then there is no end to write."""
        if self._told is None or why == "lost":
            self._told = why
        if why == "lost" and (self._execution is None or not self._execution.ended.done()):
            self._say_lost()  # before its agent hears of it, and leaves a call cancelled
        self._ctx.notice_cancel()
        if self._execution is not None:
            self._execution.cancel()
        asyncio.get_running_loop().call_later(patience, self._let_fall)

    def _leave_waiting(self) -> None:
        """The run waits for an answer, and is whoever's then. The agent leaves by the exception of its ``ask``; if it does
        not, it is cancelled a moment later, and let go after the grace time."""
        if self._told is None:
            self._told = "suspended"
        loop = asyncio.get_running_loop()
        if self._execution is not None:
            loop.call_later(TELLING, self._execution.cancel)
        loop.call_later(max(TELLING, self._grace), self._let_fall)

    def _let_fall(self) -> None:
        if not self._fence.done():
            self._fence.set_result(None)

    # -- how it ends

    async def _write_end(self, raised: BaseException | None) -> None:
        """The agent's code has returned, or raised."""
        told = self._told
        if self._ctx.is_suspended:
            _log.info("run %s waits for an answer", self._run.run_id)
            return
        if told is None and self._ctx.is_cancelled:  # learned with a step
            told = "cancelled"
        if told is not None:
            await self._end_as_told(told)
        elif raised is None:
            await self._end("COMPLETED")
        else:
            await self._end("FAILED", raised)

    async def _end_by_fence(self) -> None:
        """The agent does not return: from this commit on its writes are refused."""
        _log.warning("agent %s does not let go of run %s; it is fenced", self._agent, self._run.run_id)
        assert self._told is not None
        if not self._ctx.is_suspended:
            await self._end_as_told(self._told)

    async def _end_as_told(self, told: Told) -> None:
        if told == "cancelled":
            await self._end("CANCELLED")
        elif told == "stopped":
            await self._end("READY")
        elif told == "lost":
            self._say_lost()

    def _say_lost(self) -> None:
        if not self._has_said_lost:
            self._has_said_lost = True
            _log.warning(
                "run %s of agent %s was lost: its lease passed, or it was ended", self._run.run_id, self._agent
            )

    async def _end(
        self, status: Literal["COMPLETED", "FAILED", "CANCELLED", "READY"], raised: BaseException | None = None
    ) -> None:
        """The first terminal commit wins: whoever comes second finds the run ended, and that is that."""
        sid, attempt = self._ref.session_id, self._ctx.attempt
        try:
            if status == "COMPLETED":
                await self._runs.complete_run(sid, attempt, stop_reason=self._ctx.stop_reason)
            elif status == "CANCELLED":
                await self._runs.end_cancelled_run(sid, attempt)
            elif status == "READY":
                await self._runs.hand_back_run(sid, attempt)
            else:
                assert raised is not None
                failure = failure_of(raised)
                await self._runs.fail_run(sid, attempt, code=failure.code, message=failure.message)
                if isinstance(raised, RunFailed):  # it said all there is to say
                    _log.warning("agent %s failed run %s: %s: %s", self._agent, attempt.run_id, failure.code, raised)
                else:
                    _log.error("agent %s failed run %s", self._agent, attempt.run_id, exc_info=raised)
        except (RunFenced, IllegalTransition, SessionNotActive, NotFound):
            _log.info("run %s was ended by somebody else", attempt.run_id)
        except StoreError as away:  # its lease will pass, and any worker finds it
            _log.error("the end of run %s could not be written: %s", attempt.run_id, away)

    # -- what guards it

    async def _renew(self) -> None:
        """A third of the lease is the rhythm; while the store is away, ten times as often. When a lease passed, and the time
        in which another worker notices, the run is lost, also if nobody could say so."""
        loop = asyncio.get_running_loop()
        pause = max(0.0, self._held_until - self._lease * 2 / 3 - loop.time())
        while True:
            await asyncio.sleep(pause)
            began = loop.time()
            try:
                async with asyncio.timeout_at(max(self._lost_at, began + self._lease / 10)):
                    stopping = await self._renewing.renew_run(self._ref.session_id, self._ctx.attempt)
            except (RunFenced, SessionNotActive, NotFound):
                if self._ctx.is_asking:  # what becomes of that says more
                    pause = LOOK
                    continue
                if not self._ctx.is_suspended:
                    self._tell("lost", self._grace)
                return
            except Exception as away:  # noqa: BLE001  # whatever a store raises: only the lease's end ends the renewals
                if loop.time() >= self._lost_at:
                    _log.warning("the lease of run %s passed while the store was away: %r", self._run.run_id, away)
                    self._tell("lost", self._grace)
                    return
                pause = self._lease / 30
            else:
                self._held_until = began + self._lease
                pause = max(0.0, self._lease / 3 - (loop.time() - began))
                if stopping:
                    self._tell_cancelled()

    async def _watch(self) -> None:
        """A cancellation is heard well before the next renewal."""
        pause = LOOK  # a run that is over by then costs no look
        after = 0
        while True:
            await asyncio.sleep(pause)
            try:
                await self._opened.store.wait(self._ref, after, self._lease / 3)
                snapshot = await self._opened.store.snapshot(self._ref, working_memory=False, metadata=False)
            except Exception as away:  # noqa: BLE001  # the next look, or a renewal, hears it
                _log.debug("no look at run %s: %r", self._run.run_id, away)
                continue
            record = snapshot.record
            if record is None or not holds(record, self._ctx.attempt):
                if self._ctx.is_asking:
                    continue
                if self._ctx.is_suspended or (record is not None and waits(record, self._ctx.attempt)):
                    self._leave_waiting()
                else:
                    self._tell("lost", self._grace)
                return
            after = record.last_seq
            self._ctx.notice_children(record)
            if record.turn is not None and record.turn.cancel_requested:
                self._tell_cancelled()
                return

    def _tell_cancelled(self) -> None:
        if self._told is None:
            _log.info("run %s was asked to stop", self._run.run_id)
            self._tell("cancelled", self._grace)
