"""What the PostgreSQL store promises beside the contract: migrations, connections, faults of the server and of the way to it."""

from __future__ import annotations

import asyncio
import socket
import time
from functools import partial
from typing import Any

import asyncpg
import pytest

import satchel
from satchel import SessionManager
from satchel.domain.ids import SessionRef
from satchel.domain.state import Want
from satchel.errors import InvalidInput, StoreUnavailable
from satchel.servers import PostgresServer
from satchel.store import Change, Outcome
from satchel.stores.postgres import PostgresStore, schema
from satchel.stores.postgres import store as store_module
from satchel.stores.postgres.connection import connect, meaning_of
from satchel.testing.rows import REF, event, put, record
from tests.servers.postgres import ask, emptied_database, new_database, server
from tests.stores.on_a_server import ADA, OTHER, OnAServer, said
from tests.worker.stage import until

_END_ALL = (
    "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
    " WHERE application_name = 'satchel' AND datname = current_database()"
)


@pytest.fixture
def url(request: pytest.FixtureRequest) -> str:
    return emptied_database("store", once_for=request.node.nodeid)


class TestPostgres(OnAServer):
    known = schema.KNOWN
    commit = b"COMMIT\0"

    def new_database(self) -> str:
        return new_database()

    def port(self) -> int:
        return server().port

    async def ask(self, url: str, statement: str) -> Any:
        return await ask(url, statement)

    async def end_connections(self, url: str) -> None:
        await ask(url, _END_ALL)

    async def connections(self, url: str) -> int:
        found: int = await ask(url, "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'satchel'")
        return found

    async def test_who_is_cancelled_while_a_store_that_rests_closes_hears_of_it(self, url: str) -> None:
        async def gone() -> bool:
            return not await self.connections(url)

        for turns in range(1, 8):
            # The driver's question for TLS leaves a future behind when it is cut off, and says so when that is collected.
            opened = satchel.open(f"{url}?sslmode=disable")
            await opened.open()
            await SessionManager(opened, ADA).create_session()
            waiting = asyncio.create_task(opened.store.wait(SessionRef("acme", "none"), 9, 30))
            await asyncio.sleep(0.005)
            closing = asyncio.create_task(opened.close())
            for _ in range(turns):
                await asyncio.sleep(0)
            in_time = closing.cancel()
            await asyncio.wait((closing, waiting), timeout=20)
            assert closing.cancelled() is in_time
            await until(gone)  # the server hears of it a moment later

    async def lock_a_session(self, url: str) -> Any:
        rival = await asyncpg.connect(url)
        lock = rival.transaction()
        await lock.start()
        await rival.fetch("SELECT 1 FROM sessions FOR UPDATE")
        return rival, lock

    async def unlock(self, rival: Any) -> None:
        connection, lock = rival
        await lock.rollback()
        await connection.close()

    @pytest.fixture
    def url(self, request: pytest.FixtureRequest) -> str:
        return emptied_database("store", once_for=request.node.nodeid)


async def test_nul_outside_of_json_is_refused_and_harms_no_neighbour(url: str) -> None:
    store = PostgresStore(url)
    await store.open()
    await put(store)
    bad = Change(ref=REF, base=7, record=record(revision=8), events=(event(1, actor="a\0b"),))
    good = Change(ref=OTHER, base=None, record=record(OTHER, last_seq=1), events=(event(1),))
    assert await store.commit([bad, good]) == [Outcome.REJECTED, Outcome.APPLIED]
    strange = SessionRef("acme", "a\0b")
    assert isinstance((await store.load({REF: Want(), strange: Want()})).sessions[strange], InvalidInput)
    await store.close()


# -- addresses


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://h/d?pool_size=0",
        "postgresql://h/d?pool_size=x",
        "postgresql://h/d?pool_wait=-1",
        "postgresql://h/d?connect_timeout=nan",
        "postgresql://h/d?target_session_attrs=standby",
    ],
)
def test_an_address_that_is_none_is_refused_by_name(url: str) -> None:
    with pytest.raises(InvalidInput, match=r"^url: "):
        satchel.open(url)


async def test_a_server_that_is_not_there_is_unavailable_within_its_time() -> None:
    began = time.monotonic()
    with pytest.raises(StoreUnavailable) as caught:
        await satchel.open("postgresql://ada:secret@127.0.0.1:1/d?connect_timeout=1").open()
    assert time.monotonic() - began < 5
    assert "secret" not in str(caught.value)


async def test_of_several_hosts_the_one_that_answers_is_used(url: str) -> None:
    host, _, rest = url.rpartition("@")[2].partition("/")
    async with satchel.open(f"postgresql://satchel@127.0.0.1:1,{host}/{rest}") as store:
        assert (await SessionManager(store, ADA).create_session()).version == 0


