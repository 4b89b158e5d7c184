"""What the PostgreSQL store promises beside the contract: migrations, connections, faults of the server and of the way to it."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator
from functools import partial
from typing import Any, cast

import asyncpg
import pytest

import satchel
from satchel import Principal, SessionManager
from satchel.domain.ids import SessionRef
from satchel.domain.state import Want
from satchel.errors import InvalidInput, SchemaMismatch, StoreBusy, StoreCorrupt, StoreMisused, StoreUnavailable
from satchel.servers import PostgresServer
from satchel.store import Change, Outcome
from satchel.stores.postgres import PostgresStore, schema
from satchel.stores.postgres import store as store_module
from satchel.stores.postgres.connection import connect, meaning_of
from satchel.testing.rows import REF, event, put, record
from tests.servers.postgres import emptied_database, new_database, server
from tests.servers.proxy import When, wire_to

ADA = Principal.agent("shop", tenant_id="acme", acting_for="ada")
OTHER = SessionRef("acme", "sess_2")
_END_ALL = (
    "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
    " WHERE application_name = 'satchel' AND datname = current_database()"
)


@pytest.fixture
def url(request: pytest.FixtureRequest) -> str:
    return emptied_database("store", once_for=request.node.nodeid)


@pytest.fixture
async def store(url: str) -> AsyncIterator[PostgresStore]:
    opened = PostgresStore(url)
    await opened.open()
    yield opened
    await opened.close()


async def ask(url: str, statement: str) -> Any:
    connection = await asyncpg.connect(url)
    try:
        return await connection.fetchval(statement)
    finally:
        await connection.close()


def said(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


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


async def test_a_database_that_is_missing_says_so(url: str) -> None:
    with pytest.raises(StoreUnavailable, match="3D000"):
        await satchel.open(url + "_missing").open()


# -- migrations


async def test_ten_servers_that_start_at_once_migrate_once() -> None:
    url = new_database()
    stores = [PostgresStore(url) for _ in range(10)]
    await asyncio.gather(*(store.open() for store in stores))
    assert await put(stores[3]) is Outcome.APPLIED
    for store in stores:
        await store.close()
    assert await ask(url, "SELECT array_agg(version) FROM schema_version") == list(range(1, schema.KNOWN + 1))


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


async def test_a_newer_schema_is_refused_and_left_alone() -> None:
    url = new_database()
    async with satchel.open(url):
        pass
    await ask(url, "INSERT INTO schema_version VALUES (99, 1)")
    with pytest.raises(SchemaMismatch) as caught:
        await PostgresStore(url).open()
    assert (caught.value.found, caught.value.known) == (99, schema.KNOWN)


async def test_a_database_of_another_encoding_is_refused() -> None:
    await ask(server().url(), "CREATE DATABASE ascii ENCODING 'SQL_ASCII' TEMPLATE template0")
    with pytest.raises(InvalidInput, match="SQL_ASCII"):
        await PostgresStore(server().url("ascii")).open()


# -- changes


@pytest.mark.parametrize(
    "bad",
    [
        (event(1), event(1)),
        (event(2**63),),
        (event(1, actor="\udc80"),),
        (event(1, actor="a\0b"),),
        (event(1, actor=cast(Any, None)),),
        (event(1, body=b"\xff"),),
    ],
    ids=["the same seq twice", "a number beyond 64 bits", "no Unicode", "NUL outside of JSON", "no actor", "no UTF-8"],
)
async def test_a_change_that_cannot_be_stored_harms_no_neighbour(store: PostgresStore, bad: tuple[Any, ...]) -> None:
    await put(store)
    changes = [
        Change(ref=REF, base=7, record=record(revision=8), events=bad),
        Change(ref=OTHER, base=None, record=record(OTHER, last_seq=1), events=(event(1),)),
    ]
    assert await store.commit(changes) == [Outcome.REJECTED, Outcome.APPLIED]
    assert (await store.snapshot(REF, messages=9)).record == record()
    assert (await store.events(REF, limit=9)).events == ()
    assert len((await store.events(OTHER, limit=9)).events) == 1


async def test_a_key_that_is_there_already_makes_a_change_stale(store: PostgresStore) -> None:
    """Also when its record was decided on the right revision: neither half of it is stored."""
    from satchel.domain.idempotency import Answer, IdempotencyRecord

    kept = (IdempotencyRecord(b"k" * 16, b"f" * 16, Answer(1, 1)),)
    assert await put(store, idempotency=kept) is Outcome.APPLIED
    assert await put(store, base=7, events=(event(1),), idempotency=kept) is Outcome.STALE
    assert (await store.events(REF, limit=9)).events == ()


async def test_what_cannot_be_asked_for_harms_no_neighbour(store: PostgresStore) -> None:
    await put(store)
    strange = [SessionRef("acme", "a\0b"), SessionRef("acme", "\udc80")]
    loaded = await store.load({REF: Want(), **{ref: Want() for ref in strange}, OTHER: Want(event_seqs=(2**63,))})
    assert loaded.sessions[REF].record == record()  # type: ignore[union-attr]
    assert [type(loaded.sessions[ref]) for ref in (*strange, OTHER)] == [InvalidInput] * 3
    with pytest.raises(InvalidInput):
        await store.snapshot(strange[0])


async def test_one_corrupt_row_hides_nothing_but_itself(store: PostgresStore, url: str) -> None:
    await put(store, events=(event(1), event(2), event(3)), record=record(last_seq=3), working_memory=b"{}")
    await ask(url, "UPDATE events SET body = '{' WHERE seq = 2")
    await ask(url, "UPDATE working_memory SET body = '{'")
    page = await store.events(REF, limit=9)
    assert [one.is_corrupt for one in page.events] == [False, True, False]
    assert (await store.snapshot(REF)).working_memory == b'{"notes":{"corrupt":true}}'
    wanted = await store.load({REF: Want(event_seqs=(2,))})
    assert isinstance(wanted.sessions[REF], StoreCorrupt)
    await ask(url, "UPDATE sessions SET record = '{'")
    with pytest.raises(StoreCorrupt):
        await store.snapshot(REF)
    assert (await store.sessions("acme", limit=9)).unreadable == (REF.session_id,)


async def test_two_hundred_creates_at_once_all_succeed(url: str) -> None:
    async with satchel.open(url) as one, satchel.open(url) as two:
        managers = [SessionManager(store, ADA) for store in (one, two)]
        made = await asyncio.gather(*(managers[n % 2].create_session() for n in range(200)))
        again = await asyncio.gather(*(managers[n % 2].create_session(external_id="same") for n in range(50)))
    assert len({session.session_id for session in made}) == 200
    assert len({session.session_id for session in again}) == 1


# -- time


async def test_the_clock_is_the_servers_whatever_the_client_believes(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: real() - 3_600 * 10**9)
    clock = (await store.load({})).clock
    assert abs(clock.now - real() // 1000) < 60_000_000
    assert clock.lease_clock == "server"
    assert await put(store, not_after=clock.now - 1) is Outcome.STALE
    assert await put(store, not_after=clock.now + 60_000_000) is Outcome.APPLIED


# -- connections


async def test_a_pool_that_is_used_up_is_busy_within_its_time_and_recovers(url: str) -> None:
    store = PostgresStore(url + "?pool_size=2&pool_wait=0.3")
    await store.open()
    await put(store)
    rival = await asyncpg.connect(url)
    lock = rival.transaction()
    await lock.start()
    await rival.fetch("SELECT 1 FROM sessions FOR UPDATE")
    writes = [asyncio.create_task(put(store, base=7, record=record(revision=8))) for _ in range(2)]
    await asyncio.sleep(0.1)
    began = time.monotonic()
    with pytest.raises(StoreBusy, match="pool_size"):
        await store.snapshot(REF)
    assert 0.2 < time.monotonic() - began < 3
    await lock.rollback()
    await rival.close()
    assert sorted(outcome.value for outcome in await asyncio.gather(*writes)) == ["applied", "stale"]
    assert (await store.snapshot(REF)).record == record(revision=8)
    await store.close()


async def test_more_calls_than_connections_wait_for_their_turn(url: str) -> None:
    async with satchel.open(url + "?pool_size=1") as store:
        manager = SessionManager(store, ADA)
        session_id = (await manager.create_session()).session_id
        calls = (manager.append_message(session_id, said(str(n))) for n in range(20))
        await asyncio.gather(*calls, *(manager.get_session(session_id) for _ in range(20)))
        assert (await manager.get_session(session_id)).message_count == 20


async def test_connections_that_the_server_ended_are_replaced(store: PostgresStore, url: str) -> None:
    await put(store)
    for _ in range(3):
        await ask(
            url,
            _END_ALL,
        )
        assert (await store.snapshot(REF)).record == record()


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_connection_cut_in_the_middle_of_a_commit_writes_once(url: str, when: When) -> None:
    async with wire_to("127.0.0.1", server().port) as wire:
        through = url.replace(f":{server().port}/", f":{wire.port}/")
        async with satchel.open(through) as store:
            manager = SessionManager(store, ADA)
            session_id = (await manager.create_session()).session_id
            await manager.append_message(session_id, said("first"))
            for number in range(3):
                text = f"cut here {number}"
                wire.cut_at(text.encode(), when)
                message = await manager.append_message(session_id, said(text))
                assert (message.seq, message.replayed) == (2 + number, False)
            assert wire.cuts == 3
            page = await manager.messages(session_id)
            assert [message.content for message in page] == ["first", *(f"cut here {n}" for n in range(3))]


async def test_a_server_that_stays_away_leaves_the_outcome_unknown_and_the_key_makes_it_safe(url: str) -> None:
    async with wire_to("127.0.0.1", server().port) as wire:
        through = url.replace(f":{server().port}/", f":{wire.port}/") + "?connect_timeout=0.5"
        async with satchel.open(through) as store:
            manager = SessionManager(store, ADA)
            session_id = (await manager.create_session()).session_id
            wire.cut_at(b"cut here", "after")
            write = asyncio.create_task(manager.append_message(session_id, said("cut here"), idempotency_key="k"))
            await asyncio.sleep(0.05)
            wire.is_down = True
            with pytest.raises(satchel.OutcomeUnknown):
                await write
            with pytest.raises(StoreUnavailable):
                await manager.get_session(session_id)
            wire.is_down = False
            again = await manager.append_message(session_id, said("cut here"), idempotency_key="k")
            assert (again.seq, again.replayed) == (1, True)


async def test_a_cancelled_call_leaves_its_connection_to_others(url: str) -> None:
    store = PostgresStore(url + "?pool_size=2")
    await store.open()
    await put(store)
    for n in range(40):
        calls = [
            asyncio.create_task(store.snapshot(REF)),
            asyncio.create_task(put(store, SessionRef("acme", f"s{n}"))),
            asyncio.create_task(store.wait(REF, 0, 5)),
        ]
        for _ in range(n % 5):
            await asyncio.sleep(0)
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
    assert (await store.snapshot(REF)).record == record()
    await store.close()
    assert await ask(url, "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'satchel'") == 0


async def test_a_store_belongs_to_its_event_loop_and_process(store: PostgresStore) -> None:
    with pytest.raises(StoreMisused, match="event loop"):
        await asyncio.to_thread(asyncio.run, store.load({}))
    pid = os.fork()
    if pid == 0:
        try:
            store._live()  # noqa: SLF001  # the child has no running loop to call a door on
        except StoreMisused:
            os._exit(0)
        os._exit(1)
    assert os.waitstatus_to_exitcode((await asyncio.to_thread(os.waitpid, pid, 0))[1]) == 0


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


async def test_a_writer_far_from_the_server_gets_its_turn_beside_one_that_is_near(url: str) -> None:
    """To try again and again favours the near one: in the time of a far one's load and commit it commits several times."""
    async with wire_to("127.0.0.1", server().port) as wire:
        through = url.replace(f":{server().port}/", f":{wire.port}/")
        async with satchel.open(url) as near, satchel.open(through) as far:
            session_id = (await SessionManager(near, ADA).create_session()).session_id
            is_over = False

            async def write(manager: SessionManager) -> None:
                while not is_over:
                    await manager.append_message(session_id, said("near"))

            await SessionManager(far, ADA).append_message(session_id, said("far"))
            wire.delay = 0.02
            rivals = [asyncio.create_task(write(SessionManager(near, ADA))) for _ in range(4)]
            try:
                for _ in range(5):
                    await asyncio.wait_for(SessionManager(far, ADA).append_message(session_id, said("far")), 5)
            finally:
                is_over = True
                await asyncio.gather(*rivals)
            session = await SessionManager(near, ADA).get_session(session_id)
            assert session.version == session.message_count > 10


