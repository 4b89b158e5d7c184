"""`satchel worker`, in real processes that are asked to stop, and killed."""

from __future__ import annotations

import asyncio
import signal
import statistics
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

import satchel
from tests.worker.processes import Workers
from tests.worker.stage import Stage, until

pytestmark = pytest.mark.slow


@pytest.fixture
def workers(tmp_path: Path) -> Iterator[Workers]:
    started = Workers(tmp_path)
    yield started
    started.kill_all()


@pytest.fixture
async def stage(workers: Workers) -> AsyncIterator[Stage]:
    async with satchel.open(workers.url) as store:
        yield Stage(store)


async def test_two_processes_never_execute_the_same_run(workers: Workers, stage: Stage) -> None:
    runs = [await stage.added("quick") for _ in range(80)]
    await asyncio.gather(*(workers.start("quick", concurrency=4) for _ in range(2)))
    runs += [await stage.added("quick") for _ in range(40)]
    assert {(await stage.ended(run)).status for run in runs} == {"COMPLETED"}
    starts = workers.of("start")
    assert sorted(effect.run_id for effect in starts) == sorted(run.run_id for run in runs)


async def test_a_killed_workers_run_is_lost_or_tried_again_and_the_queue_goes_on(
    workers: Workers, stage: Stage
) -> None:
    victim = await workers.start("hang", "once_stuck", lease=1)
    lost = await stage.added("hang")
    behind = await stage.added("quick", lost.session_id)
    again = await stage.added("once_stuck", max_attempts=2)
    await until(lambda: len(workers.of("start")) == 2)
    victim.process.send_signal(signal.SIGKILL)
    assert await victim.exit_code() == -signal.SIGKILL
    await workers.start("quick", "once_stuck", lease=1)
    assert (await stage.ended(behind)).status == "COMPLETED"
    ended = await stage.now(lost)
    assert ended.error is not None
    assert (ended.status, ended.error.code, ended.attempt) == ("FAILED", "worker_lost", 1)
    assert await stage.calls(lost.session_id) == ["unknown"]
    second = await stage.ended(again)
    assert (second.status, second.attempt) == ("COMPLETED", 2)
    assert await stage.calls(again.session_id) == ["unknown"]
    kinds = [event.kind for event in await stage.log(again.session_id)]
    assert kinds.count("run_started") == 2
    assert kinds.count("run_returned") == kinds.count("run_ended") == 1


async def test_what_has_a_name_is_done_once_though_the_worker_is_killed_after_each_step(
    workers: Workers, stage: Stage
) -> None:
    run = await stage.added("errand", max_attempts=4)
    for step in ("fetch", "check"):
        victim = await workers.start("errand", lease=1)
        assert await victim.exit_code() == -signal.SIGKILL, victim.said
        assert len(workers.of(step)) == 1
    asks = await workers.start("errand", lease=1)
    asked = await stage.reached(run, "WAITING")
    asks.process.send_signal(signal.SIGKILL)
    await asks.exit_code()
    assert asked.question is not None
    await stage.runs.answer_run(run.session_id, run.run_id, True)
    pays = await workers.start("errand", lease=1)
    assert await pays.exit_code() == -signal.SIGKILL, pays.said
    await workers.start("errand", lease=1)
    ended = await stage.ended(run)
    assert (ended.status, ended.attempt, ended.error) == ("COMPLETED", 5, None)
    done = [effect.what for effect in workers.effects if effect.what in ("fetch", "check", "pay")]
    assert done == ["fetch", "check", "pay"]
    assert len(workers.of("start")) == 5
    assert len(workers.of("answered-True")) == 2
    kinds = [event.kind for event in await stage.log(run.session_id)]
    assert (kinds.count("question_asked"), kinds.count("question_answered")) == (1, 1)
    assert await stage.calls(run.session_id) == ["succeeded"] * 3


async def test_a_cancellation_reaches_an_agent_in_another_process(workers: Workers, stage: Stage) -> None:
    await workers.start("hang")
    run = await stage.added("hang")
    await until(lambda: workers.of("start"))
    asked = time.monotonic()
    await stage.runs.cancel_run(run.session_id, run.run_id)
    assert (await stage.ended(run)).status == "CANCELLED"
    assert time.monotonic() - asked < 3  # the lease is 30 s
    assert [effect.run_id for effect in workers.of("told")] == [run.run_id]
    assert await stage.calls(run.session_id) == ["cancelled"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_lets_runs_finish_and_takes_no_more(
    workers: Workers, stage: Stage, number: signal.Signals
) -> None:
    worker = await workers.start("work", "Shop", grace=10)
    run = await stage.added("work")
    await until(lambda: workers.of("tool0"))
    behind = await stage.added("work", run.session_id)
    worker.process.send_signal(number)
    assert await worker.exit_code() == 0
    assert (await stage.now(run)).status == "COMPLETED"
    assert (await stage.now(behind)).status == "READY"
    assert "takes no more runs; 1 running" in worker.said


async def test_a_signal_hands_back_what_has_attempts_left_and_loses_the_rest(workers: Workers, stage: Stage) -> None:
    worker = await workers.start("hang", "stuck", grace=0.2)
    kept = await stage.added("hang", max_attempts=2)
    held = await stage.added("stuck", max_attempts=2)
    lost = await stage.added("hang")
    await until(lambda: len(workers.of("start")) == 3)
    worker.process.send_signal(signal.SIGTERM)
    assert await worker.exit_code() == 0
    for run in (kept, held):
        returned = await stage.now(run)
        assert (returned.status, returned.attempt) == ("READY", 1)
        assert (await stage.log(run.session_id))[-1].data == {"attempt": 1, "reason": "handed_back"}
    ended = await stage.now(lost)
    assert ended.error is not None
    assert (ended.status, ended.error.code) == ("FAILED", "worker_lost")


async def test_a_second_signal_ends_a_worker_at_once(workers: Workers, stage: Stage) -> None:
    worker = await workers.start("hang", grace=60)
    run = await stage.added("hang")
    await until(lambda: workers.of("start"))
    worker.process.send_signal(signal.SIGTERM)
    await until(lambda: "takes no more runs" in worker.said)
    worker.process.send_signal(signal.SIGTERM)
    assert await worker.exit_code(within=5) == 130
    assert (await stage.now(run)).status == "RUNNING"  # until its lease is over


async def test_an_idle_worker_takes_a_run_within_moments(workers: Workers, stage: Stage) -> None:
    """A loose bound for machines under load; the benchmark run.pickup measures."""
    await workers.start("quick")
    delays: list[float] = []
    for turn in range(25):
        sid = await stage.session()
        run = await stage.added("quick", sid)
        added = time.monotonic()
        await until(lambda: len(workers.of("start")) == turn + 1)  # noqa: B023  # awaited here
        delays.append(workers.of("start")[-1].at - added)
        await stage.ended(run)
    assert statistics.median(delays) < 0.25