async def test_of_several_hosts_one_that_hangs_keeps_nobody_from_the_others(url: str) -> None:
    """A machine that died takes the packets and says nothing."""
    host, _, rest = url.rpartition("@")[2].partition("/")
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        began = time.monotonic()
        hung = f"127.0.0.1:{silent.getsockname()[1]}"
        async with satchel.open(f"postgresql://satchel@{hung},{host}/{rest}?connect_timeout=10") as store:
            assert (await SessionManager(store, ADA).create_session()).version == 0
        assert time.monotonic() - began < 8
        with pytest.raises(StoreUnavailable, match="does not answer"):
            await satchel.open(f"postgresql://satchel@{hung},127.0.0.1:1/{rest}?connect_timeout=0.5").open()


async def test_a_database_that_is_missing_says_so(url: str) -> None:
    with pytest.raises(StoreUnavailable, match="there is no database 'store_missing'"):
        await satchel.open(url + "_missing").open()


# -- migrations


async def test_a_step_that_fails_leaves_nothing_and_may_be_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    url = new_database()
    with monkeypatch.context() as broken:
        step = schema.MIGRATIONS[1] + "CREATE TABLE half (a int); SELECT 1 / 0;"
        broken.setattr(schema, "MIGRATIONS", {**schema.MIGRATIONS, 1: step})
        with pytest.raises(StoreUnavailable):
            await PostgresStore(url).open()
    assert await ask(url, "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'") == 0
    async with satchel.open(url):
        pass


async def test_a_database_of_another_encoding_is_refused() -> None:
    await ask(server().url(), "CREATE DATABASE ascii ENCODING 'SQL_ASCII' TEMPLATE template0")
    with pytest.raises(InvalidInput, match="SQL_ASCII"):
        await PostgresStore(server().url("ascii")).open()


def test_no_text_of_the_servers_reaches_a_caller() -> None:
    secret = "password=hunter2"
    for error in (
        asyncpg.UniqueViolationError(secret),
        asyncpg.PostgresSyntaxError(secret),
        asyncpg.DiskFullError(secret),
        asyncpg.DeadlockDetectedError(secret),
        asyncpg.InterfaceError(secret),
        asyncpg.DataError(secret),
        ConnectionRefusedError(secret),
        TimeoutError(secret),
    ):
        assert "hunter2" not in str(meaning_of(error))


# -- behind a pooler


@pytest.fixture
def pooled(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if a pooler stood between: each transaction by itself, nothing prepared, nobody listens."""
    monkeypatch.setattr(store_module, "first_connect", partial(connect, is_shared=True))


@pytest.mark.usefixtures("pooled")
async def test_behind_a_pooler_everything_works_and_nothing_outlives_its_transaction(url: str) -> None:
    async with satchel.open(url) as one, satchel.open(url) as two:
        manager, rival = SessionManager(one, ADA), SessionManager(two, ADA)
        session_id = (await manager.create_session(metadata={"k": 1})).session_id
        waiting = asyncio.create_task(one.store.wait(SessionRef("acme", session_id), 0, 30))
        await asyncio.sleep(0.1)
        await rival.append_message(session_id, said("from the other"))
        await asyncio.wait_for(waiting, 2)
        await asyncio.gather(
            *(who.append_message(session_id, said(str(n))) for n in range(20) for who in (manager, rival))
        )
        await manager.update_working_memory(session_id, {"append": {"completed": "all"}})
        assert (await rival.get_session(session_id)).message_count == 41
        rows = await one.store._fetch(  # type: ignore[attr-defined]  # noqa: SLF001  # a statement on its own connection
            "SELECT count(*) FROM pg_prepared_statements WHERE name <> ''"
        )
        assert rows[0][0] == 0
        await manager.delete_session(session_id)


# -- what an operator should know


async def test_check_refuses_a_server_that_may_lose_everything_and_warns_of_less() -> None:
    with PostgresServer(settings={"fsync": "off", "synchronous_commit": "off"}) as weak:
        async with satchel.open(weak.url()) as store:
            found = {one.what: one for one in await store.store.check() if not one.is_ok}
    assert {what: one.level for what, one in found.items()} == {
        "fsync=off": "error",
        "synchronous_commit=off": "warning",
    }
    assert all(one.mend.startswith("ALTER SYSTEM SET ") for one in found.values())
    with PostgresServer() as sound:
        async with satchel.open(sound.url()) as store:
            sound_findings = await store.store.check()
    assert {one.level for one in sound_findings} == {"ok"}
    assert {one.what.partition("=")[0] for one in sound_findings} >= {"fsync", "clock difference", "server_version_num"}
