"""Who holds a run: leases under agents that block, stores that are away, and a worker that stops."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Literal

import pytest

from satchel import (
    Attempt,
    IllegalTransition,
    OpenStore,
    Principal,
    Run,
    RunContext,
    RunFenced,
    RunManager,
    StoreUnavailable,
    Worker,
)
from satchel.domain.ids import SessionRef
from satchel.domain.state import Want
from satchel.store import Change, Loaded, Outcome, Snapshot
from satchel.testing.wrappers import StoreWrapper
from tests.worker.stage import Stage, until, working


class AbsentStore(StoreWrapper):
    """Another process's way to the same data, which may be away: nothing is stored then."""

    is_away = False
    refused = 0

    def _meet(self) -> None:
        if self.is_away:
            self.refused += 1
            raise StoreUnavailable("the network is gone")

    def transact(
        self, wanted: Mapping[SessionRef, Want], decide: Callable[[Loaded], Sequence[Change]]
    ) -> Awaitable[list[Outcome]]:
        self._meet()
        return self.inner.transact(wanted, decide)

    async def snapshot(self, ref: SessionRef, **what: Any) -> Snapshot:
        self._meet()
        return await self.inner.snapshot(ref, **what)

    async def due(
        self, queue: Literal["ready", "sweep"], *, agent: str | None = None, after: SessionRef | None = None, limit: int
    ) -> list[SessionRef]:
        self._meet()
        return await self.inner.due(queue, agent=agent, after=after, limit=limit)

    async def wait(self, ref: SessionRef, after: int, timeout: float, *, revision: int | None = None) -> None:
        self._meet()
        await self.inner.wait(ref, after, timeout, revision=revision)


# -- agents that block


@pytest.mark.slow
async def test_agents_that_block_for_longer_than_the_lease_keep_their_runs(stage: Stage) -> None:
    async def computes(ctx: RunContext) -> None:
        async with ctx.tool("compute") as call:
            end = time.monotonic() + 2
            while time.monotonic() < end:
                pass
            call.result = 3

    async def sleeps(ctx: RunContext) -> None:
        async with ctx.tool("sleep") as call:
            time.sleep(2)  # noqa: ASYNC251  # that is the point
            call.result = 3

    async with working(stage.store, {"computes": computes, "sleeps": sleeps}, lease=1):
        names = ["sleeps", *["computes"] * 3]  # which all want Python's lock
        runs = [await stage.added(name, max_attempts=2) for name in names]
        for run in runs:
            ended = await stage.ended(run)
            assert (ended.status, ended.attempt, ended.error) == ("COMPLETED", 1, None)
            assert await stage.calls(run.session_id) == ["succeeded"]


# -- stores that are away


async def test_a_store_that_is_away_for_a_while_is_waited_for(stage: Stage) -> None:
    """By the claim, by what an agent writes and reads, and by the run's end."""
    store = AbsentStore(stage.store.store)
    gates = [threading.Event(), threading.Event()]

    async def write(ctx: RunContext) -> None:
        gates[0].set()
        async with ctx.tool("work") as call:
            call.result = "done"
            await asyncio.to_thread(gates[1].wait, 20)
        await ctx.append_message({"role": "assistant", "content": "done"})
        assert (await ctx.session()).message_count == 1

    store.is_away = True
    async with working(OpenStore(store), {"shop": write}, lease=2):
        run = await stage.added("shop")
        await until(lambda: store.refused > 2)
        store.is_away = False
        await until(gates[0].is_set)
        store.is_away = True
        before = store.refused
        gates[1].set()
        await until(lambda: store.refused > before + 3)
        assert (await stage.now(run)).status == "RUNNING"
        store.is_away = False
        ended = await stage.ended(run)
    assert (ended.status, ended.attempt) == ("COMPLETED", 1)
    assert await stage.calls(run.session_id) == ["succeeded"]
    assert [message.content for message in await stage.sessions.messages(run.session_id)] == ["done"]


