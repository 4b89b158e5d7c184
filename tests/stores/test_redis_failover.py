"""A server that forgets what it acknowledged to nobody, as after a failover: what its followers hear."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import time

import pytest

import satchel
from satchel import Event, Message, Principal, ResyncRequired, SessionManager
from satchel.domain.ids import SessionRef
from satchel.errors import OutcomeUnknown, StoreBusy, StoreUnavailable
from satchel.servers import RedisCluster, RedisServer
from satchel.stores.redis.names import Keys

KEYS = Keys("satchel")
ADA = Principal.agent("writer", tenant_id="acme", acting_for="ada")
PATIENCE = 20.0


def until(server: RedisServer, answer: bytes) -> None:
    deadline = time.monotonic() + PATIENCE
    while answer not in server.ask("INFO", "replication"):
        assert time.monotonic() < deadline, answer
        time.sleep(0.02)


@pytest.mark.parametrize("comes_back", [0, 2])
async def test_a_follower_that_saw_what_a_failover_took_back_is_told_so(comes_back: int) -> None:
    """``comes_back``: as many other events are written afterwards, also in the place of the one that is gone."""
    options = {"repl-diskless-sync-delay": "0"}
    with RedisServer(settings=options) as first, RedisServer(settings=options) as replica:
        async with satchel.open(first.url()) as store:
            sessions = SessionManager(store, ADA)
            sid = (await sessions.create_session()).session_id
            await sessions.append_messages(sid, [said(str(n)) for n in range(3)])
            seen: list[Event] = []

            async def follow() -> None:
                async for event in sessions.follow(sid, after=1):
                    seen.append(event)  # noqa: PERF401  # it never ends by itself

            following = asyncio.create_task(follow())
            replica.ask("REPLICAOF", "127.0.0.1", str(first.port))
            await asyncio.to_thread(until, replica, b"master_link_status:up")
            replica.ask("REPLICAOF", "NO", "ONE")
            await sessions.append_message(sid, said("seen, and gone"))
            while len(seen) < 3:  # noqa: ASYNC110  # another task fills it
                await asyncio.sleep(0.01)
            first.ask("REPLICAOF", "127.0.0.1", str(replica.port))
            await asyncio.to_thread(until, first, b"master_link_status:up")
            first.ask("REPLICAOF", "NO", "ONE")
            for number in range(comes_back):
                await sessions.append_message(sid, said(f"in its place {number}"))
            with pytest.raises(ResyncRequired) as told:
                await asyncio.wait_for(following, PATIENCE)
            assert told.value.after == 4
            assert 3 <= told.value.last_seq <= 3 + comes_back
            assert [event.seq for event in seen] == [2, 3, 4]


@pytest.mark.full
@pytest.mark.timeout(120)
async def test_a_replica_that_has_just_come_back_is_waited_for() -> None:
    """Nothing is written while it comes back: whoever writes next knows of no replica yet."""
    with RedisCluster(node_timeout=1.0) as cluster:
        async with satchel.open(cluster.url() + "?replica_wait=0.3&connect_timeout=2") as store:
            sessions = SessionManager(store, ADA)
            sid = (await sessions.create_session()).session_id
            slot = KEYS.slots[KEYS.names(SessionRef("acme", sid)).bucket]
            master = next(one for one in cluster.masters() if slot in slots_of(one))
            (replica,) = cluster.replicas_of(master)
            replica.kill()
            told = await lands(sessions, sid, "first")  # once the cluster holds it for dead
            replica.start_again()
            await asyncio.to_thread(cluster.wait_until, cluster.is_whole, "it does not come back")
            os.kill(replica.pid, signal.SIGSTOP)
            try:
                with pytest.raises((OutcomeUnknown, StoreUnavailable)):
                    await sessions.append_message(sid, said("second"), idempotency_key="second")
            finally:
                os.kill(replica.pid, signal.SIGCONT)
            later = await lands(sessions, sid, "second")
            assert (told.seq, later.seq) == (1, 2)


async def lands(sessions: SessionManager, session_id: str, text: str) -> Message:
    async with asyncio.timeout(PATIENCE):
        while True:
            try:
                return await sessions.append_message(session_id, said(text), idempotency_key=text)
            except (OutcomeUnknown, StoreUnavailable, StoreBusy):
                await asyncio.sleep(0.1)


def said(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def slots_of(master: RedisServer) -> range:
    found = re.search(rb"myself,master\S* .* (\d+)-(\d+)", master.ask("CLUSTER", "NODES"))
    assert found is not None
    return range(int(found[1]), int(found[2]) + 1)
