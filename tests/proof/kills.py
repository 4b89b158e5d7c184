"""Kill -9 of writers, of `satchel serve` and of the database's server, one after another, while all others go on writing."""

from __future__ import annotations

import asyncio
import contextlib
import random
import signal
import sys
import time
from collections.abc import Callable, Coroutine

import msgspec

import satchel
from satchel import RunManager, SessionManager, Sweeper
from tests.proof.ledger import LEASE, Ledger
from tests.proof.program import EVERYWHERE, Program, Report, Task
from tests.proof.served import ROOT, Served
from tests.proof.stores import Database
from tests.proof.writer import ADA, Writer

TASKS = 8  # of each writing process
AWAITED = 60.0  # seconds for what must come by itself


class WriterProcess:
    """``writer.py`` in a process, its lines fed to a ledger as they come."""

    def __init__(self, process: asyncio.subprocess.Process, ledger: Ledger) -> None:
        self.process = process
        self._reading = asyncio.create_task(self._read(ledger))

    @classmethod
    async def start(
        cls, database_url: str, ledger: Ledger, *, name: str, planted: str, run_session: str, session_ids: list[str],
        tasks: int = TASKS,
    ) -> WriterProcess:  # fmt: skip
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-W", "ignore", "-m", "tests.proof.writer", database_url, name, str(tasks), planted,
            run_session, *session_ids, stdout=asyncio.subprocess.PIPE, cwd=ROOT,
        )  # fmt: skip
        return cls(process, ledger)

    async def _read(self, ledger: Ledger) -> None:
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            if line.endswith(b"\n"):  # else it was cut off
                ledger.feed(line)

    async def kill(self) -> None:
        """And hear all that it said before."""
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGKILL)
        await self.process.wait()
        await self._reading


class Siege:
    """All that writes, and what is killed of it."""

    def __init__(self, task: Task, database: Database, served: Served, session_ids: list[str]) -> None:
        self._task = task
        self._database = database
        self._served = served
        self._session_ids = session_ids
        self._writers: list[WriterProcess] = []
        self._names = 0
        self._run_sessions: list[str] = []
        self.ledger = Ledger()
        self.kills: dict[str, int] = {}

    async def start(self, run_sessions: list[str]) -> None:
        self._run_sessions = run_sessions
        self._writers = list(await asyncio.gather(*(self._new(number) for number in range(len(run_sessions)))))

    async def _new(self, number: int) -> WriterProcess:
        self._names += 1
        return await WriterProcess.start(
            self._database.url,
            self.ledger,
            name=f"w{self._names}",
            planted=self._task.weak,
            run_session=self._run_sessions[number],
            session_ids=self._session_ids,
        )

    async def kill_one(self, luck: random.Random) -> None:
        victims: dict[str, Callable[[], Coroutine[None, None, None]]] = {"writer": lambda: self._kill_writer(luck)}
        if not self._task.weak:
            victims["service"] = self._kill_service
        if self._database.server is not None:
            victims["database"] = self._kill_database
        weights = {"writer": 4, "service": 1, "database": 3}
        (name,) = luck.choices(list(victims), weights=[weights[name] for name in victims])
        await victims[name]()
        self.kills[name] = self.kills.get(name, 0) + 1

    async def _kill_writer(self, luck: random.Random) -> None:
        number = luck.randrange(len(self._writers))
        await self._writers[number].kill()
        self._writers[number] = await self._new(number)

    async def _kill_service(self) -> None:
        await asyncio.to_thread(self._served.kill)
        await asyncio.to_thread(self._served.start)

    async def _kill_database(self) -> None:
        server = self._database.server
        assert server is not None
        await asyncio.to_thread(server.kill)
        await asyncio.to_thread(server.start_again)

    def check_writers(self) -> None:
        """Whoever was not killed is alive: no error of a fault reached it."""
        for writer in self._writers:
            if writer.process.returncode is not None:
                self.ledger.faults.append(f"a writer ended by itself, with {writer.process.returncode}")

    async def end(self) -> None:
        await asyncio.gather(*(writer.kill() for writer in self._writers))


