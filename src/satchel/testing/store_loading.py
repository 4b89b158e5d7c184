"""The Store contract by itself, loading: what is wanted and nothing else, absent, overdue, every field as it was."""

from __future__ import annotations

import msgspec

from satchel.domain.clock import SECOND
from satchel.domain.idempotency import Answer, IdempotencyRecord
from satchel.domain.ids import SessionRef
from satchel.domain.record import Lease, OpenCall, OpenChild, Turn, Waiting
from satchel.domain.run import Usage
from satchel.domain.state import SessionState, Want
from satchel.store import Store
from satchel.testing.clock import START, SettableClock
from satchel.testing.rows import HASH, REF, call, event, put, record, run, state_of
from satchel.testing.suite import StoreSuite


class StoreLoadingSuite(StoreSuite):
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
            turn=Turn(
                run_id="run_1",
                status="RUNNING",
                attempt=2,
                agent="coding",
                lease=Lease(each=30, until=31, clock="boot"),
                cancel_requested=True,
            ),
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
        assert (bare.keys, bare.runs, bare.calls, bare.same_calls, bare.steps, bare.events) == ({}, {}, {}, {}, {}, {})
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

    async def test_the_newest_call_of_a_step_is_loaded(self, store: Store) -> None:
        named = [
            call(1, run_id="run_1", step="s", status="unknown"),
            call(2, run_id="run_1", step="s", result_seq=4, status="succeeded"),
            call(3, run_id="run_2", step="s"),
        ]
        body = b'{"tool":"t","step":"s"}'
        events = [event(seq, kind="tool_call_started", body=body) for seq in (1, 2, 3)]
        ended = event(4, kind="tool_call_finished", body=b'{"result":1}')
        await put(store, record=record(last_seq=4), events=(*events, ended), calls=tuple(named))
        names = (("run_1", "s"), ("run_2", "s"), ("run_1", "S"), ("run_3", "s"))
        found = (await state_of(store, steps=names)).steps
        assert found == {
            ("run_1", "s"): msgspec.structs.replace(named[1], start_body=body, end_body=b'{"result":1}'),
            ("run_2", "s"): msgspec.structs.replace(named[2], start_body=body),
        }

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
            turn=Turn(
                run_id="run_1",
                status="RUNNING",
                attempt=1,
                lease=Lease(each=30, until=clock.lease_now + 30 * SECOND, clock=clock.lease_clock),
            ),
            queue=(Waiting(run_id="run_2"),),
            children=(OpenChild(run_id="run_4"),),
            open_calls=(OpenCall(seq=1, run_id="run_1"), OpenCall(seq=3)),
            lease_until=clock.lease_now + 30 * SECOND,
            lease_clock=clock.lease_clock,
        )
        started = tuple(event(seq, kind="tool_call_started", body=b"{}") for seq in (1, 2, 3))
        calls = (call(1), call(2, status="unknown", end_time=START), call(3))
        await put(store, record=busy, events=started, calls=calls, runs=tuple(run(n) for n in (1, 2, 3, 4)))
        assert (await state_of(store)).runs == {}
        wanted = await state_of(store, open_work=True)
        assert (set(wanted.runs), set(wanted.calls)) == ({"run_1", "run_2", "run_4"}, {1, 3})
        clock.pass_lease_time(30)
        overdue = await state_of(store)
        assert (set(overdue.runs), set(overdue.calls)) == ({"run_1", "run_2", "run_4"}, {1, 3})

    async def test_open_work_is_loaded_where_a_copy_broke_off(self, store: Store) -> None:
        """Whoever writes there may meet all at once what time did."""
        turn = Turn(run_id="run_1", status="RUNNING", attempt=1)
        await put(store, record=record(last_seq=1, turn=turn, arriving=True), events=(event(1),), runs=(run(1),))
        assert set((await state_of(store)).runs) == {"run_1"}

    async def test_a_layer_is_loaded_with_the_memory_below_it_when_there_is_one(self, store: Store) -> None:
        memory = b'{"goal":"x"}'
        layer = run(
            1, memory="run", layer=msgspec.Raw(b'{"set":{"goal":"y"}}'), layer_base={"goal": "m"}, layer_version=2
        )
        turn = Turn(run_id="run_1", status="RUNNING", attempt=1, has_layer=True)
        await put(store, record=record(turn=turn), runs=(layer,), working_memory=memory)
        bare = await state_of(store)
        assert (bare.runs, bare.working_memory) == ({}, b"")
        state = await state_of(store, layer=True)
        assert (state.runs, state.working_memory) == ({"run_1": layer}, memory)
        plain = record(revision=8, turn=Turn(run_id="run_1", status="RUNNING", attempt=1))
        await put(store, base=7, record=plain)
        state = await state_of(store, layer=True)
        assert (state.runs, state.working_memory) == ({}, b"")

    async def test_runs_are_read_by_their_parent(self, store: Store) -> None:
        await put(store, runs=(run(1), run(2, parent_run_id="run_1"), run(3), run(4, parent_run_id="run_1")))
        page = await store.runs(REF, parent_run_id="run_1", limit=10)
        assert [one.run_id for one in page.runs] == ["run_4", "run_2"]
        page = await store.runs(REF, parent_run_id="run_1", after_number=2, newest_first=False, limit=10)
        assert [one.run_id for one in page.runs] == ["run_4"]
        assert (await store.runs(REF, run_id="run_3", parent_run_id="run_1", limit=10)).runs == ()
