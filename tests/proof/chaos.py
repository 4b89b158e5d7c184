"""Workers that are killed, stopped for longer than a lease, and lied to by their clocks: what they should do is done all the same,
and nothing twice."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import random
import signal
import time
from collections.abc import Sequence

import satchel
from satchel import Event, Run
from satchel.domain.ids import SessionRef
from satchel.errors import SatchelError
from tests.proof.program import EVERYWHERE, Program, Report, Task
from tests.worker.agents import WORDS
from tests.worker.processes import WorkerProcess, Workers, lying
from tests.worker.stage import TENANT, Stage, until

AGENTS = ("work", "family", "sure", "tell")
LEASE = 1.0  # seconds
STOPPED = (
    1.3,
    3.0,
)  # seconds that a worker stands still: its runs are lost, others have begun them anew, and may have ended
AWAITED = 300.0  # seconds for what is left when nothing breaks any more
CLOCKS = ("+1h", "-1h")


class Storm:
    """Three workers, one of them with a wall clock that lies, and what is done to them."""

    def __init__(self, task: Task, workers: Workers, luck: random.Random) -> None:
        self._task = task
        self._workers = workers
        self._luck = luck
        self._alive: list[tuple[WorkerProcess, str | None]] = []
        self.kills = self.stops = self.hits = 0

    async def start(self) -> None:
        self._alive = list(await asyncio.gather(*(self._new(lie, is_awaited=True) for lie in (None, None, CLOCKS[0]))))

    async def _new(self, lie: str | None, *, is_awaited: bool) -> tuple[WorkerProcess, str | None]:
        worker = await self._workers.start(
            *AGENTS,
            wall_clock=lie,
            is_awaited=is_awaited,
            environment={"PLANTED": self._task.weak},
            concurrency=self._task.bounds["concurrency"],
            lease=LEASE,
        )
        return worker, lie

    async def break_one(self) -> None:
        """Killed, and another in its place; or stopped, until its runs are lost."""
        number = self._luck.randrange(len(self._alive))
        victim, lie = self._alive[number]
        if self._task.weak or self._luck.random() < 0.4:  # what is killed needs no fence
            victim.process.send_signal(signal.SIGSTOP)
            self.hits += was_executing(self._workers, victim)
            await asyncio.sleep(self._luck.uniform(*STOPPED))
            victim.process.send_signal(signal.SIGCONT)
            self.stops += 1
            return
        victim.process.send_signal(signal.SIGKILL)
        await victim.exit_code()
        self.hits += was_executing(self._workers, victim)
        self.kills += 1
        next_lie = None if lie is None else CLOCKS[self.kills % 2]
        self._alive[number] = await self._new(next_lie, is_awaited=False)

    async def end(self) -> list[str]:
        """In peace. What was not in order."""
        for worker, _ in self._alive:
            await until(lambda: worker.is_up)  # noqa: B023  # awaited here; before it is, a signal ends it as any process
            worker.process.send_signal(signal.SIGTERM)
        codes = [await worker.exit_code() for worker, _ in self._alive]
        return [f"a worker that was asked to stop ended with {code}" for code in codes if code != 0]


async def chaos(task: Task) -> Report:
    bounds = task.bounds
    luck = random.Random(bounds["seed"])
    faults: list[str] = []
    with task.store.make(task.folder, True) as database:
        workers = Workers(task.folder, database.url)
        try:
            async with satchel.open(database.url) as store:
                stage = Stage(store)
                session_ids = [await stage.session() for _ in range(max(1, bounds["runs"] // 5))]
                runs = [
                    await stage.added(
                        AGENTS[number // 2 % 4],
                        session_ids[number % len(session_ids)],
                        input="go",
                        max_attempts=1 + 2 * (number % 2),  # half of them have three
                    )
                    for number in range(bounds["runs"])
                ]
                storm = Storm(task, workers, luck)
                await storm.start()
                answering = asyncio.create_task(answer_all(stage, [run for run in runs if run.agent == "sure"]))
                cancelling = asyncio.create_task(cancel_some(stage, runs, luck))
                for turn in range(bounds["faults"]):
                    await asyncio.sleep(2)
                    await storm.break_one()
                    if turn % 5 == 4:
                        task.say(f"{turn + 1} of {bounds['faults']} workers killed or stopped")
                if storm.hits * 10 < bounds["faults"]:
                    faults.append("hardly a fault hit a worker that held a run: this shows nothing")
                faults += await all_ended(stage, runs)
                cancelled = await cancelling
                answering.cancel()  # all are over, or never will be
                faults += await storm.end()
                statuses, wrong = await check_runs(workers, stage, runs, cancelled)
                faults += wrong
                given_up = [line for one in workers.started for line in one.said.splitlines() if " was lost: " in line]
                for session_id in session_ids:
                    faults += await check_session(workers, stage, session_id, given_up)
        finally:
            workers.kill_all()
    return Report(
        figures={
            "runs": len(runs),
            "kills": storm.kills,
            "stops": storm.stops,
            "of workers that held a run": storm.hits,
            "clocks that lied": len(CLOCKS) if lying(CLOCKS[0]) else 0,
            **{status.lower(): statuses[status] for status in ("COMPLETED", "FAILED", "CANCELLED")},
            "begun": len(workers.of("start")),
            "given up by living workers": len(given_up),
        },
        faults=faults,
    )


def was_executing(workers: Workers, worker: WorkerProcess) -> bool:
    """Whether an agent had begun in this worker, and had neither come to its end nor left to wait for an answer."""
    mine = [effect for effect in workers.effects if effect.pid == worker.pid]
    ended = {(effect.run_id, effect.attempt) for effect in mine if effect.what in ("end", "left")}
    return any(effect.what == "start" and (effect.run_id, effect.attempt) not in ended for effect in mine)


async def answer_all(stage: Stage, runs: Sequence[Run]) -> None:
    """Each of them once it asks, until all are over."""
    waiting = list(runs)
    while waiting:
        for run in list(waiting):
            found = await stage.now(run)
            if found.status == "WAITING":
                with contextlib.suppress(SatchelError):  # it was cancelled meanwhile
                    await stage.runs.answer_run(run.session_id, run.run_id, "yes")
            elif found.is_terminal:
                waiting.remove(run)
        await asyncio.sleep(0.2)


async def cancel_some(stage: Stage, runs: Sequence[Run], luck: random.Random) -> set[str]:
    """One of twenty, whatever it is doing. Those that were told."""
    told: set[str] = set()
    for run in luck.sample(runs, len(runs) // 20):
        with contextlib.suppress(SatchelError):  # it is over
            await stage.runs.cancel_run(run.session_id, run.run_id)
            told.add(run.run_id)
        await asyncio.sleep(0.5)
    return told


async def all_ended(stage: Stage, runs: Sequence[Run]) -> list[str]:
    deadline = time.monotonic() + AWAITED
    left = list(runs)
    while left and time.monotonic() < deadline:
        left = [run for run in left if not (await stage.now(run)).is_terminal]
        await asyncio.sleep(0.2)
    return [f"run {run.run_id} is {(await stage.now(run)).status}, and nobody does anything about it" for run in left]


async def check_runs(
    workers: Workers, stage: Stage, runs: Sequence[Run], cancelled: set[str]
) -> tuple[collections.Counter[str], list[str]]:
    """Each ended, none was executed more often than its attempts allow, and it was its last attempt that brought it to its end.
    How often each status came."""
    executed = collections.Counter((effect.run_id, effect.attempt) for effect in workers.of("start"))
    faults = [
        f"attempt {attempt} of {run_id} was executed {n} times" for (run_id, attempt), n in executed.items() if n > 1
    ]
    began = collections.Counter(run_id for run_id, _ in executed)
    finished = {(effect.run_id, effect.attempt) for effect in workers.of("end")}
    statuses: collections.Counter[str] = collections.Counter()
    for run in [await stage.now(run) for run in runs]:
        statuses[run.status] += 1
        asked = await question_kinds(stage, run)
        granted = run.max_attempts + asked.count("question_answered")  # an answer has a start of its own
        is_asker = run.agent == "sure"
        if asked and not (is_asker and asked[0] == "question_asked" and len(asked) <= 2):
            faults.append(f"{run.run_id} asked {asked}")
        if not began[run.run_id] <= run.attempt <= granted:
            faults.append(f"{run.run_id} began {began[run.run_id]} times, by its record {run.attempt}, of {granted}")
        if run.status == "COMPLETED":
            if (run.run_id, run.attempt) not in finished:
                faults.append(f"{run.run_id} is COMPLETED, and attempt {run.attempt} of it did not come to its end")
            if is_asker and len(asked) != 2:
                faults.append(f"{run.run_id} is COMPLETED, and asked {asked}")
        elif run.status == "CANCELLED":
            if run.run_id not in cancelled:
                faults.append(f"{run.run_id} is CANCELLED, and nobody asked for that")
        elif run.error is None or (run.error.code, run.attempt) != ("worker_lost", granted):
            faults.append(f"{run.run_id} is {run.status} at attempt {run.attempt} of {granted}: {run.error}")
    if statuses["COMPLETED"] <= len(runs) / 2:
        faults.append(f"hardly a run came to its end: {dict(statuses)}")
    return statuses, faults


async def question_kinds(stage: Stage, run: Run) -> list[str]:
    log = await stage.log(run.session_id)
    return [event.kind for event in log if event.run_id == run.run_id and event.kind.startswith("question")]


async def check_session(workers: Workers, stage: Stage, session_id: str, given_up: Sequence[str]) -> list[str]:
    """No turn is held, the log has no gap, each run and each call ended once, no tool ran without its call, and what streamed is in
    the log: whole, or interrupted."""
    faults: list[str] = []
    record = (await stage.store.store.snapshot(SessionRef(TENANT, session_id))).record
    assert record is not None
    if record.turn or record.queue or record.children or record.open_calls or record.streams:
        faults.append(f"in {session_id} something is open, and no run is")
    log = await stage.log(session_id)
    versions = [event.version for event in log]
    if [event.seq for event in log] != list(range(1, record.last_seq + 1)) or versions != sorted(versions):
        faults.append(f"the log of {session_id} has a gap, or goes back")
    if not versions or versions[-1] != record.version:
        faults.append(f"the log of {session_id} does not end at version {record.version}")
    added = collections.Counter(event.run_id for event in log if event.kind == "run_added")
    ends = collections.Counter(event.run_id for event in log if event.kind == "run_ended")
    if ends != added or set(added.values()) - {1}:
        faults.append(f"in {session_id} a run ended twice, or never")
    faults += [f"in {session_id} {sentence}" for sentence in _wrong_words(log)]
    return faults + await _wrong_calls(workers, stage, session_id, log, given_up)


def _wrong_words(log: Sequence[Event]) -> list[str]:
    return [
        f"a stream of {event.run_id} holds what nobody said"
        for event in log
        if event.streamed is not None
        and not (
            event.data["content"] == WORDS if event.status == "complete" else WORDS.startswith(event.data["content"])
        )
    ]


async def _wrong_calls(
    workers: Workers, stage: Stage, session_id: str, log: Sequence[Event], given_up: Sequence[str]
) -> list[str]:
    calls = (await stage.sessions.tool_history(session_id, limit=1000)).items
    outcomes = collections.Counter(event.refers_to for event in log if event.kind == "tool_call_finished")
    faults = [] if outcomes == {call.seq: 1 for call in calls} else [f"in {session_id} a call has not one outcome"]
    added = {event.run_id: event.data.get("parent_run_id") for event in log if event.kind == "run_added"}
    cancelled = {event.run_id for event in log if event.kind == "run_cancel_requested"}
    cancelled |= {event.run_id for event in log if event.kind == "run_ended" and event.data["status"] == "CANCELLED"}
    for call in calls:
        holder = added[call.run_id] or call.run_id
        # A worker that could not renew in time, because it stood still or was busy, tells its agent that the run is lost.
        told = holder in cancelled or any(f"run {holder} of agent" in line for line in given_up)
        if call.status not in ("succeeded", "unknown") and not (call.status == "cancelled" and told):
            faults.append(f"call {call.seq} of {session_id} is {call.status}")
    begun = collections.Counter((call.run_id, f"tool{call.arguments['button']}") for call in calls)
    ran = collections.Counter(
        (effect.run_id, effect.what)
        for effect in workers.effects
        if effect.what.startswith("tool") and effect.run_id in added
    )
    faults += [
        f"{tool} of {run} ran {n} times, and is kept {begun[run, tool]} times"
        for (run, tool), n in ran.items()
        if begun[run, tool] < n
    ]
    return faults


CHAOS = Program(
    name="chaos",
    shows="every run ends, none is executed twice, and each call has one outcome, whatever becomes of the workers",
    run=chaos,
    stores=(*EVERYWHERE, "redis-cluster"),
    bounds={"runs": 1000, "faults": 25, "concurrency": 7, "seed": 3},
    weak=("no_fence",),
    weak_bounds={"runs": 400, "faults": 18},
)
