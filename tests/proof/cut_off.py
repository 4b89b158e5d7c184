"""A master of a cluster that is cut off from its peers, while clients still reach it. It takes writes until it notices, and what
its replicas never had is gone when one of them takes its place. Others follow the sessions meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import re
import time
from collections.abc import AsyncIterator

import msgspec

import satchel
from satchel import Event, ResyncRequired, RunManager, SessionManager
from satchel.domain.ids import SessionRef
from satchel.errors import StoreError
from satchel.servers import RedisServer
from satchel.stores.redis.names import Keys
from tests.proof.kills import AWAITED, more
from tests.proof.ledger import Ledger
from tests.proof.program import Program, Report, Task
from tests.proof.writer import ADA, Writer
from tests.servers.partition import PartedCluster

MASTERS = 3
NODE_TIMEOUT = 3.0  # seconds for which a master that is cut off takes writes
SESSIONS = 24
TASKS = 24
KEYS = Keys("satchel")


class Watcher:
    """Follows a session, and has seen a beginning of its log: whatever was taken back it was told to forget."""

    def __init__(self, sessions: SessionManager, session_id: str) -> None:
        self._sessions = sessions
        self.session_id = session_id
        self.seen: list[Event] = []
        self.resyncs = 0

    async def watch(self) -> None:
        while True:
            try:
                async for event in self._sessions.follow(self.session_id, after=len(self.seen)):
                    self.seen.append(event)
            except ResyncRequired:
                self.resyncs += 1
                self.seen.clear()
            except StoreError:  # a new follower knows nothing of what the former saw
                self.seen.clear()
                await asyncio.sleep(0.1)

    def fault(self, log: list[Event]) -> str:
        if self.seen == log:
            return ""
        place = next((at for at, (seen, there) in enumerate(zip(self.seen, log, strict=False)) if seen != there), None)
        if place is None:
            return f"a follower has seen {len(self.seen)} events of {len(log)}"
        return f"a follower was never told that what it saw as seq {place + 1} is gone"


async def cut_off(task: Task) -> Report:
    began = time.monotonic()
    cluster = PartedCluster(node_timeout=NODE_TIMEOUT)
    try:
        await asyncio.to_thread(cluster.start)
        return await _besieged(task, cluster, began)
    finally:
        await asyncio.to_thread(cluster.stop)


async def _besieged(task: Task, cluster: PartedCluster, began: float) -> Report:
    url = cluster.url() + "?connect_timeout=30&replica_wait=0.5"
    ledger = Ledger()
    told: list[tuple[float, str]] = []  # when what was acknowledged in which session

    def tell(entry: object) -> None:
        line = msgspec.json.encode(entry)
        ledger.feed(line)
        what, _, session_id, *_ = msgspec.json.decode(line)
        if what == "done":
            told.append((time.monotonic(), session_id))

    async with satchel.open(url) as other:
        sessions, runs = SessionManager(other, ADA), RunManager(other, ADA)
        session_ids = [(await sessions.create_session()).session_id for _ in range(SESSIONS)]
        watchers = [Watcher(sessions, session_id) for session_id in session_ids]
        watching = [asyncio.create_task(watcher.watch()) for watcher in watchers]
        async with satchel.open(url + ("&replicas=0" if task.weak else "")) as store:
            writer = Writer(SessionManager(store, ADA), RunManager(store, ADA), tell)
            writing = [asyncio.create_task(writer.go_on(f"c-{number}", session_ids)) for number in range(TASKS)]
            try:
                during = await cut_again_and_again(task, cluster, ledger, session_ids, told)
            finally:
                for one in writing:
                    one.cancel()
                await asyncio.gather(*writing, return_exceptions=True)
        # What was handed in is finished by now.
        await ledger.prove(sessions, session_ids)
        unknown = 0 if task.weak else await ledger.ask_again(sessions, runs, session_ids)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(AWAITED / 4):
                while any([fault async for fault in unseen(sessions, watchers)]):  # noqa: ASYNC110  # they read on
                    await asyncio.sleep(0.5)
        ledger.faults += [fault async for fault in unseen(sessions, watchers)]
        for one in watching:
            one.cancel()
        await asyncio.gather(*watching, return_exceptions=True)
    resyncs = sum(watcher.resyncs for watcher in watchers)
    if not resyncs:
        ledger.faults.append("no follower saw what was taken back: that it is told so was not shown")
    return Report(
        figures={
            "cuts": task.bounds["cuts"],
            "acknowledged": len(ledger.done),
            "where the cut was, during it": during,
            "lost": sum("is lost" in fault for fault in ledger.faults),
            "unknown, then once": unknown,
            "followers told to read again": resyncs,
        },
        faults=ledger.faults,
        seconds=time.monotonic() - began,
    )


async def cut_again_and_again(
    task: Task, cluster: PartedCluster, ledger: Ledger, session_ids: list[str], told: list[tuple[float, str]]
) -> int:
    """How many were acknowledged where the cut was, while it was."""
    during = 0
    for cut in range(task.bounds["cuts"]):
        await more(ledger, 300)
        alone = cluster.masters()[cut % MASTERS]
        there = [session_id for session_id in session_ids if slot_of(session_id) in slots_of(alone)]
        cut_at = time.monotonic()
        cluster.cut_off(alone)
        moved = functools.partial(has_moved, cluster, alone)
        await asyncio.to_thread(cluster.wait_until, moved, "no replica takes its place")
        await more(ledger, 300)
        healed_at = time.monotonic()
        cluster.heal()
        await asyncio.to_thread(cluster.wait_until, cluster.is_whole, "the one that was cut off does not come back")
        await more(ledger, 300)
        found = sum(cut_at < at < healed_at and session_id in there for at, session_id in told)
        if not found:
            ledger.faults.append("none was acknowledged where the cut was: it proves nothing")
        during += found
        task.say(f"{cut + 1} cuts, {len(ledger.done)} acknowledged, {found} of them where the cut was")
    return during


async def unseen(sessions: SessionManager, watchers: list[Watcher]) -> AsyncIterator[str]:
    """What followers have not seen as it is, though nobody writes any more."""
    for watcher in watchers:
        log: list[Event] = []
        while (page := await sessions.events(watcher.session_id, after=len(log), limit=1000)).items:
            log += page.items
        if fault := watcher.fault(log):
            yield fault


def has_moved(cluster: PartedCluster, alone: RedisServer) -> bool:
    others = [one for one in cluster.running() if one is not alone]
    return len([one for one in cluster.masters() if one in others]) == MASTERS


def slot_of(session_id: str) -> int:
    return KEYS.slots[KEYS.names(SessionRef("acme", session_id)).bucket]


def slots_of(master: RedisServer) -> range:
    found = re.search(rb"myself,master\S* .* (\d+)-(\d+)", master.ask("CLUSTER", "NODES"))
    assert found is not None, "it has slots in one piece"
    return range(int(found[1]), int(found[2]) + 1)


CUT_OFF = Program(
    name="cut_off",
    shows="a master that is cut off from its peers loses nothing acknowledged, and who saw more than that is told",
    run=cut_off,
    bounds={"cuts": 3},
    weak=("waits_for_no_replica",),
    weak_bounds={"cuts": 1},
    stores=("redis-cluster",),
)
