"""The Store contract by itself, reading and erasing: empty, limits exactly, order, ids."""

from __future__ import annotations

from typing import Any

from satchel.domain.idempotency import Answer, IdempotencyRecord
from satchel.domain.ids import SessionRef
from satchel.domain.policy import SessionPolicy
from satchel.domain.record import Lease, SessionRecord, Turn
from satchel.store import Outcome, Store
from satchel.testing.clock import START, SettableClock
from satchel.testing.rows import REF, call, event, put, record, run, state_of
from satchel.testing.suite import StoreSuite


class StoreReadingSuite(StoreSuite):
    async def test_reads_of_an_absent_session_have_no_record_and_nothing_else(
        self, store: Store, clock: SettableClock
    ) -> None:
        snapshot = await store.snapshot(REF, messages=5, tool_calls=5, runs=5)
        assert (snapshot.record, snapshot.messages, snapshot.tool_calls, snapshot.runs) == (None, (), (), ())
        assert (await store.events(REF, limit=5)).record is None
        assert (await store.tool_calls(REF, limit=5)).tool_calls == ()
        assert (await store.runs(REF, limit=5)).runs == ()
        assert snapshot.clock == clock()

    async def test_events_are_paged_exactly(self, store: Store) -> None:
        kinds = ("message", "run_step")
        log = tuple(event(seq, kind=kinds[seq % 2], run_id=f"run_{seq % 3}") for seq in range(1, 13))
        taken = event(13, kind="message_retracted", refers_to=4, body=b"{}")
        await put(store, record=record(last_seq=13), events=(*log, taken))

        async def seqs(**options: Any) -> list[int]:
            return [one.seq for one in (await store.events(REF, **{"limit": 100} | options)).events]

        assert await seqs() == list(range(1, 14))
        assert await seqs(limit=3) == [1, 2, 3]
        assert await seqs(limit=3, newest_first=True) == [13, 12, 11]
        assert await seqs(after=3, before=7) == [4, 5, 6]
        assert await seqs(after=3, before=7, newest_first=True, limit=2) == [6, 5]
        assert await seqs(after=13) == []
        assert await seqs(before=1) == []
        assert await seqs(before=0) == []
        assert await seqs(after=100) == []
        assert await seqs(kind="message") == [2, 4, 6, 8, 10, 12]
        assert await seqs(kind="message", with_retracted=False) == [2, 6, 8, 10, 12]
        assert await seqs(kind="message", with_retracted=False, newest_first=True, limit=5) == [12, 10, 8, 6, 2]
        assert await seqs(kind="message", with_retracted=False, limit=2) == [2, 6]
        assert await seqs(kind="message", run_id="run_1") == [4, 10]
        assert await seqs(run_id="run_1", after=4, limit=2) == [7, 10]
        assert await seqs(run_id="RUN_1") == []
        page = await store.events(REF, limit=100)
        assert (page.retracted, page.events) == (frozenset({4}), (*log, taken))
        assert (await store.events(REF, after=4, limit=100)).retracted == frozenset()

    async def test_event_fields_come_back(self, store: Store) -> None:
        full = event(
            1,
            run_id="run_1",
            refers_to=1,
            status="interrupted",
            format="adk.event",
            metadata=b'{"k": 1.50}',
            outcome="failed/json",
            body='{"content":"\\u0000 😀 修"}'.encode(),
        )
        await put(store, record=record(last_seq=1), events=(full,))
        assert (await store.events(REF, limit=1)).events == (full,)

    async def test_a_snapshot_gives_the_newest_of_each_in_order(self, store: Store) -> None:
        log = [event(seq, kind=("message", "tool_call_started")[seq % 2], body=b"{}") for seq in range(1, 21)]
        await put(
            store,
            record=record(last_seq=21),
            events=(*log, event(21, kind="message_retracted", refers_to=18, body=b"{}")),
            calls=tuple(call(seq) for seq in range(1, 21, 2)),
            runs=tuple(run(number) for number in (3, 1, 2, 10, 9)),
        )
        snapshot = await store.snapshot(REF, messages=3, tool_calls=2, runs=3)
        assert [one.seq for one in snapshot.messages] == [14, 16, 20]
        assert [one.seq for one in snapshot.tool_calls] == [17, 19]
        assert [one.number for one in snapshot.runs] == [3, 9, 10]
        everything = await store.snapshot(REF, messages=99, tool_calls=99, runs=99)
        assert (len(everything.messages), len(everything.tool_calls), len(everything.runs)) == (9, 10, 5)

    async def test_calls_and_runs_are_filtered_and_paged(self, store: Store) -> None:
        started = tuple(event(seq, kind="tool_call_started", body=b"{}") for seq in range(1, 7))
        rows = (
            call(1, tool="a"),
            call(2, tool="A", tool_call_id="c"),
            call(3, tool="a", tool_call_id="c ", run_id="run_1"),
            call(4, tool="a", status="failed", end_time=START, arguments_hash=b"x" * 16),
            call(5, tool="b", run_id="run_1"),
            call(6, tool="a", tool_call_id="c"),
        )
        runs = tuple(run(n, status=("READY", "FAILED")[n % 2]) for n in range(1, 6))
        await put(store, record=record(last_seq=6), events=started, calls=rows, runs=runs)

        async def calls(**options: Any) -> list[int]:
            return [one.seq for one in (await store.tool_calls(REF, **{"limit": 100} | options)).tool_calls]

        assert await calls() == [6, 5, 4, 3, 2, 1]
        assert await calls(newest_first=False, limit=2) == [1, 2]
        assert await calls(limit=2) == [6, 5]
        assert await calls(tool="a") == [6, 4, 3, 1]
        assert await calls(tool_call_id="c") == [6, 2]
        assert await calls(run_id="run_1") == [5, 3]
        assert await calls(is_open=False) == [4]
        assert await calls(is_open=True, newest_first=False) == [1, 2, 3, 5, 6]
        assert await calls(arguments_hash=b"x" * 16) == [4]
        assert await calls(after=2, before=5) == [4, 3]
        assert await calls(after=2, before=5, newest_first=False, limit=1) == [3]

        async def numbers(**options: Any) -> list[int]:
            return [one.number for one in (await store.runs(REF, **{"limit": 100} | options)).runs]

        assert await numbers() == [5, 4, 3, 2, 1]
        assert await numbers(status="FAILED") == [5, 3, 1]
        assert await numbers(run_id="run_2") == [2]
        assert await numbers(after_number=1, before_number=4, newest_first=False) == [2, 3]
        assert await numbers(limit=2) == [5, 4]

    async def test_ids_are_compared_byte_by_byte_and_never_joined(self, store: Store) -> None:
        refs = [
            SessionRef(*pair)
            for pair in (
                ("a", "s"),
                ("A", "s"),
                ("a", "S"),
                ("a", "s "),
                ("a ", "s"),
                ("a", " s"),
                ("a:b", "c"),
                ("a", "b:c"),
                ("a/b", "c"),
                ("a", "b/c"),
                ("é", "s"),
                ("e\u0301", "s"),
                ("{b17}", "s"),
                ("a", "s%"),
                ("a", "s_"),
                ("a'", 's"'),
                ("1", "s"),
                ("01", "s"),
            )
        ]
        for index, ref in enumerate(refs):
            assert (
                await put(
                    store, ref, record=record(ref, title=str(index), last_seq=1), events=(event(1, version=index + 1),)
                )
                is Outcome.APPLIED
            ), ref
        for index, ref in enumerate(refs):
            snapshot = await store.snapshot(ref, messages=9)
            assert snapshot.record is not None
            assert (snapshot.record.title, [one.version for one in snapshot.messages]) == (str(index), [index + 1])
        listed = (await store.sessions("a", limit=100)).sessions
        assert {one.record.session_id for one in listed} == {ref.session_id for ref in refs if ref.tenant_id == "a"}

    # -- across sessions

    async def test_sessions_are_listed_by_change_and_then_by_the_bytes_of_their_ids(self, store: Store) -> None:
        rows = [("b", 5), ("a", 5), ("B", 5), ("é", 5), ("a ", 5), ("z", 3), ("c", 9)]
        for session_id, at in rows:
            ref = SessionRef("acme", session_id)
            await put(store, ref, record=record(ref, updated_at=START + at), metadata=b'{"k":1}')
        await put(store, SessionRef("other", "x"), record=record(SessionRef("other", "x")))
        expected = [one for one, _ in sorted(rows, key=lambda row: (row[1], row[0].encode()), reverse=True)]
        page = await store.sessions("acme", limit=100)
        assert [one.record.session_id for one in page.sessions] == expected
        assert {one.metadata for one in page.sessions} == {b'{"k":1}'}
        for limit in (1, 2, 3):
            seen: list[str] = []
            after: tuple[int, str] | None = None
            while True:
                found = (await store.sessions("acme", after=after, limit=limit)).sessions
                seen += [one.record.session_id for one in found]
                if len(found) < limit:
                    break
                after = (found[-1].record.updated_at, found[-1].record.session_id)
            assert seen == expected

    async def test_a_list_holds_neither_tombstones_nor_hidden_sessions_and_filters(
        self, store: Store, clock: SettableClock
    ) -> None:
        made = {
            "mine": record(SessionRef("acme", "mine")),
            "idle": record(SessionRef("acme", "idle"), policy=SessionPolicy(idle=10)),
            "closed": record(SessionRef("acme", "closed"), status="CLOSED", updated_at=START + 10),
            "dead": record(SessionRef("acme", "dead"), status="DELETED"),
            "hidden": record(SessionRef("acme", "hidden"), hidden=True),
            "bobs": record(SessionRef("acme", "bobs"), user_id="bob"),
            "Adas": record(SessionRef("acme", "Adas"), user_id="Ada"),
        }
        for name, row in made.items():
            await put(store, SessionRef("acme", name), record=row)

        async def names(**options: Any) -> set[str]:
            page = await store.sessions("acme", **{"limit": 100} | options)
            return {one.record.session_id for one in page.sessions}

        assert await names() == {"mine", "idle", "closed", "bobs", "Adas"}
        assert await names(user_id="ada") == {"mine", "idle", "closed"}
        assert await names(user_id="ADA") == set()
        assert await names(status="ACTIVE", user_id="ada") == {"mine", "idle"}
        clock.now += 10
        assert await names(status="ACTIVE", user_id="ada") == {"mine"}
        assert await names(status="EXPIRED") == {"idle"}
        assert await names(status="DELETED") == set()
        assert await names(updated_from=START + 10) == {"closed"}
        assert await names(updated_from=START + 11) == set()
        assert await names(updated_before=START + 10, user_id="ada") == {"mine", "idle"}

    async def test_due_work_is_found_in_order_and_paged_by_key(self, store: Store, clock: SettableClock) -> None:
        def ready(ref: SessionRef, agent: str) -> SessionRecord:
            return record(ref, turn=Turn(run_id="run_1", status="READY", agent=agent))

        refs = [SessionRef(tenant, name) for tenant in ("t2", "t1", "T") for name in ("b", "a", "B")]
        for index, ref in enumerate(refs):
            await put(store, ref, record=ready(ref, ("coding", "", "data")[index % 3]))
        in_order = sorted(refs, key=lambda ref: (ref.tenant_id.encode(), ref.session_id.encode()))
        assert await store.due("ready", limit=100) == in_order
        coding = [ref for ref in in_order if refs.index(ref) % 3 == 0]
        assert await store.due("ready", agent="coding", limit=100) == coding
        assert await store.due("ready", agent="", limit=100) == [r for r in in_order if refs.index(r) % 3 == 1]
        assert await store.due("ready", agent="Coding", limit=100) == []
        assert await store.due("ready", after=in_order[3], limit=2) == in_order[4:6]
        assert await store.due("ready", after=in_order[-1], limit=2) == []
        assert await store.due("sweep", limit=100) == []

    async def test_all_sessions_of_all_tenants_are_paged_by_key_whatever_their_state(self, store: Store) -> None:
        states: tuple[dict[str, Any], ...] = ({}, {"status": "DELETED"}, {"hidden": True})
        named = [SessionRef(tenant, name) for tenant in ("t2", "t1", "T", "公司") for name in ("b", "a", "B", "a ")]
        for index, ref in enumerate(named):
            await put(store, ref, record=record(ref, **states[index % 3]))
        in_order = sorted(named, key=lambda ref: (ref.tenant_id.encode(), ref.session_id.encode()))
        assert await store.refs(limit=100) == in_order
        assert await store.refs(limit=5) == in_order[:5]
        assert await store.refs(after=in_order[4], limit=6) == in_order[5:11]
        assert await store.refs(after=SessionRef("t1", "aa"), limit=1) == [SessionRef("t1", "b")]
        assert await store.refs(after=in_order[-1], limit=3) == []
        assert await store.refs(limit=0) == []

    async def test_the_sweep_queue_is_exact_at_its_instants(self, store: Store, clock: SettableClock) -> None:
        swept = SessionRef("acme", "swept")
        leased = SessionRef("acme", "leased")
        await put(store, swept, record=record(swept, sweep_at=clock.now + 10))
        lease = Lease(each=10, until=clock.lease_now + 10, clock=clock.lease_clock)
        running = Turn(run_id="run_1", status="RUNNING", attempt=1, lease=lease)
        await put(
            store,
            leased,
            record=record(leased, turn=running, lease_until=clock.lease_now + 10, lease_clock=clock.lease_clock),
        )
        assert await store.due("sweep", limit=9) == []
        clock.now += 9
        clock.lease_now += 9
        assert await store.due("sweep", limit=9) == []
        clock.now += 1
        assert await store.due("sweep", limit=9) == [swept]
        clock.lease_now += 1
        assert await store.due("sweep", limit=9) == [leased, swept]
        clock.lease_now -= 5
        clock.now -= 5
        assert await store.due("sweep", limit=9) == []
        clock.reboot()
        assert await store.due("sweep", limit=9) == [leased]

    # -- erasure

    async def test_rows_of_a_tombstone_are_erased_in_steps_of_their_limit(self, store: Store) -> None:
        rows: dict[str, Any] = {
            "events": tuple(event(seq, kind="tool_call_started", body=b"{}") for seq in range(1, 31)),
            "calls": tuple(call(seq, arguments_hash=bytes([seq]) * 16) for seq in range(1, 11)),
            "runs": tuple(run(number) for number in range(1, 6)),
            "idempotency": tuple(IdempotencyRecord(bytes([n]) * 16, b"f" * 16, Answer(1, START)) for n in range(7)),
        }
        await put(store, record=record(last_seq=30), **rows)
        other = SessionRef("acme", "sess_2")
        await put(store, other, record=record(other, last_seq=30), **rows)
        assert await store.erase(REF, 10) == 0  # it is not a tombstone
        dead = record(status="DELETED", revision=8, last_seq=30)
        await put(store, base=7, record=dead, working_memory=b"", metadata=b"")
        steps = []
        while (erased := await store.erase(REF, 8)) > 0:
            assert erased <= 8
            steps.append(erased)
        assert sum(steps) >= 52
        assert await store.erase(REF, 8) == 0
        snapshot = await store.snapshot(REF, messages=9, tool_calls=9, runs=9)
        assert snapshot.record == dead
        assert (snapshot.messages, snapshot.tool_calls, snapshot.runs) == ((), (), ())
        assert (await store.events(REF, limit=99)).events == ()
        state = await state_of(store, keys=(bytes([1]) * 16,), arguments_hashes=(bytes([1]) * 16,))
        assert (state.keys, state.same_calls) == ({}, {})
        assert len((await store.events(other, limit=99)).events) == 30
        assert await store.erase(SessionRef("acme", "unknown"), 10) == 0

    async def test_containers_that_were_given_out_are_not_the_stores_own(self, store: Store) -> None:
        keys = [b"k" * 16]
        await put(
            store,
            events=(event(1),),
            record=record(last_seq=1),
            idempotency=(IdempotencyRecord(keys[0], b"f" * 16, Answer(1, START)),),
        )
        first = await state_of(store, keys=tuple(keys), event_seqs=(1,))
        first.keys.clear()
        first.events.clear()
        first.record = None
        again = await state_of(store, keys=tuple(keys), event_seqs=(1,))
        assert (len(again.keys), len(again.events), again.record is not None) == (1, 1, True)
