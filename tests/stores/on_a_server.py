"""What every store on a database server promises beside the contract: migrations, connections, faults of the server and of
the way to it. Each such store's tests derive from ``OnAServer``."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator
from typing import Any, ClassVar, cast

import pytest

import satchel
from satchel import Principal, SessionManager
from satchel.domain.idempotency import Answer, IdempotencyRecord
from satchel.domain.ids import SessionRef
from satchel.domain.state import Want
from satchel.errors import InvalidInput, SchemaMismatch, StoreBusy, StoreCorrupt, StoreMisused, StoreUnavailable
from satchel.opening import store_at
from satchel.store import Change, Outcome, Setting
from satchel.stores.sql.store import ServerStore
from satchel.testing.rows import REF, event, put, record
from tests.servers.proxy import When, wire_to

ADA = Principal.agent("shop", tenant_id="acme", acting_for="ada")
OTHER = SessionRef("acme", "sess_2")

BAD_CHANGES = {
    "the same seq twice": (event(1), event(1)),
    "a number beyond 64 bits": (event(2**63),),
    "no Unicode": (event(1, actor="\udc80"),),
    "no actor": (event(1, actor=cast(Any, None)),),
    "no UTF-8": (event(1, body=b"\xff"),),
}


def said(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def opened_at(url: str) -> ServerStore:
    store = store_at(url)
    assert isinstance(store, ServerStore)
    return store


def option(url: str, text: str) -> str:
    """``url`` with one more option."""
    return f"{url}{'&' if '?' in url else '?'}{text}"


async def cancelled_closes(url: str) -> AsyncIterator[None]:
    """A store that is written to and waited for, closed, and the close cancelled a little later each time; what it took up to
    then was done."""
    for turns in (1, 2, 3, 9, 27):
        opened = satchel.open(url)
        await opened.open()
        manager = SessionManager(opened, ADA)
        session_id = (await manager.create_session()).session_id
        writing = asyncio.create_task(manager.append_message(session_id, said("the last words")))
        waiting = asyncio.create_task(opened.store.wait(SessionRef("acme", session_id), 9, 30))
        await asyncio.sleep(0)
        closing = asyncio.create_task(opened.close())
        for _ in range(turns):
            await asyncio.sleep(0)
        in_time = closing.cancel()
        await asyncio.wait((closing, waiting), timeout=20)
        assert closing.cancelled() is in_time  # its caller hears that it was
        assert (await writing).seq == 1
        yield


class OnAServer:
    known: ClassVar[int]  # the newest schema
    commit: ClassVar[bytes] = b"COMMIT"  # as it stands on the wire, and nothing else does

    # What differs

    def new_database(self) -> str:
        raise NotImplementedError

    def port(self) -> int:
        raise NotImplementedError

    async def ask(self, url: str, statement: str) -> Any:
        """The first column of the first row."""
        raise NotImplementedError

    async def end_connections(self, url: str) -> None:
        """Of all stores that are open on this database, as the server's administrator would."""
        raise NotImplementedError

    async def connections(self, url: str) -> int:
        raise NotImplementedError

    async def lock_a_session(self, url: str) -> Any:
        """In a transaction that somebody else has open; to be ended by ``unlock``."""
        raise NotImplementedError

    async def unlock(self, rival: Any) -> None:
        raise NotImplementedError

    @pytest.fixture
    def url(self) -> str:
        raise NotImplementedError

    @pytest.fixture
    async def store(self, url: str) -> AsyncIterator[ServerStore]:
        opened = opened_at(url)
        await opened.open()
        yield opened
        await opened.close()

    def through(self, url: str, port: int) -> str:
        return url.replace(f":{self.port()}/", f":{port}/")

    # Migrations

    async def test_ten_servers_that_start_at_once_migrate_once(self) -> None:
        url = self.new_database()
        stores = [opened_at(url) for _ in range(10)]
        await asyncio.gather(*(store.open() for store in stores))
        assert await put(stores[3]) is Outcome.APPLIED
        for store in stores:
            await store.close()
        assert await self.ask(url, "SELECT count(*) FROM schema_version") == self.known
        assert await self.ask(url, "SELECT max(version) FROM schema_version") == self.known

    async def test_a_newer_schema_is_refused_and_left_alone(self) -> None:
        url = self.new_database()
        async with satchel.open(url):
            pass
        await self.ask(url, "INSERT INTO schema_version VALUES (99, 1)")
        with pytest.raises(SchemaMismatch) as caught:
            await opened_at(url).open()
        assert (caught.value.found, caught.value.known) == (99, self.known)

    # Changes

    @pytest.mark.parametrize("bad", BAD_CHANGES.values(), ids=BAD_CHANGES)
    async def test_a_change_that_cannot_be_stored_harms_no_neighbour(
        self, store: ServerStore, bad: tuple[Any, ...]
    ) -> None:
        await put(store)
        changes = [
            Change(ref=REF, base=7, record=record(revision=8), events=bad),
            Change(ref=OTHER, base=None, record=record(OTHER, last_seq=1), events=(event(1),)),
        ]
        assert await store.commit(changes) == [Outcome.REJECTED, Outcome.APPLIED]
        assert (await store.snapshot(REF, messages=9)).record == record()
        assert (await store.events(REF, limit=9)).events == ()
        assert len((await store.events(OTHER, limit=9)).events) == 1

    async def test_a_key_that_is_there_already_makes_a_change_stale(self, store: ServerStore) -> None:
        """Also when its record was decided on the right revision: neither half of it is stored."""
        kept = (IdempotencyRecord(b"k" * 16, b"f" * 16, Answer(1, 1)),)
        assert await put(store, idempotency=kept) is Outcome.APPLIED
        assert await put(store, base=7, events=(event(1),), idempotency=kept) is Outcome.STALE
        assert (await store.events(REF, limit=9)).events == ()

    async def test_what_cannot_be_asked_for_harms_no_neighbour(self, store: ServerStore) -> None:
        await put(store)
        strange = SessionRef("acme", "\udc80")
        loaded = await store.load({REF: Want(), strange: Want(), OTHER: Want(event_seqs=(2**63,))})
        assert loaded.sessions[REF].record == record()  # type: ignore[union-attr]  # it is no error
        assert [type(loaded.sessions[ref]) for ref in (strange, OTHER)] == [InvalidInput] * 2
        with pytest.raises(InvalidInput):
            await store.snapshot(strange)

    async def test_one_corrupt_row_hides_nothing_but_itself(self, store: ServerStore, url: str) -> None:
        await put(store, events=(event(1), event(2), event(3)), record=record(last_seq=3), working_memory=b"{}")
        await self.ask(url, "UPDATE events SET body = '{' WHERE seq = 2")
        await self.ask(url, "UPDATE working_memory SET body = '{'")
        page = await store.events(REF, limit=9)
        assert [one.is_corrupt for one in page.events] == [False, True, False]
        assert (await store.snapshot(REF)).working_memory == b'{"notes":{"corrupt":true}}'
        wanted = await store.load({REF: Want(event_seqs=(2,))})
        assert isinstance(wanted.sessions[REF], StoreCorrupt)
        await self.ask(url, "UPDATE sessions SET record = '{'")
        with pytest.raises(StoreCorrupt):
            await store.snapshot(REF)
        assert (await store.sessions("acme", limit=9)).unreadable == (REF.session_id,)

    async def test_two_hundred_creates_at_once_all_succeed(self, url: str) -> None:
        async with satchel.open(url) as one, satchel.open(url) as two:
            managers = [SessionManager(store, ADA) for store in (one, two)]
            made = await asyncio.gather(*(managers[n % 2].create_session() for n in range(200)))
            again = await asyncio.gather(*(managers[n % 2].create_session(external_id="same") for n in range(50)))
        assert len({session.session_id for session in made}) == 200
        assert len({session.session_id for session in again}) == 1

    # Time

    async def test_the_clock_is_the_servers_whatever_the_client_believes(
        self, store: ServerStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        real = time.time_ns
        monkeypatch.setattr(time, "time_ns", lambda: real() - 3_600 * 10**9)
        clock = (await store.load({})).clock
        assert abs(clock.now - real() // 1000) < 60_000_000
        assert clock.lease_clock == "server"
        assert await put(store, not_after=clock.now - 1) is Outcome.STALE
        assert await put(store, not_after=clock.now + 60_000_000) is Outcome.APPLIED

    # Connections

    async def test_a_pool_that_is_used_up_is_busy_within_its_time_and_recovers(self, url: str) -> None:
        store = opened_at(option(url, "pool_size=2&pool_wait=0.3"))
        await store.open()
        await put(store)
        rival = await self.lock_a_session(url)
        writes = [asyncio.create_task(put(store, base=7, record=record(revision=8))) for _ in range(2)]
        await asyncio.sleep(0.1)
        began = time.monotonic()
        with pytest.raises(StoreBusy, match="pool_size"):
            await store.snapshot(REF)
        assert 0.2 < time.monotonic() - began < 3
        await self.unlock(rival)
        assert sorted(outcome.value for outcome in await asyncio.gather(*writes)) == ["applied", "stale"]
        assert (await store.snapshot(REF)).record == record(revision=8)
        await store.close()

    async def test_more_calls_than_connections_wait_for_their_turn(self, url: str) -> None:
        async with satchel.open(option(url, "pool_size=1")) as store:
            manager = SessionManager(store, ADA)
            session_id = (await manager.create_session()).session_id
            calls = (manager.append_message(session_id, said(str(n))) for n in range(20))
            await asyncio.gather(*calls, *(manager.get_session(session_id) for _ in range(20)))
            assert (await manager.get_session(session_id)).message_count == 20

    async def test_connections_that_the_server_ended_are_replaced(self, store: ServerStore, url: str) -> None:
        await put(store)
        for _ in range(3):
            await self.end_connections(url)
            assert (await store.snapshot(REF)).record == record()

    @pytest.mark.parametrize("when", ["before", "after"])
    async def test_a_connection_cut_in_the_middle_of_a_commit_writes_once(self, url: str, when: When) -> None:
        async with (
            wire_to("127.0.0.1", self.port()) as wire,
            satchel.open(self.through(url, wire.port)) as store,
        ):
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

    async def test_a_server_that_stays_away_leaves_the_outcome_unknown_and_the_key_makes_it_safe(
        self, url: str
    ) -> None:
        async with wire_to("127.0.0.1", self.port()) as wire:
            through = option(self.through(url, wire.port), "connect_timeout=0.5")
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

    @pytest.mark.parametrize("when", ["before", "after"])
    async def test_a_setting_whose_commit_was_cut_is_written_once(self, url: str, when: When) -> None:
        async with wire_to("127.0.0.1", self.port()) as wire, satchel.open(self.through(url, wire.port)) as store:
            for number in (1, 2):
                wire.cut_at(self.commit, when)
                base = None if number == 1 else 1
                kept = await store.store.setting("keys", base=base, value=b"[%d]" % number)
                assert kept == Setting(number, b"[%d]" % number)
            assert wire.cuts == 2

    async def test_a_setting_whose_commit_was_cut_by_a_server_that_stays_away_is_no_plain_no(self, url: str) -> None:
        async with wire_to("127.0.0.1", self.port()) as wire:
            through = option(self.through(url, wire.port), "connect_timeout=0.5")
            async with satchel.open(through) as store:
                wire.cut_at(self.commit, "after")
                write = asyncio.create_task(store.store.setting("keys", value=b"[1]"))
                await asyncio.sleep(0.05)
                wire.is_down = True
                with pytest.raises(satchel.OutcomeUnknown):
                    await write
                wire.is_down = False
                assert await store.store.setting("keys") == Setting(1, b"[1]")

    async def test_a_cancelled_call_leaves_its_connection_to_others(self, url: str) -> None:
        store = opened_at(option(url, "pool_size=2"))
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
        assert await self.connections(url) == 0

    async def test_a_cancelled_close_leaves_no_connection_behind(self, url: str) -> None:
        async for _ in cancelled_closes(url):
            assert await self.connections(url) == 0

    async def test_a_store_belongs_to_its_event_loop_and_process(self, store: ServerStore) -> None:
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

    async def test_a_writer_far_from_the_server_gets_its_turn_beside_one_that_is_near(self, url: str) -> None:
        """To try again and again favours the near one: in the time of a far one's load and commit it commits several times."""
        async with (
            wire_to("127.0.0.1", self.port()) as wire,
            satchel.open(url) as near,
            satchel.open(self.through(url, wire.port)) as far,
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

    # Hints

    async def test_a_wait_ends_with_an_own_commit_and_with_another_stores(self, store: ServerStore, url: str) -> None:
        other = opened_at(url)
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

    async def test_what_a_store_wrote_just_before_it_closed_is_heard_at_once(
        self, store: ServerStore, url: str
    ) -> None:
        """Also when it had told of another write a moment before, and was to wait until it tells again."""
        await put(store)
        await store.wait(REF, 0, 0.2)
        for seq in range(1, 9, 2):
            other = opened_at(url)
            await other.open()
            await put(other, base=5 + seq + 1, record=record(revision=7 + seq, last_seq=seq), events=(event(seq),))
            await asyncio.sleep(0.01)
            waiting = asyncio.create_task(store.wait(REF, seq, 30))
            await asyncio.sleep(0.002)
            last = record(revision=8 + seq, last_seq=seq + 1)
            await put(other, base=7 + seq, record=last, events=(event(seq + 1),))
            await other.close()
            await asyncio.wait_for(waiting, 1)

    async def test_a_lost_connection_costs_a_wait_time_but_no_hint(self, store: ServerStore, url: str) -> None:
        other = opened_at(url)
        await other.open()
        await put(store)
        first = asyncio.create_task(store.wait(REF, 0, 30))
        await asyncio.sleep(0.2)
        await self.end_connections(url)
        await put(other, base=7, record=record(revision=8), events=(event(1),))
        await asyncio.wait_for(first, 5)
        await other.close()