async def kills(task: Task) -> Report:
    began = time.monotonic()
    luck = random.Random(task.bounds["seed"])
    with task.store.make(task.folder, True) as database:
        served = Served(database.url, task.folder)
        async with satchel.open(database.url) as store:
            sessions, runs = SessionManager(store, ADA), RunManager(store, ADA)
            session_ids = [(await sessions.create_session()).session_id for _ in range(4)]
            run_sessions = [(await sessions.create_session()).session_id for _ in range(task.bounds["writers"])]
            every = session_ids + run_sessions
            siege = Siege(task, database, served, session_ids)
            ledger = siege.ledger
            guests: list[asyncio.Task[None]] = []
            try:
                if not task.weak:
                    await asyncio.to_thread(served.start)
                    guests = [asyncio.create_task(over_http(served, ledger, session_ids, served.key()))]
                await siege.start(run_sessions)
                for kill in range(task.bounds["kills"]):
                    await more(ledger, 40)
                    await siege.kill_one(luck)
                    if kill % 5 == 4:
                        await asyncio.wait_for(ledger.prove(sessions, every), AWAITED)
                        task.say(f"{kill + 1} kills, {len(ledger.done)} acknowledged, faults: {len(ledger.faults)}")
                await more(ledger, 40)
                siege.check_writers()
            finally:
                for guest in guests:
                    guest.cancel()
                await asyncio.gather(*guests, return_exceptions=True)
                await siege.end()
                served.stop()
            await ledger.prove(sessions, every)
            unknown = await ledger.ask_again(sessions, runs, every)
            await settle_runs(store, runs, ledger, run_sessions)
            if len(ledger.done) < 40 * task.bounds["kills"]:
                ledger.faults.append("the writers hardly wrote: this shows nothing")
    return Report(
        figures={
            "kills": sum(siege.kills.values()),
            **{f"of {name}s": count for name, count in siege.kills.items()},
            "acknowledged": len(ledger.done),
            "lost": sum("is lost" in fault for fault in ledger.faults),
            "unknown, then once": unknown,
            "runs": sum(entry.verb == "run" for entry in ledger.done.values()),
        },
        faults=ledger.faults,
        seconds=time.monotonic() - began,
    )


async def over_http(served: Served, ledger: Ledger, session_ids: list[str], key: str) -> None:
    """Writers of this process, through the service: its client asks again by itself."""
    async with satchel.connect(served.url, key, patience=AWAITED) as service:
        writer = Writer(service.sessions, service.runs, lambda entry: ledger.feed(msgspec.json.encode(entry)))
        await asyncio.gather(*(writer.go_on(f"h-{task}", session_ids) for task in range(4)))


async def more(ledger: Ledger, count: int) -> None:
    """As many writes more are acknowledged, which is also: the service came back by itself."""
    target = len(ledger.done) + count
    async with asyncio.timeout(AWAITED):
        while len(ledger.done) < target:  # noqa: ASYNC110  # they are other processes
            await asyncio.sleep(0.02)


async def settle_runs(store: satchel.OpenStore, runs: RunManager, ledger: Ledger, session_ids: list[str]) -> None:
    """Of each run that was acknowledged there is one record, and it ended: as it was said, or with its killed writer."""
    await asyncio.sleep(LEASE + 1)
    await Sweeper(store).sweep_once()
    ended = {entry.of for entry in ledger.done.values() if entry.verb == "end"}
    added = {str(entry.place) for entry in ledger.done.values() if entry.verb == "run"}
    statuses: dict[str, str] = {}
    for session_id in session_ids:
        cursor: str | None = None
        while True:
            page = await runs.list_runs(session_id, limit=1000, cursor=cursor)
            for run in page:
                statuses[run.run_id] = run.status
                lost = run.status == "FAILED" and run.error is not None and run.error.code == "worker_lost"
                if run.status != "COMPLETED" and not lost:
                    ledger.faults.append(f"{run.run_id} is {run.status} after all leases are over")
            cursor = page.next
            if cursor is None:
                break
    ledger.faults += [f"run {run_id} was acknowledged, and is lost" for run_id in added - statuses.keys()]
    ledger.faults += [
        f"{run_id} was told COMPLETED, and is {statuses.get(run_id)}"
        for run_id in ended
        if statuses.get(run_id) != "COMPLETED"
    ]


KILLS = Program(
    name="kills",
    shows="nothing that was acknowledged is lost to kill -9, and what was unknown lands once",
    run=kills,
    stores=(*EVERYWHERE, "redis-cluster"),
    bounds={"kills": 100, "writers": 3, "seed": 5},
    weak=("answers_before_commit",),
    weak_bounds={"kills": 6},
    server_bounds={"kills": 20},
)
