"""Another PostgreSQL takes the lead: Patroni with a synchronous standby. A switchover as planned, kill -9 of the leader, a
leader that freezes and comes back, and kill -9 of one whose last writes had reached no standby. Two processes and a service write on
meanwhile, and nobody starts them anew.

A commit that waits for a standby is not acknowledged. With an asynchronous standby it is, and the third fault loses it: that
variant must be found out."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import satchel
from satchel import RunManager, SessionManager
from satchel.servers.patroni import PatroniCluster, PatroniNode
from tests.proof.kills import AWAITED, WriterProcess, more, over_http, settle_runs
from tests.proof.ledger import Ledger
from tests.proof.program import Program, Report, Task
from tests.proof.served import Served
from tests.proof.writer import ADA

WRITERS = 2
STALLED = 1.5  # seconds of a leader whose standbys hear nothing any more, until it dies
# Seconds without a single acknowledgement. A killed leader stays one until its time (`ttl`, 20 s) is over; of a frozen one nobody
# hears that it is gone, until a statement's patience (30 s) is over too.
LONGEST = {"switchover": 20.0, "kill": 45.0, "freeze": 60.0, "stalled kill": 45.0}


class TimedLedger(Ledger):
    """``times``: of each acknowledgement, and whether it came over HTTP."""

    def __init__(self) -> None:
        super().__init__()
        self.times: list[tuple[float, bool]] = []
        self.when: dict[str, float] = {}

    def feed(self, line: bytes) -> None:
        before = len(self.done)
        super().feed(line)
        if len(self.done) > before:
            key = next(reversed(self.done))
            self.when[key] = time.monotonic()
            self.times.append((self.when[key], key.startswith("h-")))

    def longest_gap(self, since: float) -> float:
        moments = [since, *(moment for moment, _ in self.times if moment > since), time.monotonic()]
        return max(later - earlier for earlier, later in itertools.pairwise(moments))

    def over_http(self, since: float) -> int:
        return sum(is_http for moment, is_http in self.times if moment > since)


class Faults:
    """What is done to the cluster, and how long nobody was told yes."""

    def __init__(self, task: Task, cluster: PatroniCluster, ledger: TimedLedger) -> None:
        self._task = task
        self._cluster = cluster
        self._ledger = ledger
        self.seconds: dict[str, float] = {}
        self.began: dict[str, float] = {}

    def tell_of_lost(self) -> None:
        """When they were acknowledged."""
        for name, began in self.began.items():
            later = [moment for key, moment in self._ledger.when.items() if key not in self._ledger.stored]
            if seconds := sorted(round(moment - began, 2) for moment in later if moment > began):
                self._ledger.faults.append(f"{len(seconds)} lost, {seconds[0]} to {seconds[-1]} s after the {name}")

    async def switch_over(self) -> None:
        await self._through("switchover", self._cluster.switch_over)
        await asyncio.to_thread(self._cluster.wait_until, self._cluster.is_whole, "no standby follows the new leader")

    async def kill(self, *, stalled: float = 0.0) -> None:
        leader = await asyncio.to_thread(self._cluster.leader)
        assert leader is not None

        def one() -> None:
            if stalled:
                assert leader.pause_senders(), "nobody follows: this shows nothing"
                time.sleep(stalled)
            leader.kill()
            self._cluster.wait_for_another(leader)

        await self._through("stalled kill" if stalled else "kill", one)
        await self._come_back(leader)

    async def freeze(self) -> None:
        leader = await asyncio.to_thread(self._cluster.leader)
        assert leader is not None

        def one() -> None:
            leader.freeze()
            self._cluster.wait_for_another(leader)

        try:
            await self._through("freeze", one)
        finally:
            leader.thaw()
        await asyncio.to_thread(self._cluster.wait_until, self._cluster.is_whole, "the frozen one does not give way")
        await more(self._ledger, 40)

    async def _come_back(self, node: PatroniNode) -> None:
        node.start()
        await asyncio.to_thread(self._cluster.wait_until, self._cluster.is_whole, "the killed one does not come back")
        await more(self._ledger, 40)

    async def _through(self, name: str, fault: Callable[[], object]) -> None:
        await more(self._ledger, 100)
        began = self.began[name] = time.monotonic()
        await asyncio.to_thread(fault)
        await more(self._ledger, 100)
        if not self._task.weak:
            async with asyncio.timeout(AWAITED):
                while not self._ledger.over_http(time.monotonic() - 1):  # noqa: ASYNC110  # it is another process
                    await asyncio.sleep(0.1)
        gap = self._ledger.longest_gap(began)
        self.seconds[name] = round(gap, 1)
        if gap > LONGEST[name]:
            self._ledger.faults.append(f"{name}: for {gap:.0f} s nothing was acknowledged")
        self._task.say(f"{name}: {gap:.1f} s, {len(self._ledger.done)} acknowledged")


async def failover(task: Task) -> Report:
    began = time.monotonic()
    ledger = TimedLedger()
    with contextlib.ExitStack() as stack:
        cluster = PatroniCluster(synchronous=task.weak != "asynchronous")
        await asyncio.to_thread(cluster.start)
        stack.callback(cluster.stop)
        task.say("the cluster is there")
        served = Served(cluster.url(), task.folder)
        stack.callback(served.stop)
        faults = Faults(task, cluster, ledger)
        async with satchel.open(cluster.url()) as store:
            sessions, runs = SessionManager(store, ADA), RunManager(store, ADA)
            session_ids = [(await sessions.create_session()).session_id for _ in range(4)]
            run_sessions = [(await sessions.create_session()).session_id for _ in range(WRITERS)]
            every = session_ids + run_sessions
            writers: list[WriterProcess] = []
            guests: list[asyncio.Task[None]] = []
            try:
                if not task.weak:
                    await asyncio.to_thread(served.start)
                    key = await asyncio.to_thread(served.key)
                    guests = [asyncio.create_task(over_http(served, ledger, session_ids, key))]
                for number, run_session in enumerate(run_sessions):
                    writer = await WriterProcess.start(
                        cluster.url(),
                        ledger,
                        name=f"w{number}",
                        planted="" if task.weak == "asynchronous" else task.weak,
                        run_session=run_session,
                        session_ids=session_ids,
                    )
                    writers.append(writer)
                for _ in range(task.bounds["rounds"]):
                    if not task.weak:
                        await faults.switch_over()
                        await faults.kill()
                        await faults.freeze()
                    await faults.kill(stalled=STALLED)
                for writer in writers:
                    if writer.process.returncode is not None:
                        ledger.faults.append(f"a writer ended by itself, with {writer.process.returncode}")
                ledger.faults += [f"the service's writers ended: {guest}" for guest in guests if guest.done()]
            finally:
                for guest in guests:
                    guest.cancel()
                await asyncio.gather(*guests, return_exceptions=True)
                await asyncio.gather(*(writer.kill() for writer in writers))
                served.stop()
            await ledger.prove(sessions, every)
            faults.tell_of_lost()
            unknown = await ledger.ask_again(sessions, runs, every)
            await settle_runs(store, runs, ledger, run_sessions)
        if ledger.faults and not task.weak:
            kept = Path(tempfile.mkdtemp(prefix="satchel-failover-"))
            cluster.keep_logs(kept)
            ledger.faults.append(f"what the nodes said is in {kept}")
    return Report(
        figures={
            "acknowledged": len(ledger.done),
            "over HTTP": ledger.over_http(0),
            "lost": sum("is lost" in fault for fault in ledger.faults),
            "unknown, then once": unknown,
            **{f"{name}, seconds without a yes": seconds for name, seconds in faults.seconds.items()},
        },
        faults=ledger.faults,
        seconds=time.monotonic() - began,
    )


FAILOVER = Program(
    name="failover",
    shows="nothing that was acknowledged is lost when another server takes the lead, and writes go on by themselves",
    run=failover,
    bounds={"rounds": 1},
    weak=("asynchronous", "answers_before_commit"),
    stores=("postgres",),
)