async def test_a_claim_whose_outcome_is_unknown_is_asked_for_until_it_is_known(stage: Stage) -> None:
    """It was committed, and the store went away before it could say so: nobody else would execute the run."""

    class Forgetful(StoreWrapper):
        commits = 0

        async def commit(self, changes: Sequence[Change]) -> list[Outcome]:
            self.commits += 1
            if self.commits in (2, 3):
                raise StoreUnavailable("the network is gone")
            outcomes = await self.inner.commit(changes)
            return [Outcome.UNKNOWN] * len(outcomes) if self.commits == 1 else outcomes

    executed: list[int] = []

    async def note(ctx: RunContext) -> None:
        executed.append(ctx.attempt.attempt)

    store = Forgetful(stage.store.store)
    async with working(OpenStore(store), {"shop": note}):
        run = await stage.ended(await stage.added("shop"))
    assert store.commits > 3
    assert (run.status, run.attempt, executed) == ("COMPLETED", 1, [1])


async def test_a_worker_that_lost_its_lease_is_told_and_fenced(stage: Stage) -> None:
    """It cannot reach the store, another worker can: that one goes on with the run, and nothing of the first is added."""
    told: list[bool] = []
    late: list[BaseException] = []
    inside = threading.Event()

    async def first(ctx: RunContext) -> None:
        try:
            async with ctx.tool("work"):
                inside.set()
                await asyncio.sleep(60)
        except asyncio.CancelledError:
            told.append(ctx.is_cancelled)
        try:
            await ctx.append_message({"role": "assistant", "content": "from the first"})
        except (RunFenced, StoreUnavailable) as refused:
            late.append(refused)

    async def second(ctx: RunContext) -> None:
        await ctx.append_message({"role": "assistant", "content": "from the second"})

    cut_off = AbsentStore(stage.store.store)
    async with working(OpenStore(cut_off), {"shop": first}, lease=0.6, grace=5):
        run = await stage.added("shop", max_attempts=2)
        await until(inside.is_set)
        cut_off.is_away = True
        async with working(stage.store, {"shop": second}, lease=0.6):
            ended = await stage.ended(run)
            await until(lambda: late)
        cut_off.is_away = False
        assert (ended.status, ended.attempt) == ("COMPLETED", 2)
        assert told == [True]
    assert await stage.calls(run.session_id) == ["unknown"]
    assert [message.content for message in await stage.sessions.messages(run.session_id)] == ["from the second"]


