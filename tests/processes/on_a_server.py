"""Several processes on one database server, and a server that is killed under them. Each such store's tests derive from
``OnAServer``."""

from __future__ import annotations

import asyncio
import collections
import itertools
import random
import signal
from contextlib import AbstractContextManager
from typing import Protocol

import pytest

import satchel
from satchel import SessionManager
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
from tests.processes.rivals import rival_processes
from tests.stores.on_a_server import option


class Server(Protocol):
    def url(self) -> str: ...
    def kill(self) -> None: ...
    def start_again(self) -> None: ...


class OnAServer:
    def new_database(self) -> str:
        raise NotImplementedError

    def durable_server(self) -> AbstractContextManager[Server]:
        """One of its own, that loses nothing when it is killed."""
        raise NotImplementedError

    async def deadlocks(self, url: str) -> int:
        """That the server met."""
        raise NotImplementedError

    @pytest.mark.parametrize("shared", [40, pytest.param(200, marks=pytest.mark.full)])
    async def test_four_processes_over_shared_sessions_meet_no_deadlock_and_lose_nothing(self, shared: int) -> None:
        """Each batch holds many sessions, drawn in any order."""
        url = self.new_database()
        ledger = Ledger()
        async with satchel.open(url) as store:
            manager = SessionManager(store, ADA)
            created = await asyncio.gather(*(manager.create_session() for _ in range(shared)))
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
        assert await self.deadlocks(url) == 0

    async def test_two_processes_never_both_win_on_one_version(self) -> None:
        url = self.new_database()
        async with satchel.open(url) as store:
            manager = SessionManager(store, ADA)
            session_id = (await manager.create_session()).session_id
            left, right = await rival_processes(url, session_id)
            assert left, "left never won: they did not meet"
            assert right, "right never won: they did not meet"
            assert not left & right
            said = await contents(manager, session_id)
            assert [version for version, name in enumerate(said, 1) if name == "left"] == sorted(left)

    async def test_a_hot_session_of_two_processes_keeps_every_write_once_and_nobody_starves(self) -> None:
        url = self.new_database()
        async with satchel.open(url) as store:
            manager = SessionManager(store, ADA)
            hot = (await manager.create_session()).session_id
            writers = [start(url, str(number), 25, [hot]) for number in range(2)]
            readers = [asyncio.create_task(asyncio.to_thread(writer.communicate)) for writer in writers]
            await until_each_has_written(manager, hot, 500)
            for writer in writers:
                writer.send_signal(signal.SIGKILL)
            ledgers = []
            for reader in readers:
                ledgers.append(Ledger())
                ledgers[-1].read((await reader)[0])
            stored: collections.Counter[str] = collections.Counter()
            for ledger in ledgers:
                stored = await check(manager, [hot], ledger)
                assert set(ledger.acknowledged) <= set(stored)
            assert set(stored.values()) == {1}
            # While both write, neither waits for long.
            shares = written_together(await contents(manager, hot))
            assert min(shares.values()) > sum(shares.values()) / 100, shares

    @pytest.mark.parametrize("kills", [1, pytest.param(8, marks=[pytest.mark.full, pytest.mark.timeout(600)])])
    async def test_nothing_acknowledged_is_lost_when_the_server_is_killed_and_what_was_unknown_lands_once(
        self,
        kills: int,
    ) -> None:
        random.seed(7)
        with self.durable_server() as killed:
            async with satchel.open(option(killed.url(), "connect_timeout=10")) as store:
                manager = SessionManager(store, ADA)
                session_ids = [(await manager.create_session()).session_id for _ in range(8)]
                acknowledged: dict[str, tuple[str, int]] = {}

                is_over = False

                async def append(key: str) -> None:
                    """Until it is acknowledged: whoever does not know asks again with the same key."""
                    session_id = random.choice(session_ids)
                    for _ in range(100):
                        try:
                            message = await manager.append_message(
                                session_id, {"role": "user", "content": key}, idempotency_key=key
                            )
                        except (satchel.StoreUnavailable, satchel.StoreBusy, satchel.OutcomeUnknown):
                            await asyncio.sleep(0.1)
                        else:
                            acknowledged[key] = (session_id, message.seq)
                            return
                    raise AssertionError("the service did not recover by itself")

                async def writer(number: int) -> None:
                    for turn in itertools.count():
                        if is_over:
                            return
                        await append(f"{number}-{turn}")

                async def more(count: int) -> None:
                    target = len(acknowledged) + count
                    while len(acknowledged) < target:  # noqa: ASYNC110  # a test may look now and then
                        await asyncio.sleep(0.02)

                writers = [asyncio.create_task(writer(number)) for number in range(24)]
                for _ in range(kills):
                    await asyncio.wait_for(more(100), 30)
                    await asyncio.to_thread(killed.kill)
                    await asyncio.to_thread(killed.start_again)
                await asyncio.wait_for(more(100), 30)
                is_over = True
                await asyncio.gather(*writers)
                stored: collections.Counter[str] = collections.Counter()
                for session_id in session_ids:
                    said = await contents(manager, session_id)
                    stored.update(said)
                    for key, (where, seq) in acknowledged.items():
                        if where == session_id:
                            assert said[seq - 1] == key
        assert set(stored) == set(acknowledged)
        assert set(stored.values()) == {1}
