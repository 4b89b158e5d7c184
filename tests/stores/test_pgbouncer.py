"""A pgbouncer in transaction mode between the store and its server."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import asyncpg
import pytest

import satchel
from satchel import SessionManager
from satchel.domain.ids import SessionRef
from tests.processes.ledger import Ledger, check, start, until_written
from tests.servers.pgbouncer import PgBouncer
from tests.servers.postgres import new_database, server
from tests.servers.shared import started
from tests.stores.on_a_server import ADA, said

pytestmark = [pytest.mark.full, pytest.mark.xdist_group("pgbouncer")]

OURS = "application_name,default_transaction_isolation,jit,lock_timeout,plan_cache_mode,statement_timeout"
IGNORED = {"refuses our settings": "", "forgets our settings": f"{OURS},idle_in_transaction_session_timeout"}


@pytest.fixture(params=list(IGNORED.values()), ids=list(IGNORED))
def pooler(request: pytest.FixtureRequest) -> Iterator[PgBouncer]:
    with PgBouncer(server().port, ignored=request.param) as made:
        started(made, "pgbouncer")
        yield made


async def test_it_is_noticed_and_nothing_outlives_its_transaction(pooler: PgBouncer) -> None:
    url = new_database()
    async with satchel.open(pooler.before(url)) as one, satchel.open(pooler.before(url)) as two:
        manager, rival = SessionManager(one, ADA), SessionManager(two, ADA)
        session_id = (await manager.create_session(metadata={"k": 1})).session_id
        waiting = asyncio.create_task(one.store.wait(SessionRef("acme", session_id), 0, 30))
        await asyncio.sleep(0.1)
        await rival.append_message(session_id, said("from the other"))
        await asyncio.wait_for(waiting, 2)
        await asyncio.gather(
            *(who.append_message(session_id, said(str(n))) for n in range(40) for who in (manager, rival))
        )
        await manager.update_working_memory(session_id, {"append": {"completed": "all"}})
        assert (await rival.get_session(session_id)).message_count == 81
        # Whoever is given the same server processes next finds them as they were.
        guest = await asyncpg.connect(pooler.before(url), statement_cache_size=0)
        try:
            for _ in range(8):
                assert await guest.fetchval("SELECT count(*) FROM pg_prepared_statements WHERE name <> ''") == 0
                for name, kept in (("lock_timeout", "0"), ("jit", "on"), ("plan_cache_mode", "auto")):
                    assert await guest.fetchval(f"SHOW {name}") == kept
        finally:
            await guest.close()


async def test_processes_that_share_four_connections_lose_nothing_when_it_is_started_anew(pooler: PgBouncer) -> None:
    url = new_database()
    async with satchel.open(pooler.before(url) + "?connect_timeout=20") as store:
        manager = SessionManager(store, ADA)
        session_ids = [(await manager.create_session()).session_id for _ in range(8)]
        ledger = Ledger()
        writers = [start(pooler.before(url), str(number), 16, session_ids) for number in range(2)]
        readers = [asyncio.create_task(asyncio.to_thread(writer.communicate)) for writer in writers]
        try:
            await until_written(manager, session_ids, 600)
            await asyncio.to_thread(pooler.start_again)
            await until_written(manager, session_ids, 1_200)
            assert [writer.poll() for writer in writers] == [None] * 2, "an error reached a caller"
        finally:
            for writer in writers:
                writer.kill()
        for reader in readers:
            ledger.read((await reader)[0])
        stored = await check(manager, session_ids, ledger)
    assert set(ledger.acknowledged) <= set(stored)
    assert set(stored.values()) == {1}
