"""A server that forgets what it acknowledged to nobody, as after a failover: what its followers hear."""

from __future__ import annotations

import asyncio
import time

import pytest

import satchel
from satchel import Event, Principal, ResyncRequired, SessionManager
from satchel.servers import RedisServer

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
            await sessions.append_messages(sid, [{"role": "user", "content": str(n)} for n in range(3)])
            seen: list[Event] = []

            async def follow() -> None:
                async for event in sessions.follow(sid, after=1):
                    seen.append(event)  # noqa: PERF401  # it never ends by itself

            following = asyncio.create_task(follow())
            replica.ask("REPLICAOF", "127.0.0.1", str(first.port))
            await asyncio.to_thread(until, replica, b"master_link_status:up")
            replica.ask("REPLICAOF", "NO", "ONE")
            await sessions.append_message(sid, {"role": "user", "content": "seen, and gone"})
            while len(seen) < 3:  # noqa: ASYNC110  # another task fills it
                await asyncio.sleep(0.01)
            first.ask("REPLICAOF", "127.0.0.1", str(replica.port))
            await asyncio.to_thread(until, first, b"master_link_status:up")
            first.ask("REPLICAOF", "NO", "ONE")
            for number in range(comes_back):
                await sessions.append_message(sid, {"role": "user", "content": f"in its place {number}"})
            with pytest.raises(ResyncRequired) as told:
                await asyncio.wait_for(following, PATIENCE)
            assert told.value.after == 4
            assert 3 <= told.value.last_seq <= 3 + comes_back
            assert [event.seq for event in seen] == [2, 3, 4]
