"""The Store contract by itself: absent, empty, twice, at once, limits exactly, order. No manager decides anything here."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from satchel.domain.clock import SECOND
from satchel.domain.event import Event
from satchel.domain.idempotency import Answer, IdempotencyRecord
from satchel.domain.ids import SessionRef
from satchel.domain.policy import SessionPolicy
from satchel.domain.record import OpenCall, SessionRecord, Turn, Waiting
from satchel.domain.run import RunError, RunRow, Usage
from satchel.domain.state import SessionState, Want
from satchel.domain.tool_call import CallRow
from satchel.errors import StoreMisused
from satchel.store import Change, Loaded, Outcome, Store
from satchel.testing.clock import START, SettableClock
from satchel.testing.stage import Stage
from satchel.testing.suite import StoreSuite

REF = SessionRef("acme", "sess_1")
HASH = b"h" * 16


def record(ref: SessionRef = REF, **fields: Any) -> SessionRecord:
    plain: dict[str, Any] = {
        "tenant_id": ref.tenant_id,
        "session_id": ref.session_id,
        "user_id": "ada",
        "revision": 7,
        "created_at": START,
        "updated_at": START,
        "active_at": START,
        "clock_from": START,
        "policy": SessionPolicy(idle=None),
    }
    return SessionRecord(**plain | fields)


def event(seq: int, **fields: Any) -> Event:
    plain: dict[str, Any] = {
        "seq": seq,
        "version": seq,
        "kind": "message",
        "at": START + seq,
        "actor": "user:ada",
        "body": b'{"role":"user","content":"%d"}' % seq,
    }
    return Event(**plain | fields)


def call(seq: int, **fields: Any) -> CallRow:
    plain: dict[str, Any] = {
        "seq": seq,
        "version": seq,
        "tool": "t",
        "arguments_hash": HASH,
        "status": "started",
        "start_time": START,
    }
    return CallRow(**plain | fields)


def run(number: int, **fields: Any) -> RunRow:
    plain: dict[str, Any] = {
        "run_id": f"run_{number}",
        "number": number,
        "status": "READY",
        "created_at": START,
        "version": number,
    }
    return RunRow(**plain | fields)


async def put(store: Store, ref: SessionRef = REF, *, base: int | None = None, **fields: Any) -> Outcome:
    """One change; ``record`` may be left out."""
    fields.setdefault("record", record(ref, revision=7 if base is None else base + 1))
    (outcome,) = await store.commit([Change(ref=ref, base=base, **fields)])
    return outcome


async def state_of(store: Store, ref: SessionRef = REF, **want: Any) -> SessionState:
    state = (await store.load({ref: Want(**want)})).sessions[ref]
    assert isinstance(state, SessionState)
    return state


class StoreContractSuite(StoreSuite):
    @pytest.fixture
    def store(self, stage: Stage) -> Store:
        return stage.store

    # -- open and close

    async def test_a_store_that_is_not_open_says_so(self, clock: SettableClock, tmp_path: Path) -> None:
        store = self.make_store(clock, tmp_path)
        await store.open()
        await store.open()
        await put(store)
        await store.close()
        await store.close()
        for use in (
            lambda: store.load({REF: Want()}),
            lambda: store.commit([]),
            lambda: store.transact({REF: Want()}, lambda _: ()),
            lambda: store.snapshot(REF),
            lambda: store.events(REF, limit=1),
            lambda: store.tool_calls(REF, limit=1),
            lambda: store.runs(REF, limit=1),
            lambda: store.sessions("acme", limit=1),
            lambda: store.due("sweep", limit=1),
            lambda: store.wait(REF, 0, 0.01),
            lambda: store.erase(REF, 1),
        ):
            with pytest.raises(StoreMisused):
                await use()

    async def test_what_was_acknowledged_is_there_after_opening_again(
        self, clock: SettableClock, tmp_path: Path
    ) -> None:
        store = self.make_store(clock, tmp_path)
        if not store.capabilities.durable:
            return
        await store.open()
        await put(store, events=(event(1),), record=record(last_seq=1))
        await store.close()
        again = self.make_store(clock, tmp_path)
        await again.open()
        page = await again.events(REF, limit=10)
        await again.close()
        assert (page.record, page.events) == (record(last_seq=1), (event(1),))

    # -- commit

    async def test_a_record_is_made_once(self, store: Store) -> None:
        assert await put(store) is Outcome.APPLIED
        assert await put(store, record=record(title="another")) is Outcome.STALE
        assert (await store.snapshot(REF)).record == record()

    async def test_a_change_on_another_revision_is_stale_and_leaves_nothing(self, store: Store) -> None:
        assert await put(store, base=3) is Outcome.STALE  # nothing is there
        await put(store)
        for base in (None, 6, 8, 0, -1):
            outcome = await put(
                store,
                base=base,
                record=record(revision=99, title="stale"),
                events=(event(1),),
                runs=(run(1),),
                calls=(call(1),),
                working_memory=b'{"goal":"x"}',
                metadata=b'{"k":1}',
                idempotency=(IdempotencyRecord(b"k" * 16, b"f" * 16, Answer(1, START)),),
            )
            assert outcome is Outcome.STALE
        snapshot = await store.snapshot(REF, messages=9, tool_calls=9, runs=9)
        assert snapshot.record == record()
        assert (snapshot.messages, snapshot.tool_calls, snapshot.runs) == ((), (), ())
        assert (snapshot.working_memory, snapshot.metadata) == (b"", b"")
        assert (await state_of(store, keys=(b"k" * 16,))).keys == {}
        assert await put(store, base=7) is Outcome.APPLIED

    async def test_of_two_changes_on_one_revision_one_is_applied(self, store: Store) -> None:
        await put(store)
        outcomes = await asyncio.gather(
            *(put(store, base=7, record=record(revision=8, title=str(n)), events=(event(1),)) for n in range(8))
        )
        assert sorted(outcome.value for outcome in outcomes) == ["applied"] + ["stale"] * 7
        assert len((await store.events(REF, limit=10)).events) == 1

    async def test_not_after_is_exact(self, store: Store, clock: SettableClock) -> None:
        await put(store)
        assert await put(store, base=7, not_after=clock.now) is Outcome.STALE
        assert await put(store, base=7, not_after=clock.now - 1) is Outcome.STALE
        assert await put(store, base=7, not_after=clock.now + 1) is Outcome.APPLIED
        assert await put(store, SessionRef("acme", "new"), not_after=clock.now) is Outcome.STALE
        assert (await store.snapshot(SessionRef("acme", "new"))).record is None

    async def test_each_change_of_a_batch_is_for_itself(self, store: Store) -> None:
        refs = [SessionRef("acme", f"sess_{n}") for n in range(5)]
        await put(store, refs[1])
        await put(store, refs[3])
        changes = [Change(ref=ref, base=None, record=record(ref, last_seq=1), events=(event(1),)) for ref in refs]
        outcomes = await store.commit(changes)
        assert [outcome.value for outcome in outcomes] == ["applied", "stale", "applied", "stale", "applied"]
        for index, ref in enumerate(refs):
            assert len((await store.events(ref, limit=9)).events) == (index % 2 == 0)
        assert await store.commit([]) == []

    async def test_transact_decides_on_what_is_there(self, store: Store) -> None:
        await put(store)
        seen: list[Loaded] = []

        def decide(loaded: Loaded) -> list[Change]:
            seen.append(loaded)
            state = loaded.sessions[REF]
            assert isinstance(state, SessionState)
            assert state.record is not None
            return [Change(ref=REF, base=state.record.revision, record=record(revision=state.record.revision + 1))]

        outcomes = [(await store.transact({REF: Want()}, decide))[0] for _ in range(3)]
        assert [outcome.value for outcome in outcomes] == ["applied"] * 3
        assert await store.transact({REF: Want()}, lambda _: ()) == []
        assert (await state_of(store)).existing.revision == 10
        assert len(seen) == 3

    async def test_an_error_of_the_decision_leaves_the_store_usable_and_unchanged(self, store: Store) -> None:
        await put(store)

        def decide(_: Loaded) -> list[Change]:
            raise LookupError("a fault of ours")

        with pytest.raises(LookupError):
            await store.transact({REF: Want()}, decide)
        assert await put(store, base=7) is Outcome.APPLIED

    async def test_a_cancelled_call_leaves_the_store_usable(self, store: Store) -> None:
        await put(store)
        for _ in range(5):
            task = asyncio.create_task(put(store, base=7))
            await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        for _ in range(100):  # one that was cancelled may still land
            revision = (await state_of(store)).existing.revision
            assert revision in (7, 8)
            if await put(store, base=revision) is Outcome.APPLIED:
                return
        raise AssertionError("nothing can be written any more")

    # -- load

    async def test_absent_sessions_have_a_state_without_a_record(self, store: Store, clock: SettableClock) -> None:
        await put(store)
        absent = SessionRef("umbrella", REF.session_id)
        loaded = await store.load({REF: Want(), absent: Want(keys=(b"k" * 16,), run_ids=("run_1",), open_work=True)})
        there, missing = loaded.sessions[REF], loaded.sessions[absent]
        assert isinstance(there, SessionState)
        assert isinstance(missing, SessionState)
        assert (there.record, missing.record) == (record(), None)
        assert loaded.clock == clock()
        assert (await store.load({})).sessions == {}

    async def test_every_field_of_a_record_comes_back(self, store: Store) -> None:
        full = record(
            status="CLOSED",
            version=5,
            last_seq=9,
            title="广告 NUL-free ' \" \\ %_",
            external_id="chat' OR 1=1 --",
            generation=2,
            closed_at=START + 1,
            hidden=False,
            usage=Usage(1, 2, 3),
            turn=Turn(run_id="run_1", status="RUNNING", attempt=2, agent="coding", lease=30, cancel_requested=True),
            queue=(Waiting(run_id="run_2", agent="data", size=10),),
            open_calls=(OpenCall(seq=3, tool_call_id="c\u00e9", run_id="run_1"),),
            asked=("c1", "c2"),
            sweep_at=START + 5,
            lease_until=1 << 60,
            lease_clock="boot",
        )
        await put(store, record=full)
        assert (await store.snapshot(REF)).record == full
        assert (await state_of(store)).record == full

    async def test_a_load_gives_what_is_wanted_and_nothing_else(self, store: Store) -> None:
        keys = tuple(bytes([n]) * 16 for n in range(3))
        answer = Answer(3, START, (1, 2), ("run_1",), "READY")
        await put(
            store,
            record=record(last_seq=4),
            events=(event(1), event(2, kind="tool_call_started", body=b'{"tool":"t"}'), event(3), event(4)),
            calls=(call(2),),
            runs=(run(1), run(2)),
            working_memory=b'{"goal":"x"}',
            metadata=b'{"k":1}',
            idempotency=tuple(IdempotencyRecord(key, b"f" * 16, answer) for key in keys[:2]),
        )
        bare = await state_of(store)
        assert (bare.keys, bare.runs, bare.calls, bare.same_calls, bare.events) == ({}, {}, {}, {}, {})
        assert (bare.working_memory, bare.metadata) == (b"", b"")
        full = await state_of(
            store,
            keys=keys,
            run_ids=("run_2", "run_9"),
            call_seqs=(2, 3),
            arguments_hashes=(HASH, b"x" * 16),
            event_seqs=(1, 3, 9),
            working_memory=True,
            metadata=True,
        )
        assert set(full.keys) == set(keys[:2])
        assert full.keys[keys[0]] == IdempotencyRecord(keys[0], b"f" * 16, answer)
        assert set(full.runs) == {"run_2"}
        assert full.calls == {2: call(2, start_body=b'{"tool":"t"}')}
        assert full.same_calls == {HASH: 2}
        assert full.events == {1: event(1), 3: event(3)}
        assert (full.working_memory, full.metadata) == (b'{"goal":"x"}', b'{"k":1}')

    async def test_retractions_come_with_the_events_they_refer_to(self, store: Store) -> None:
        taken = event(3, kind="message_retracted", refers_to=1, body=b"{}")
        await put(store, record=record(last_seq=3), events=(event(1), event(2), taken))
        assert (await state_of(store, event_seqs=(1, 2))).events == {1: event(1), 2: event(2), 3: taken}
        assert (await state_of(store, event_seqs=(2,))).events == {2: event(2)}

    async def test_open_work_is_loaded_when_wanted_and_when_it_is_overdue(
        self, store: Store, clock: SettableClock
    ) -> None:
        busy = record(
            last_seq=3,
            turn=Turn(run_id="run_1", status="RUNNING", attempt=1, lease=30),
            queue=(Waiting(run_id="run_2"),),
            open_calls=(OpenCall(seq=1, run_id="run_1"), OpenCall(seq=3)),
            lease_until=clock.lease_now + 30 * SECOND,
            lease_clock=clock.lease_clock,
        )
        started = tuple(event(seq, kind="tool_call_started", body=b"{}") for seq in (1, 2, 3))
        calls = (call(1), call(2, status="unknown", end_time=START), call(3))
        await put(store, record=busy, events=started, calls=calls, runs=(run(1), run(2), run(3)))
        assert (await state_of(store)).runs == {}
        wanted = await state_of(store, open_work=True)
        assert (set(wanted.runs), set(wanted.calls)) == ({"run_1", "run_2"}, {1, 3})
        clock.pass_lease_time(30)
        overdue = await state_of(store)
        assert (set(overdue.runs), set(overdue.calls)) == ({"run_1", "run_2"}, {1, 3})

    async def test_rows_are_replaced_by_their_newer_selves(self, store: Store) -> None:
        started = event(1, kind="tool_call_started", body=b'{"tool":"t","arguments":1.50}')
        ended = event(2, kind="tool_call_finished", refers_to=1, body=b'{"status":"succeeded","result":[1.50]}')
        await put(
            store, record=record(last_seq=1), events=(started,), calls=(call(1, tool_call_id="c", run_id="run_1"),)
        )
        over = call(
            1,
            version=2,
            status="succeeded",
            end_time=START + 9,
            tool_call_id="c",
            run_id="run_1",
            result_seq=2,
            repeat_of=None,
        )
        row = run(
            1,
            status="FAILED",
            version=2,
            goal="g",
            agent="a",
            start_time=START,
            end_time=START + 1,
            steps=3,
            usage=Usage(1, 2, 3),
            error=RunError("code", "message"),
            stop_reason="error",
            attempt=2,
            max_attempts=3,
            cancel_requested=True,
            metadata=msgspec.Raw(b'{"k":1.50}'),
        )
        await put(store, base=7, events=(ended,), calls=(over,), runs=(run(1),), record=record(revision=8, last_seq=2))
        await put(store, base=8, runs=(row,), record=record(revision=9, last_seq=2))
        (kept,) = (await store.tool_calls(REF, limit=9)).tool_calls
        assert kept == msgspec.structs.replace(over, start_body=started.body, end_body=ended.body)
        (held,) = (await store.runs(REF, limit=9)).runs
        assert (bytes(held.metadata), bytes(held.input)) == (b'{"k":1.50}', b"")
        assert msgspec.structs.replace(held, metadata=row.metadata, input=row.input) == row

    async def test_a_runs_input_is_its_message_once_it_is_one(self, store: Store) -> None:
        waiting = run(1, input=msgspec.Raw(b'{"role":"user","content":1.50}'), input_metadata=msgspec.Raw(b'{"m":1}'))
        await put(store, runs=(waiting,))
        (held,) = (await store.runs(REF, limit=9)).runs
        assert (bytes(held.input), bytes(held.input_metadata)) == (b'{"role":"user","content":1.50}', b'{"m":1}')
        said = event(1, body=b'{"role":"user","content":1.50}', run_id="run_1")
        await put(store, base=7, events=(said,), runs=(run(1, input_seq=1),), record=record(revision=8, last_seq=1))
        (held,) = (await store.runs(REF, limit=9)).runs
        assert bytes(held.input) == said.body
        assert bytes((await state_of(store, run_ids=("run_1",))).runs["run_1"].input) == said.body

    async def test_memory_and_metadata_stay_unless_they_are_given(self, store: Store) -> None:
        await put(store, working_memory=b'{"goal":"x"}', metadata=b'{"k":1.50}')
        await put(store, base=7, record=record(revision=8))
        snapshot = await store.snapshot(REF)
        assert (snapshot.working_memory, snapshot.metadata) == (b'{"goal":"x"}', b'{"k":1.50}')
        await put(store, base=8, working_memory=b"", record=record(revision=9))
        snapshot = await store.snapshot(REF)
        assert (snapshot.working_memory, snapshot.metadata) == (b"", b'{"k":1.50}')
        without = await store.snapshot(REF, working_memory=False, metadata=False)
        assert (without.working_memory, without.metadata) == (b"", b"")

    # -- one session

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

    async def test_the_sweep_queue_is_exact_at_its_instants(self, store: Store, clock: SettableClock) -> None:
        swept = SessionRef("acme", "swept")
        leased = SessionRef("acme", "leased")
        await put(store, swept, record=record(swept, sweep_at=clock.now + 10))
        running = Turn(run_id="run_1", status="RUNNING", attempt=1, lease=10)
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

    async def test_a_stranger_to_python_sharing_changes_nothing(self, store: Store) -> None:
        """What a store gave out or took in is its own: callers' containers may change."""
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
