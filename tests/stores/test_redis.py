"""What the Redis store promises beside the contract: durability, connections, faults of the server and of the way to it."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import signal
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from redis.asyncio import Redis
from redis.crc import key_slot
from redis.exceptions import AuthenticationError, OutOfMemoryError, ReadOnlyError, ResponseError
from redis.exceptions import ConnectionError as ConnectionLost

import satchel
from satchel import Principal, SessionManager
from satchel.domain.idempotency import Answer, IdempotencyRecord
from satchel.domain.ids import SessionRef
from satchel.domain.record import Turn
from satchel.domain.state import Want
from satchel.errors import (
    InvalidInput,
    SchemaMismatch,
    StoreBusy,
    StoreCorrupt,
    StoreMisused,
    StoreNotDurable,
    StoreUnavailable,
)
from satchel.servers import RedisServer
from satchel.servers.program import free_port
from satchel.store import Change, Loaded, Outcome, Store
from satchel.stores.redis import RedisStore, reading, schema
from satchel.stores.redis.connection import meaning_of
from satchel.stores.redis.names import Keys, in_order, refs_in
from satchel.testing.clock import SettableClock
from satchel.testing.rows import REF, call, event, put, record
from tests.servers.proxy import When, wire_to
from tests.servers.redis import emptied_database, server
from tests.stores.on_a_server import cancelled_closes

ADA = Principal.agent("shop", tenant_id="acme", acting_for="ada")
OTHER = SessionRef("acme", "sess_2")
KEYS = Keys("satchel")


@pytest.fixture
def url(request: pytest.FixtureRequest) -> str:
    return emptied_database("store", once_for=request.node.nodeid)


@pytest.fixture
async def store(url: str) -> AsyncIterator[RedisStore]:
    opened = RedisStore(url)
    await opened.open()
    yield opened
    await opened.close()


@pytest.fixture
async def bare(url: str) -> AsyncIterator[Any]:
    """The driver, beside the store. Its types say both what it gives and what it would give decoded."""
    async with Redis.from_url(url) as client:
        yield client


def said(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


async def trouble(store: Store) -> dict[str, str]:
    """What an operator should mend."""
    return {one.what: one.level for one in await store.check() if not one.is_ok}


def through(url: str, port: int) -> str:
    return url.replace(f":{server().port}/", f":{port}/")


# -- addresses


@pytest.mark.parametrize(
    "url",
    [
        "redis://h/d",
        "redis://h/-1",
        "redis://h:x",
        "redis://h:99999",
        "redis://h?pool_size=0",
        "redis://h?pool_wait=-1",
        "redis://h?connect_timeout=nan",
        "redis://h?durability=none",
        "redis://h?prefix=a{b}",
        "redis://h?replicas=many",
        "redis://h?pool=3",
        "redis://h?ssl_ca_certs=ca.pem",
        "redis://h1,h2",
        "redis+cluster://h1,h2/3",
    ],
)
def test_an_address_that_is_none_is_refused_by_name(url: str) -> None:
    with pytest.raises(InvalidInput, match=r"^url: "):
        satchel.open(url)


async def test_a_server_that_is_not_there_is_unavailable_within_its_time() -> None:
    began = time.monotonic()
    with pytest.raises(StoreUnavailable) as caught:
        await satchel.open("redis://ada:secret@127.0.0.1:1?connect_timeout=0.5").open()
    assert time.monotonic() - began < 5
    assert "secret" not in str(caught.value)


async def test_an_account_that_is_not_accepted_is_told_so_at_once(url: str) -> None:
    began = time.monotonic()
    with pytest.raises(StoreUnavailable, match=r"the password .* was refused") as caught:
        await satchel.open(url.replace("redis://", "redis://ada:secret@")).open()
    assert time.monotonic() - began < 3
    assert "secret" not in str(caught.value)


# -- schema


async def test_ten_servers_that_start_at_once_agree(url: str, bare: Any) -> None:
    stores = [RedisStore(url) for _ in range(10)]
    await asyncio.gather(*(store.open() for store in stores))
    assert await put(stores[3]) is Outcome.APPLIED
    assert (await stores[4].snapshot(REF)).record == record()
    for store in stores:
        await store.close()
    version, since = (await bare.get(KEYS.schema)).split()
    assert int(version) == schema.KNOWN
    assert abs(int(since) - time.time_ns() // 1000) < 60_000_000


async def test_the_schema_is_told_without_a_change_and_may_be_claimed_by_hand(url: str, bare: Any) -> None:
    told = await RedisStore(url).schema()
    assert (told.found, told.known, len(told.pending)) == (0, schema.KNOWN, 1)
    assert await bare.keys() == []
    command = shlex.split(told.pending[0].sql)
    await bare.execute_command(*command)
    told = await RedisStore(url).schema()
    assert (told.found, told.pending) == (schema.KNOWN, ())
    assert told.steps[0].applied_at == pytest.approx(time.time_ns() // 1000, abs=60_000_000)
    async with satchel.open(url) as store:
        assert (await SessionManager(store, ADA).create_session()).version == 0


async def test_a_newer_schema_is_refused_and_left_alone(url: str, bare: Any) -> None:
    await bare.set(KEYS.schema, 99)
    with pytest.raises(SchemaMismatch) as caught:
        await RedisStore(url).open()
    assert (caught.value.found, caught.value.known) == (99, schema.KNOWN)
    assert await bare.keys() == [KEYS.schema]


# -- keys


async def test_nothing_expires_by_itself_and_every_key_of_a_session_is_in_its_buckets_slot(
    store: RedisStore, bare: Any
) -> None:
    ref = SessionRef("{acme}:", "s}{1")
    await put(
        store,
        ref,
        record=record(ref, last_seq=1, sweep_at=1, turn=Turn(run_id="run_1", status="READY", agent="a")),
        events=(event(1, kind="tool_call_started"),),
        calls=(call(1),),
    )
    found = await bare.keys()
    assert len(found) > 8
    assert {await bare.ttl(key) for key in found} == {-1}
    tag = b"{b%d}" % KEYS.names(ref).bucket
    own = [key for key in found if b"{i" not in key and key != KEYS.schema]
    assert all(key.startswith(b"satchel:" + tag) for key in own)
    assert {key_slot(key) for key in own} == {KEYS.slots[KEYS.names(ref).bucket]}


async def test_two_prefixes_on_one_server_are_two_stores(url: str) -> None:
    async with satchel.open(url) as one, satchel.open(url + "?prefix=other") as other:
        session_id = (await SessionManager(one, ADA).create_session()).session_id
        assert (await SessionManager(other, ADA).list_sessions()).items == ()
        with pytest.raises(satchel.SessionNotFound):
            await SessionManager(other, ADA).get_session(session_id)


def test_entries_compare_as_their_refs_do() -> None:
    parts = ["a", "a\0", "a\0b", "a\x01", "aa", "b", "", "\0", "\x01", "é"]
    refs = [SessionRef(tenant, session) for tenant in parts for session in parts]
    entries = {ref: in_order(ref.tenant_id.encode()) + in_order(ref.session_id.encode()) for ref in refs}
    assert sorted(refs, key=lambda ref: entries[ref]) == sorted(
        refs, key=lambda ref: (ref.tenant_id.encode(), ref.session_id.encode())
    )
    assert all(refs_in(entry) == ref for ref, entry in entries.items())


# -- changes


@pytest.mark.parametrize(
    "bad",
    [
        (event(1), event(1)),
        (event(2),),
        (event(2**64),),
        (event(1, actor="\udc80"),),
        (event(1, actor=cast(Any, None)),),
        (event(1, body=b"\xff"),),
    ],
    ids=["the same seq twice", "a gap", "a number beyond 64 bits", "no Unicode", "no actor", "no UTF-8"],
)
async def test_a_change_that_cannot_be_stored_harms_no_neighbour(store: RedisStore, bad: tuple[Any, ...]) -> None:
    await put(store)
    changes = [
        Change(ref=REF, base=7, record=record(revision=8), events=bad, working_memory=b'{"a":1}'),
        Change(ref=OTHER, base=None, record=record(OTHER, last_seq=1), events=(event(1),)),
    ]
    assert await store.commit(changes) == [Outcome.REJECTED, Outcome.APPLIED]
    snapshot = await store.snapshot(REF, messages=9)
    assert (snapshot.record, snapshot.working_memory, snapshot.messages) == (record(), b"", ())
    assert len((await store.events(OTHER, limit=9)).events) == 1


async def test_a_key_of_another_kind_is_met_before_the_first_write(store: RedisStore, bare: Any) -> None:
    """Whatever the script would write to it: a script that errs midway keeps what it wrote."""
    names = KEYS.names(REF)
    await put(store)
    whole = record(revision=8, last_seq=1, turn=Turn(run_id="run_1", status="READY", agent="a"), sweep_at=5)
    for key in (
        names.events,
        names.messages,
        names.keys,
        names.calls,
        names.call_order,
        names.newest,
        names.runs,
        names.run_order,
        names.ready,
        names.sweep,
        names.leases,
        names.streams,
        names.all,
    ):
        kept = await bare.dump(key)
        await bare.delete(key)
        await bare.set(key, "something else")
        before = await bare.hgetall(names.session)
        outcome = await put(
            store,
            base=7,
            record=whole,
            events=(event(1, kind="tool_call_started", body=b"{}"),),
            calls=(call(1),),
            idempotency=(IdempotencyRecord(b"k" * 16, b"f" * 16, Answer(1, 1)),),
        )
        assert outcome is Outcome.REJECTED, key
        assert await bare.hgetall(names.session) == before
        await bare.delete(key)
        if kept is not None:
            await bare.restore(key, 0, kept)
    assert await put(store, base=7, record=whole, events=(event(1),)) is Outcome.APPLIED


async def test_a_key_that_is_there_already_makes_a_change_stale(store: RedisStore) -> None:
    """Also when its record was decided on the right revision: neither half of it is stored."""
    kept = (IdempotencyRecord(b"k" * 16, b"f" * 16, Answer(1, 1)),)
    assert await put(store, idempotency=kept) is Outcome.APPLIED
    assert await put(store, base=7, events=(event(1),), idempotency=kept) is Outcome.STALE
    assert (await store.events(REF, limit=9)).events == ()


async def test_a_session_that_is_held_for_a_decision_is_let_go_when_nothing_comes_of_it(url: str) -> None:
    """Who was too late twice has the session held for its next commit. The clock stands still: time lets nobody go."""
    clock = SettableClock()
    held, other = RedisStore(url, clock=clock), RedisStore(url, clock=clock)
    await held.open()
    await other.open()
    assert await put(held) is Outcome.APPLIED
    for _ in range(2):
        assert await put(held, base=6) is Outcome.STALE

    def refuses(_: Loaded) -> list[Change]:
        return []

    async with asyncio.timeout(5):
        assert await held.transact({REF: Want()}, refuses) == []
    assert await put(other, base=7) is Outcome.APPLIED
    await held.close()
    await other.close()


async def test_what_cannot_be_asked_for_harms_no_neighbour(store: RedisStore) -> None:
    await put(store)
    strange = SessionRef("acme", "\udc80")
    loaded = await store.load({REF: Want(), strange: Want(), OTHER: Want(run_ids=("\udc80",))})
    assert loaded.sessions[REF].record == record()  # type: ignore[union-attr]  # it is no error
    assert [type(loaded.sessions[ref]) for ref in (strange, OTHER)] == [InvalidInput] * 2
    with pytest.raises(InvalidInput):
        await store.snapshot(strange)


async def test_one_corrupt_row_hides_nothing_but_itself(store: RedisStore, bare: Any) -> None:
    await put(store, events=(event(1), event(2), event(3)), record=record(last_seq=3), working_memory=b"{}")
    names = KEYS.names(REF)
    row = await bare.lindex(names.events, 1)
    for broken in (row[:-1], row[:9], b"", b"\xff" * 40):
        await bare.lset(names.events, 1, broken)
        page = await store.events(REF, limit=9)
        assert [(one.seq, one.is_corrupt) for one in page.events] == [(1, False), (2, True), (3, False)]
        wanted = await store.load({REF: Want(event_seqs=(2,))})
        assert isinstance(wanted.sessions[REF], StoreCorrupt)
    await bare.hset(names.session, "memory", "{")
    assert (await store.snapshot(REF)).working_memory == b'{"notes":{"corrupt":true}}'
    await bare.hset(names.session, "record", "{")
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


async def test_a_session_that_changes_hands_is_in_one_list(store: RedisStore) -> None:
    await put(store)
    await put(store, base=7, record=record(revision=8, user_id="bob"))
    listed = [
        [one.record.session_id for one in (await store.sessions("acme", user_id=who, limit=9)).sessions]
        for who in ("ada", "bob")
    ]
    assert listed == [[], [REF.session_id]]


async def test_many_sessions_are_paged_in_order_over_all_buckets(store: RedisStore) -> None:
    refs = [SessionRef(f"t{number % 3}", f"s{number}") for number in range(600)]
    await store.commit([Change(ref=ref, base=None, record=record(ref, sweep_at=1)) for ref in refs])
    refs.sort(key=lambda ref: (ref.tenant_id.encode(), ref.session_id.encode()))
    assert await store.refs(limit=0) == await store.due("sweep", limit=0) == []
    for limit in (7, 100, 250, 1_000):
        for listed in (store.refs, partial(store.due, "sweep")):
            found: list[SessionRef] = []
            while page := await listed(after=found[-1] if found else None, limit=limit):
                assert len(page) == min(limit, len(refs) - len(found))
                found += page
            assert found == refs


async def test_a_page_that_looks_at_many_rows_is_several_scripts_and_one_snapshot(
    store: RedisStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "LOOKED_AT", 300)
    events = tuple(event(seq, run_id="run_1" if seq % 500 == 0 else None) for seq in range(1, 2_001))
    await put(store, record=record(last_seq=2_000), events=events)
    wanted = [500, 1_000, 1_500, 2_000]
    for newest_first in (False, True):
        page = await store.events(REF, run_id="run_1", newest_first=newest_first, limit=9)
        assert [one.seq for one in page.events] == (wanted[::-1] if newest_first else wanted)

    async def write() -> None:
        for revision in range(7, 60):
            await put(store, base=revision, record=record(revision=revision + 1, last_seq=2_000))

    writing = asyncio.create_task(write())
    while not writing.done():
        page = await store.events(REF, run_id="run_1", limit=9)
        assert [one.seq for one in page.events] == wanted
    await writing


# -- time


async def test_the_clock_is_the_servers_whatever_the_client_believes(
    store: RedisStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: real() - 3_600 * 10**9)
    clock = (await store.load({})).clock
    assert abs(clock.now - real() // 1000) < 60_000_000
    assert clock.lease_clock == "server"
    assert await put(store, not_after=clock.now - 1) is Outcome.STALE
    assert await put(store, not_after=clock.now + 60_000_000) is Outcome.APPLIED


# -- connections


async def test_a_pool_that_is_used_up_is_busy_within_its_time_and_recovers(url: str, bare: Any) -> None:
    store = RedisStore(url + "?pool_size=2&pool_wait=0.3")
    await store.open()
    await put(store)
    await bare.client_pause(1_200, all=False)  # who writes waits
    writes = [asyncio.create_task(put(store, base=7, record=record(revision=8))) for _ in range(2)]
    await asyncio.sleep(0.1)
    began = time.monotonic()
    with pytest.raises(StoreBusy, match="pool_size"):
        await store.snapshot(REF)
    assert 0.2 < time.monotonic() - began < 1
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


async def test_connections_that_the_server_ended_are_replaced(store: RedisStore, bare: Any) -> None:
    await put(store)
    for _ in range(3):
        await bare.client_kill_filter(_type="normal", skipme=True)
        assert (await store.snapshot(REF)).record == record()


async def test_scripts_that_the_server_forgot_are_told_again(store: RedisStore, bare: Any) -> None:
    await put(store)
    await bare.script_flush()
    changes = [Change(ref=REF, base=7, record=record(revision=8)), Change(ref=OTHER, base=None, record=record(OTHER))]
    assert await store.commit(changes) == [Outcome.APPLIED, Outcome.APPLIED]
    await bare.script_flush()
    assert (await store.snapshot(REF)).record == record(revision=8)


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_connection_cut_in_the_middle_of_a_commit_writes_once(url: str, when: When) -> None:
    async with wire_to("127.0.0.1", server().port) as wire, satchel.open(through(url, wire.port)) as store:
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
    async with (
        wire_to("127.0.0.1", server().port) as wire,
        satchel.open(through(url, wire.port) + "?connect_timeout=0.5") as store,
    ):
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


async def test_a_cancelled_call_leaves_its_connection_to_others(url: str, bare: Any) -> None:
    store = RedisStore(url + "?pool_size=2")
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
        for one in calls:
            one.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
    assert (await store.snapshot(REF)).record == record()
    before = len(await bare.client_list())
    await store.close()
    await asyncio.sleep(0.05)
    assert len(await bare.client_list()) < before


async def test_a_store_belongs_to_its_event_loop_and_process(store: RedisStore) -> None:
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
        ResponseError(f"WRONGTYPE {secret}"),
        ResponseError(secret),
        OutOfMemoryError(secret),
        ReadOnlyError(secret),
        AuthenticationError(secret),
        ConnectionLost(secret),
        ConnectionRefusedError(secret),
        TimeoutError(secret),
    ):
        assert "hunter2" not in str(meaning_of(error))


async def test_a_server_whose_memory_is_full_says_so_and_reads_go_on() -> None:
    with RedisServer(settings={"maxmemory": "3mb"}) as small:
        async with satchel.open(small.url()) as store:
            manager = SessionManager(store, ADA)
            session_id = (await manager.create_session()).session_id
            written = 0
            refused: StoreUnavailable | None = None
            while refused is None and written < 200:
                try:
                    written = (await manager.append_message(session_id, said("x" * 50_000))).seq
                except StoreUnavailable as full:
                    refused = full
            assert "memory is full" in str(refused)
            assert (await manager.get_session(session_id, include=())).message_count == written > 0
            small.ask("CONFIG", "SET", "maxmemory", "0")
            assert (await manager.append_message(session_id, said("again"))).seq == written + 1


async def test_a_writer_far_from_the_server_gets_its_turn_beside_one_that_is_near(url: str) -> None:
    """To try again and again favours the near one: in the time of a far one's load and commit it commits several times."""
    async with (
        wire_to("127.0.0.1", server().port) as wire,
        satchel.open(url) as near,
        satchel.open(through(url, wire.port)) as far,
    ):
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


