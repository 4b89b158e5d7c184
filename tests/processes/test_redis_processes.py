"""Several processes on one Redis server, and servers that are killed or cut off under them."""

from __future__ import annotations

import asyncio
import collections
import itertools
import signal
import time
from typing import Any

import pytest
from redis import Redis
from redis.exceptions import RedisError

import satchel
from satchel import SessionManager
from satchel.domain.ids import SessionRef
from satchel.servers import RedisCluster, RedisServer
from satchel.stores.redis.names import Keys
from tests.processes.ledger import (
    ADA,
    Ledger,
    check,
    contents,
    start,
    until_each_has_written,
    until_written,
    written_together,
)
from tests.processes.load import Load
from tests.processes.rivals import rival_processes
from tests.servers.partition import PartedCluster
from tests.servers.redis import emptied_database, server

pytestmark = pytest.mark.slow

KEYS = Keys("satchel")
SHARED = 200  # sessions


@pytest.fixture
def url(request: pytest.FixtureRequest) -> str:
    return emptied_database("processes", once_for=request.node.nodeid)


@pytest.mark.full
async def test_four_processes_over_shared_sessions_lose_nothing(url: str) -> None:
    """Each batch holds many sessions, drawn in any order."""
    ledger = Ledger()
    async with satchel.open(url) as store:
        manager = SessionManager(store, ADA)
        created = await asyncio.gather(*(manager.create_session() for _ in range(SHARED)))
        session_ids = [session.session_id for session in created]
        writers = [start(url, str(number), 32, session_ids) for number in range(4)]
        readers = [asyncio.create_task(asyncio.to_thread(writer.communicate)) for writer in writers]
        await until_written(manager, session_ids, 1_500)
        assert [writer.poll() for writer in writers] == [None] * 4, "an error reached a caller"
        for writer in writers:
            writer.send_signal(signal.SIGKILL)
        for reader in readers:
            ledger.read((await reader)[0])
        stored = await check(manager, session_ids, ledger)
    assert set(ledger.acknowledged) <= set(stored)
    assert set(stored.values()) == {1}


@pytest.mark.full
async def test_two_processes_never_both_win_on_one_version(url: str) -> None:
    async with satchel.open(url) as store:
        manager = SessionManager(store, ADA)
        session_id = (await manager.create_session()).session_id
        left, right = await rival_processes(url, session_id)
        assert left, "left never won: they did not meet"
        assert right, "right never won: they did not meet"
        assert not left & right
        said = await contents(manager, session_id)
        assert [version for version, name in enumerate(said, 1) if name == "left"] == sorted(left)


async def test_a_hot_session_of_two_processes_keeps_every_write_once_and_nobody_starves(url: str) -> None:
    async with satchel.open(url) as store:
        manager = SessionManager(store, ADA)
        hot = (await manager.create_session()).session_id
        writers = [start(url, str(number), 25, [hot]) for number in range(2)]
        readers = [asyncio.create_task(asyncio.to_thread(writer.communicate)) for writer in writers]
        await until_each_has_written(manager, hot, 500)
        for writer in writers:
            writer.send_signal(signal.SIGKILL)
        stored: collections.Counter[str] = collections.Counter()
        for reader in readers:
            ledger = Ledger()
            ledger.read((await reader)[0])
            stored = await check(manager, [hot], ledger)
            assert set(ledger.acknowledged) <= set(stored)
        assert set(stored.values()) == {1}
        # While both write, neither waits for long.
        shares = written_together(await contents(manager, hot))
        assert min(shares.values()) > sum(shares.values()) / 100, shares


@pytest.mark.parametrize("kills", [1, pytest.param(8, marks=[pytest.mark.full, pytest.mark.timeout(600)])])
async def test_nothing_acknowledged_is_lost_when_the_server_is_killed_and_what_was_unknown_lands_once(
    kills: int,
) -> None:
    with RedisServer() as killed:
        async with satchel.open(killed.url() + "?connect_timeout=10") as store:
            manager = SessionManager(store, ADA)
            load = Load(manager, [(await manager.create_session()).session_id for _ in range(8)])
            for _ in range(kills):
                await load.more(100)
                await asyncio.to_thread(killed.kill)
                await asyncio.to_thread(killed.start_again)
            await load.more(100)
            await load.stop()
            await load.check()


@pytest.mark.full
@pytest.mark.timeout(300)
async def test_nothing_acknowledged_is_lost_when_masters_of_a_cluster_are_killed() -> None:
    with RedisCluster(node_timeout=1.0) as cluster:
        async with satchel.open(cluster.url() + "?connect_timeout=20") as store:
            manager = SessionManager(store, ADA)
            load = Load(manager, [(await manager.create_session()).session_id for _ in range(24)])
            for number in range(3):
                await load.more(300)
                victim = cluster.masters()[number % len(cluster.masters())]
                await asyncio.to_thread(victim.kill)
                await load.more(300)
                await asyncio.to_thread(
                    cluster.wait_until, lambda: len(cluster.masters()) == 3, "no replica takes the dead master's place"
                )
                await load.more(300)  # also what lies in the dead one's slots
                await asyncio.to_thread(victim.start_again)
                await asyncio.to_thread(cluster.wait_until, cluster.is_whole, "the killed one does not come back")
            await load.stop()
            await load.check()