async def test_the_log_tells_that_a_run_is_lost_before_its_agent_leaves_something_cancelled(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    """So that it is told also by a worker that dies in that moment."""
    told: list[bool] = []
    inside = threading.Event()

    async def agent(ctx: RunContext) -> None:
        inside.set()
        try:
            await asyncio.sleep(20)
        finally:
            told.append("was lost" in caplog.text)

    cut_off = AbsentStore(stage.store.store)
    async with working(OpenStore(cut_off), {"shop": agent}, lease=0.6):
        await stage.added("shop")
        await until(inside.is_set)
        cut_off.is_away = True
        await until(lambda: told)
        cut_off.is_away = False
    assert told == [True]
    assert caplog.text.count("was lost") == 1


async def test_a_run_whose_worker_is_gone_ends_and_the_queue_goes_on(stage: Stage) -> None:
    """By any worker: also one that serves other agents alone."""
    lost = await stage.added("shop")
    await stage.added("other", lost.session_id)
    operator = Stage(stage.store)
    sid = lost.session_id
    claimed = await _claimed(operator, lost, lease=0.2)

    async def serve(ctx: RunContext) -> None:
        await ctx.append_message({"role": "assistant", "content": "next"})

    async with working(stage.store, {"other": serve}, lease=0.6):
        await until(lambda: _said(stage, sid, "next"))  # by a look that settles nothing
    ended = await stage.now(lost)
    assert claimed.attempt == 1
    assert ended.error is not None
    assert (ended.status, ended.error.code) == ("FAILED", "worker_lost")
    log = await stage.log(sid)
    settled = next(event for event in log if event.kind == "run_ended")
    assert settled.actor == "operator"


async def _claimed(stage: Stage, run: Run, *, lease: float) -> Run:
    return await RunManager(stage.store, Principal.operator(tenant_id="acme")).start_run(
        run.session_id, run.run_id, lease=lease
    )


async def _said(stage: Stage, session_id: str, text: str) -> bool:
    return any(text.encode() in event.body for event in await stage.log(session_id) if event.kind == "message")


# -- a worker that stops


async def _stopped(stage: Stage, *, grace: float, max_attempts: int, seconds: float) -> tuple[Run, Run]:
    """A run of a worker that is stopped while it works for ``seconds``, and the one behind it."""
    inside = threading.Event()

    async def work(ctx: RunContext) -> None:
        async with ctx.tool("work") as call:
            inside.set()
            await asyncio.sleep(seconds)
            call.result = "done"

    worker = Worker(stage.store, {"shop": work}, grace=grace)
    task = asyncio.create_task(worker.run_forever())
    run = await stage.added("shop", max_attempts=max_attempts)
    behind = await stage.added("shop", run.session_id)
    await until(inside.is_set)
    assert list(worker.held_runs) == [run.run_id]
    worker.stop()
    await asyncio.wait_for(task, 10)
    assert not list(worker.held_runs)
    return await stage.now(run), await stage.now(behind)


async def test_a_stopped_worker_lets_its_runs_finish_and_takes_no_more(stage: Stage) -> None:
    run, behind = await _stopped(stage, grace=5, max_attempts=1, seconds=0.3)
    assert run.status == "COMPLETED"
    assert (behind.status, behind.attempt) == ("READY", 0)


async def test_what_does_not_finish_in_time_is_handed_back_if_attempts_are_left(stage: Stage) -> None:
    run, behind = await _stopped(stage, grace=0.1, max_attempts=2, seconds=60)
    assert (run.status, run.attempt, run.error) == ("READY", 1, None)
    assert behind.status == "READY"
    record = (await stage.store.store.snapshot(SessionRef("acme", run.session_id))).record
    assert record is not None
    assert record.turn is not None
    assert (record.turn.run_id, record.ready_agent) == (run.run_id, "shop")  # it keeps its turn
    log = await stage.log(run.session_id)
    assert (log[-1].kind, log[-1].data, log[-1].actor) == (
        "run_returned",
        {"attempt": 1, "reason": "handed_back"},
        "agent:shop",
    )

    async def again(ctx: RunContext) -> None: ...

    async with working(stage.store, {"shop": again}):
        ended = await stage.ended(run)
        assert (ended.status, ended.attempt) == ("COMPLETED", 2)
        await stage.ended(behind)


async def test_the_rest_ends_as_worker_lost(stage: Stage) -> None:
    run, behind = await _stopped(stage, grace=0.1, max_attempts=1, seconds=60)
    assert run.error is not None
    assert (run.status, run.error.code, run.stop_reason) == ("FAILED", "worker_lost", "worker_lost")
    record = (await stage.store.store.snapshot(SessionRef("acme", run.session_id))).record
    assert record is not None
    assert record.turn is not None
    assert record.turn.run_id == behind.run_id


async def test_a_stopping_worker_ends_runs_of_agents_that_do_not_let_go(stage: Stage) -> None:
    inside = threading.Event()
    release = threading.Event()

    async def stuck(ctx: RunContext) -> None:
        async with ctx.tool("work"):
            inside.set()
            release.wait(20)

    worker = Worker(stage.store, {"shop": stuck}, grace=0.1)
    task = asyncio.create_task(worker.run_forever())
    run = await stage.added("shop", max_attempts=2)
    await until(inside.is_set)
    worker.stop()
    await asyncio.wait_for(task, 10)
    release.set()
    assert ((await stage.now(run)).status, await stage.calls(run.session_id)) == ("READY", ["unknown"])


async def test_a_cancelled_worker_hands_back_at_once(stage: Stage) -> None:
    inside = threading.Event()

    async def wait(ctx: RunContext) -> None:
        inside.set()
        await asyncio.sleep(60)

    task = asyncio.create_task(Worker(stage.store, {"shop": wait}, grace=60).run_forever())
    run = await stage.added("shop", max_attempts=2)
    await until(inside.is_set)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(task, 10)
    assert (await stage.now(run)).status == "READY"


@pytest.mark.parametrize("cancellations", [1, 2])
async def test_a_worker_that_is_cancelled_in_its_grace_time_leaves_nothing_behind(
    stage: Stage, cancellations: int
) -> None:
    inside = threading.Event()

    async def wait(ctx: RunContext) -> None:
        while True:
            with contextlib.suppress(asyncio.CancelledError):  # it takes its time
                inside.set()
                await asyncio.sleep(60)

    before = asyncio.all_tasks()
    worker = Worker(stage.store, {"shop": wait}, grace=60)
    task = asyncio.create_task(worker.run_forever())
    run = await stage.added("shop", max_attempts=2)
    await until(inside.is_set)
    worker.stop()
    for _ in range(cancellations):
        await asyncio.sleep(0.1)
        task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(task, 10)
    assert worker.held_runs == ()
    assert asyncio.all_tasks() == before  # nobody renews the lease of what is left
    assert (await stage.now(run)).status == ("READY" if cancellations == 1 else "RUNNING")


async def test_handing_back_is_for_the_attempt_that_holds_the_run(stage: Stage) -> None:
    run = await stage.added("shop", max_attempts=2)
    agent = Stage(stage.store, _agent())
    with pytest.raises(RunFenced):
        await agent.runs.hand_back_run(run.session_id, Attempt(run.run_id, 1))
    await _claimed(stage, run, lease=30)
    call = await agent.sessions.start_tool_call(run.session_id, "t", attempt=Attempt(run.run_id, 1))
    handed = await agent.runs.hand_back_run(run.session_id, Attempt(run.run_id, 1), idempotency_key="k")
    again = await agent.runs.hand_back_run(run.session_id, Attempt(run.run_id, 1), idempotency_key="k")
    assert (handed.status, handed.replayed) == ("READY", False)
    assert (again.status, again.version, again.replayed) == ("READY", handed.version, True)
    assert [(one.seq, one.status) for one in await agent.sessions.tool_history(run.session_id)] == [
        (call.seq, "unknown")
    ]
    await _claimed(stage, run, lease=30)
    with pytest.raises(RunFenced):
        await agent.runs.hand_back_run(run.session_id, Attempt(run.run_id, 1))
    last = await agent.runs.hand_back_run(run.session_id, Attempt(run.run_id, 2))
    assert last.error is not None
    assert (last.status, last.error.code) == ("FAILED", "worker_lost")
    with pytest.raises((RunFenced, IllegalTransition)):
        await agent.runs.hand_back_run(run.session_id, Attempt(run.run_id, 2))


async def test_a_run_that_was_asked_to_stop_is_not_handed_back(stage: Stage) -> None:
    run = await stage.added("shop", max_attempts=2)
    await _claimed(stage, run, lease=30)
    await stage.runs.cancel_run(run.session_id, run.run_id)
    handed = await Stage(stage.store, _agent()).runs.hand_back_run(run.session_id, Attempt(run.run_id, 1))
    assert (handed.status, handed.stop_reason) == ("CANCELLED", "cancelled")


def _agent() -> Principal:
    return Principal.agent("shop", tenant_id="acme", acting_for="ada")