# -- replicas, TLS


async def test_a_write_that_its_replica_does_not_have_is_no_success_and_lands_once() -> None:
    """Nor is the answer that only repeats it."""
    at_once = {"repl-diskless-sync-delay": "0"}
    with (
        RedisServer(settings=at_once) as master,
        RedisServer(settings={"replicaof": f"127.0.0.1 {master.port}"}) as replica,
    ):
        while b"connected" not in replica.ask("ROLE").split(b"\r\n"):  # noqa: ASYNC110  # another process
            await asyncio.sleep(0.02)
        async with satchel.open(master.url()) as store:
            assert await trouble(store.store) == {"replicas=0": "warning"}
        url = master.url() + "?replicas=1&replica_wait="
        async with satchel.open(url + "20") as store:  # however busy the machine is
            assert await trouble(store.store) == {}
            manager = SessionManager(store, ADA)
            session_id = (await manager.create_session()).session_id
            os.kill(replica.pid, signal.SIGSTOP)
            hasty = url + "0.2&connect_timeout=1"
            async with satchel.open(hasty) as one, satchel.open(hasty) as other:
                with pytest.raises(satchel.OutcomeUnknown):
                    await SessionManager(one, ADA).append_message(session_id, said("once"), idempotency_key="k")
                with pytest.raises(StoreUnavailable):  # it finds the write of the first
                    await SessionManager(other, ADA).append_message(session_id, said("once"), idempotency_key="k")
            os.kill(replica.pid, signal.SIGCONT)
            again = await manager.append_message(session_id, said("once"), idempotency_key="k")
            assert (again.seq, again.replayed) == (1, True)
            assert (await manager.append_message(session_id, said("more"))).seq == 2