@pytest.mark.full
@pytest.mark.timeout(300)
async def test_nothing_acknowledged_is_lost_when_a_master_is_cut_off_from_its_peers() -> None:
    """Clients reach it still. It takes plain writes until it notices, and these are lost: the cut is a real one."""
    with PartedCluster(node_timeout=3.0) as cluster:
        async with satchel.open(cluster.url() + "?connect_timeout=30&replica_wait=0.5") as store:
            manager = SessionManager(store, ADA)
            session_ids = [(await manager.create_session()).session_id for _ in range(24)]
            load = Load(manager, session_ids)
            await load.more(500)
            alone = cluster.masters()[0]
            bucket = next(bucket for bucket in range(256) if KEYS.slots[bucket] < 5_000)  # the first master's
            naive = asyncio.create_task(asyncio.to_thread(plain_writes, alone, bucket))
            await asyncio.sleep(0.5)
            others = [one for one in cluster.running() if one is not alone]
            began = time.monotonic()
            cluster.cut_off(alone)
            await asyncio.to_thread(
                cluster.wait_until,
                lambda: len([one for one in cluster.masters() if one in others]) == 3,
                "no replica takes the place of the master that is cut off",
            )
            told = await naive
            await load.more(500)
            healed = time.monotonic()
            cluster.heal()
            await asyncio.to_thread(cluster.wait_until, lambda: alone not in cluster.masters(), "it does not give way")
            await load.more(300)
            await load.stop()
            during = {where for where, _, at in load.acknowledged.values() if began < at < healed}
            slots = [KEYS.slots[KEYS.names(SessionRef("acme", where)).bucket] for where in during]
            assert any(slot < 5_000 for slot in slots), "none was acknowledged where the cut was: it proves nothing"
            assert any(slot > 6_000 for slot in slots), "the others' sessions were not served"
            await load.check()

        def successors() -> list[RedisServer]:
            return [one for one in others if one in cluster.masters() and owns(one, KEYS.slots[bucket])]

        await asyncio.to_thread(cluster.wait_until, lambda: bool(successors()), "nobody has its slots")
        (new,) = successors()
        with Redis(host=new.host, port=new.port) as client:
            kept = {int(key.rpartition(b":")[2]) for key in client.scan_iter("naive:*", count=10_000)}
    assert set(told) - kept, "no plain write was lost: the cut was none"


@pytest.mark.full
@pytest.mark.timeout(300)
async def test_nothing_is_lost_while_slots_move_from_one_server_to_another() -> None:
    """MOVED, ASK and TRYAGAIN, while sessions in these slots are written to."""
    with RedisCluster() as cluster:
        async with satchel.open(cluster.url()) as store:
            manager = SessionManager(store, ADA)
            session_ids = [(await manager.create_session()).session_id for _ in range(12)]
            load = Load(manager, session_ids)
            await load.more(300)
            for session_id in session_ids[:6]:
                slot = KEYS.slots[KEYS.names(SessionRef("acme", session_id)).bucket]
                await asyncio.to_thread(move_slot, cluster, slot)
                await load.more(50)
            await load.stop()
            await load.check()


def move_slot(cluster: RedisCluster, slot: int) -> None:
    """Key by key, as redis-cli does it."""
    masters = cluster.masters()
    source = next(one for one in masters if owns(one, slot))
    target = next(one for one in masters if one is not source)
    ids = {one.port: one.ask("CLUSTER", "MYID").split(b"\r\n")[1].decode() for one in (source, target)}
    say(target, "SETSLOT", str(slot), "IMPORTING", ids[source.port])
    say(source, "SETSLOT", str(slot), "MIGRATING", ids[target.port])
    with Redis(host=source.host, port=source.port) as client:
        sender: Any = client  # its types say both what it gives and what it would give decoded
        while keys := sender.cluster("GETKEYSINSLOT", slot, 3):
            sender.migrate(target.host, target.port, keys, 0, 5_000)
            time.sleep(0.02)
    for one in (target, source, *masters):
        say(one, "SETSLOT", str(slot), "NODE", ids[target.port])


def say(server: RedisServer, *words: str) -> None:
    answer = server.ask("CLUSTER", *words)
    assert answer == b"+OK\r\n", answer


def plain_writes(alone: RedisServer, bucket: int) -> list[int]:
    """What the driver alone was told yes to, until the server refuses."""
    told: list[int] = []
    with Redis(host=alone.host, port=alone.port) as client:
        for number in itertools.count():
            try:
                client.set(f"naive:{{b{bucket}}}:{number}", "x")
            except RedisError:
                return told
            told.append(number)
            time.sleep(0.002)
    raise AssertionError("it counts without end")


def owns(one: RedisServer, slot: int) -> bool:
    return one.ask("CLUSTER", "COUNTKEYSINSLOT", str(slot)) != b":0\r\n"


def test_the_servers_of_these_tests_are_private() -> None:
    assert server().url().startswith("redis://127.0.0.1:")
