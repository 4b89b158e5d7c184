"""Three workers, a SIGKILL every two seconds, and a wall clock that lies: nothing is left undone, and nothing is done twice."""

from __future__ import annotations

import asyncio
import collections
import logging
import random
import signal
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path

import pytest

import satchel
from satchel import Run
from satchel.domain.ids import SessionRef
from tests.worker.processes import WorkerProcess, Workers, lying
from tests.worker.stage import TENANT, Stage, until

pytestmark = pytest.mark.slow

WORDS = "".join(f"{word} " for word in range(30))  # what the agent `tell` says

_log = logging.getLogger(__name__)


@pytest.fixture
def workers(tmp_path: Path) -> Iterator[Workers]:
    started = Workers(tmp_path)
    yield started
    started.kill_all()


@pytest.fixture
async def stage(workers: Workers) -> AsyncIterator[Stage]:
    async with satchel.open(workers.url) as store:
        yield Stage(store)


@pytest.mark.parametrize(
    ("sessions", "count", "concurrency", "kills"),
    [
        pytest.param(60, 150, 4, 5, id="10 seconds"),
        pytest.param(200, 1000, 7, 29, id="60 seconds", marks=[pytest.mark.full, pytest.mark.timeout(600)]),
    ],
)
async def test_workers_that_are_killed_again_and_again_leave_nothing_undone(
    workers: Workers, stage: Stage, sessions: int, count: int, concurrency: int, kills: int
) -> None:
    """One of them with a lying clock, where libfaketime is installed. Half of the runs have three attempts."""
    luck = random.Random(3)
    agents = ("work", "family", "sure", "tell")
    session_ids = [await stage.session() for _ in range(sessions)]
    runs = [
        await stage.added(
            agents[number // 2 % 4], session_ids[number % sessions], input="go", max_attempts=1 + 2 * (number % 2)
        )
        for number in range(count)
    ]

    async def start(wall_clock: str | None, *, is_awaited: bool) -> tuple[WorkerProcess, str | None]:
        worker = await workers.start(
            *set(agents), wall_clock=wall_clock, is_awaited=is_awaited, concurrency=concurrency, lease=1
        )
        return worker, wall_clock

    answering = asyncio.create_task(answer_all(stage, [run for run in runs if run.agent == "sure"]))
    alive = list(await asyncio.gather(*(start(lie, is_awaited=True) for lie in (None, None, "+1h"))))
    hits = 0
    for turn in range(kills):
        await asyncio.sleep(2)
        victim, lie = alive.pop(luck.randrange(3))
        victim.process.send_signal(signal.SIGKILL)
        assert await victim.exit_code() == -signal.SIGKILL
        hits += was_executing(workers, victim)
        next_lie = None if lie is None else ("+1h", "-1h")[turn % 2]
        alive.append(await start(next_lie, is_awaited=False))
    assert hits >= 3, "hardly a kill hit a worker that held a run: this shows nothing"
    for run in runs:
        await stage.ended(run, within=120)
    await answering
    for worker, _ in alive:
        await until(lambda: worker.is_up)  # noqa: B023  # awaited here; before it is, a signal ends it as any process
        worker.process.send_signal(signal.SIGTERM)
    assert [await worker.exit_code() for worker, _ in alive] == [0, 0, 0]

    statuses = await check_runs(workers, stage, runs)
    given_up = [line for worker in workers.started for line in worker.said.splitlines() if " was lost: " in line]
    for sid in session_ids:
        await check_session(workers, stage, sid, given_up)
    _log.info("%d kills, %d of workers that held a run; a clock lied: %s", kills, hits, bool(lying("+1h")))
    _log.info("runs: %s; agents began %d times", dict(statuses), len(workers.of("start")))
    _log.info("runs that a living worker gave up: %d", len(given_up))


async def answer_all(stage: Stage, runs: Sequence[Run]) -> None:
    """Each of them once it asks, until all are over."""
    waiting = list(runs)
    while waiting:
        for run in list(waiting):
            found = await stage.now(run)
            if found.status == "WAITING":
                await stage.runs.answer_run(run.session_id, run.run_id, "yes")
            elif found.is_terminal:
                waiting.remove(run)
        await asyncio.sleep(0.1)


async def check_runs(workers: Workers, stage: Stage, runs: Sequence[Run]) -> collections.Counter[str]:
    """Each ended, and none was executed more often than its attempts allow. How often each status came."""
    ended = {run.run_id: await stage.now(run) for run in runs}
    executed = collections.Counter((effect.run_id, effect.attempt) for effect in workers.of("start"))
    assert set(executed.values()) == {1}, "a claim was executed twice"
    attempts = collections.Counter(run_id for run_id, _ in executed)
    finished = {effect.run_id for effect in workers.of("end")}
    for run_id, run in ended.items():
        asked = await question_kinds(stage, run)
        assert asked == [] or (run.agent, asked[0], len(asked) <= 2) == ("sure", "question_asked", True), asked
        granted = run.max_attempts + asked.count("question_answered")  # an answer has a start of its own
        assert attempts[run_id] <= run.attempt <= granted
        if run.status == "COMPLETED":
            assert run_id in finished
            assert len(asked) == (2 if run.agent == "sure" else 0)
        else:
            assert run.error is not None
            assert (run.status, run.error.code, run.attempt) == ("FAILED", "worker_lost", granted)
    statuses: collections.Counter[str] = collections.Counter(run.status for run in ended.values())
    assert statuses["COMPLETED"] > len(runs) / 2
    assert statuses["FAILED"] >= 1
    assert any(run.attempt > 1 and run.status == "COMPLETED" for run in ended.values())
    return statuses


async def question_kinds(stage: Stage, run: Run) -> list[str]:
    log = await stage.log(run.session_id)
    return [event.kind for event in log if event.run_id == run.run_id and event.kind.startswith("question")]


def was_executing(workers: Workers, worker: WorkerProcess) -> bool:
    """Whether an agent had begun in this worker, and had neither come to its end nor left to wait for an answer."""
    mine = [effect for effect in workers.effects if effect.pid == worker.pid]
    ended = {(effect.run_id, effect.attempt) for effect in mine if effect.what in ("end", "left")}
    return any(effect.what == "start" and (effect.run_id, effect.attempt) not in ended for effect in mine)


async def check_session(workers: Workers, stage: Stage, session_id: str, given_up: Sequence[str]) -> None:
    """No turn is held, the log has no gap, each run and each call ended once, no tool ran without its call, and what streamed
    is in the log: whole, or interrupted."""
    record = (await stage.store.store.snapshot(SessionRef(TENANT, session_id))).record
    assert record is not None
    assert (record.turn, record.queue, record.children) == (None, (), ())
    assert (record.open_calls, record.streams) == ((), ())
    log = await stage.log(session_id)
    assert [event.seq for event in log] == list(range(1, record.last_seq + 1))
    versions = [event.version for event in log]
    assert versions == sorted(versions)
    assert versions[-1] == record.version
    added = collections.Counter(event.run_id for event in log if event.kind == "run_added")
    ends = collections.Counter(event.run_id for event in log if event.kind == "run_ended")
    assert set(added.values()) == {1}
    assert ends == added, "a run ended twice or never"
    calls = (await stage.sessions.tool_history(session_id, limit=1000)).items
    outcomes = collections.Counter(event.refers_to for event in log if event.kind == "tool_call_finished")
    assert outcomes == {call.seq: 1 for call in calls}
    parents = {event.run_id: event.data.get("parent_run_id") for event in log if event.kind == "run_added"}
    for call in calls:
        holder = parents[call.run_id] or call.run_id
        # A worker that could not renew in time, because the machine was busy, tells its agent that the run is lost.
        told = any(f"run {holder} of agent" in line for line in given_up)
        assert call.status in ("succeeded", "unknown") or (call.status == "cancelled" and told), call
    started = collections.Counter((call.run_id, f"tool{call.arguments['button']}") for call in calls)
    ran = collections.Counter(
        (effect.run_id, effect.what)
        for effect in workers.effects
        if effect.what.startswith("tool") and effect.run_id in added
    )
    assert all(started[call] >= count for call, count in ran.items())
    for event in log:
        if event.streamed is not None:
            said = event.data["content"]
            assert said == WORDS if event.status == "complete" else WORDS.startswith(said)