@pytest.fixture
def readable() -> Iterator[Path]:
    """A folder that the server's account may read; those of pytest are for its own user's eyes only."""
    with tempfile.TemporaryDirectory(prefix="satchel-tls-") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


async def test_over_tls_everything_is_as_without(readable: Path) -> None:
    write_certificate(readable)
    files = {name: str(readable / name) for name in ("cert.pem", "key.pem")}
    port = free_port()
    tls = {
        "tls-port": str(port),
        "tls-cert-file": files["cert.pem"],
        "tls-key-file": files["key.pem"],
        "tls-ca-cert-file": files["cert.pem"],
        "tls-auth-clients": "no",
    }
    with RedisServer(settings=tls) as secured:
        assert secured.port != port
        url = f"rediss://localhost:{port}?ssl_ca_certs={files['cert.pem']}&connect_timeout=1"
        async with satchel.open(url) as store:
            manager = SessionManager(store, ADA)
            session_id = (await manager.create_session()).session_id
            assert (await manager.append_message(session_id, said("x"))).seq == 1
        with pytest.raises(StoreUnavailable):  # nobody whom it does not know vouches for the server
            await satchel.open(f"rediss://localhost:{port}?connect_timeout=1").open()


def write_certificate(folder: Path) -> None:
    """Of `localhost`, signed by itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    (folder / "cert.pem").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    (folder / "key.pem").write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )


async def test_a_cancelled_close_leaves_no_connection_behind(url: str, bare: Any) -> None:
    before = len(await bare.client_list())
    async for _ in cancelled_closes(url):
        await asyncio.sleep(0.1)  # the server hears of a goodbye a moment later
        assert len(await bare.client_list()) == before


# -- hints


async def test_a_wait_ends_with_an_own_commit_and_with_another_stores(store: RedisStore, url: str) -> None:
    other = RedisStore(url)
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


async def test_a_listener_that_is_lost_costs_time_but_no_hint(store: RedisStore, url: str, bare: Any) -> None:
    other = RedisStore(url)
    await other.open()
    await put(store)
    first = asyncio.create_task(store.wait(REF, 0, 30))
    await asyncio.sleep(0.2)
    await bare.client_kill_filter(_type="pubsub")
    await put(other, base=7, record=record(revision=8, last_seq=1), events=(event(1),))
    await asyncio.wait_for(first, 5)
    await other.close()


# -- what an operator should know


@pytest.mark.parametrize(
    ("name", "weak"),
    [
        ("appendonly", "no"),
        ("appendfsync", "everysec"),
        ("no-appendfsync-on-rewrite", "yes"),
        ("maxmemory-policy", "allkeys-lru"),
    ],
)
async def test_a_server_that_may_lose_what_it_acknowledged_is_refused_with_the_line_that_mends_it(
    url: str, bare: Any, name: str, weak: str
) -> None:
    mends = (await bare.config_get(name))[name]
    await bare.config_set(name, weak)
    try:
        with pytest.raises(StoreNotDurable) as caught:
            await RedisStore(url).open()
        assert caught.value.line == f"{name} {mends}"
        relaxed = RedisStore(url + "?durability=relaxed")
        await relaxed.open()
        assert await put(relaxed) is Outcome.APPLIED
        assert not relaxed.capabilities.durable
        assert await trouble(relaxed) == {"durability=relaxed": "warning", f"{name} {weak}": "error"}
        await relaxed.close()
    finally:
        await bare.config_set(name, mends)
    sound = RedisStore(url)
    await sound.open()
    assert sound.capabilities.durable
    assert await trouble(sound) == {}
    await bare.config_set(name, weak)
    try:
        assert list((await trouble(sound)).values()) == ["error"]  # it was changed under the open store
    finally:
        await bare.config_set(name, mends)
    await sound.close()


async def test_an_account_needs_the_rights_that_the_docs_name(url: str, bare: Any) -> None:
    docs = (Path(__file__).parents[2] / "docs" / "stores.md").read_text(encoding="utf-8")
    found = re.search("An account needs `(.+?)`", docs)
    assert found is not None
    rights = found[1].split()
    as_shop = url.replace("redis://", "redis://shop:pass@")
    await bare.execute_command("ACL", "SETUSER", "shop", "on", ">pass", *rights)
    try:
        async with satchel.open(as_shop) as store, satchel.open(url) as other:
            manager = SessionManager(store, ADA)
            session_id = (await manager.create_session()).session_id
            waiting = asyncio.create_task(store.store.wait(SessionRef("acme", session_id), 0, 30))
            await asyncio.sleep(0.2)
            await SessionManager(other, ADA).append_message(session_id, said("heard"))
            await asyncio.wait_for(waiting, 1)
            assert [one.session_id for one in await manager.list_sessions()] == [session_id]
            await manager.delete_session(session_id)
            assert await trouble(store.store) == {}
        await bare.execute_command("ACL", "SETUSER", "shop", "-config|get")
        with pytest.raises(StoreNotDurable, match="config"):
            await RedisStore(as_shop).open()
        async with satchel.open(as_shop + "?durability=relaxed") as store:
            assert (await SessionManager(store, ADA).create_session()).version == 0
            assert set(await trouble(store.store)) == {"durability=relaxed", "CONFIG GET"}
    finally:
        await bare.execute_command("ACL", "DELUSER", "shop")


async def test_an_account_that_may_not_publish_or_listen_writes_and_waits_all_the_same(url: str, bare: Any) -> None:
    """As Redis makes accounts that no channel was given to. Hints are what it misses."""
    rights = ["~satchel:*", "+@read", "+@write", "+@scripting", "+@connection", "+info", "+time", "+config|get"]
    await bare.execute_command("ACL", "SETUSER", "mute", "on", ">pass", "resetchannels", *rights)
    as_mute = url.replace("redis://", "redis://mute:pass@")
    try:
        async with satchel.open(as_mute) as store, satchel.open(as_mute) as other:
            session = await SessionManager(store, ADA).create_session()
            message = await SessionManager(store, ADA).append_message(session.session_id, said("x"))
            assert (message.seq, message.replayed) == (1, False)
            assert await trouble(store.store) == {"channels": "warning"}
            before = (await bare.info("stats"))["total_connections_received"]
            follower = SessionManager(store, ADA).follow(session.session_id, after=1)
            next_one = asyncio.ensure_future(anext(aiter(follower)))
            await asyncio.sleep(1)
            assert (await bare.info("stats"))["total_connections_received"] - before < 10
            await SessionManager(other, ADA).append_message(session.session_id, said("y"))
            assert (await asyncio.wait_for(next_one, 10)).seq == 2
    finally:
        await bare.execute_command("ACL", "DELUSER", "mute")