# -- hints


async def test_a_wait_ends_with_an_own_commit_and_with_another_stores(store: PostgresStore, url: str) -> None:
    other = PostgresStore(url)
    await other.open()
    await put(store)
    await put(store, OTHER)
    for seq, writer in enumerate((store, other)):
        waiting = asyncio.create_task(store.wait(REF, seq, 30))
        await asyncio.sleep(0.2)
        await put(
            writer,
            OTHER,
            base=7 + seq,
            record=record(OTHER, revision=8 + seq, last_seq=seq + 1),
            events=(event(seq + 1),),
        )
        await asyncio.sleep(0.1)
        assert not waiting.done()
        changed = record(revision=8 + seq, last_seq=seq + 1)
        await put(writer, base=7 + seq, record=changed, events=(event(seq + 1),))
        await asyncio.wait_for(waiting, 1)
    await other.close()


async def test_a_listener_that_is_lost_costs_time_but_no_hint(store: PostgresStore, url: str) -> None:
    other = PostgresStore(url)
    await other.open()
    await put(store)
    first = asyncio.create_task(store.wait(REF, 0, 30))
    await asyncio.sleep(0.2)
    await ask(
        url,
        _END_ALL,
    )
    await put(other, base=7, record=record(revision=8), events=(event(1),))
    await asyncio.wait_for(first, 5)
    await other.close()


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
