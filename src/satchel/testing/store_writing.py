"""The Store contract by itself, writing: absent, twice, at once, exact instants. No manager decides anything here."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

from satchel.domain.idempotency import Answer, IdempotencyRecord
from satchel.domain.ids import SessionRef
from satchel.domain.run import RunError, Usage
from satchel.domain.state import SessionState, Want
from satchel.errors import StoreMisused
from satchel.store import Change, Loaded, Outcome, Setting, Store
from satchel.testing.clock import START, SettableClock
from satchel.testing.rows import REF, call, event, put, record, run, state_of
from satchel.testing.stage import Stage
from satchel.testing.suite import StoreSuite


class StoreWritingSuite(StoreSuite):
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
            lambda: store.setting("key"),
            lambda: store.setting("key", value=b"1"),
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

    # -- beside all sessions

    async def test_a_setting_is_written_by_who_knows_its_revision_and_by_nobody_else(self, store: Store) -> None:
        assert await store.setting("keys") is None
        assert await store.setting("keys", base=1, value=b"[9]") is None  # there is none to follow
        assert await store.setting("keys", value=b'["\xe9\x94\xae",1.10]') == Setting(1, b'["\xe9\x94\xae",1.10]')
        assert await store.setting("keys", value=b"[2]") == Setting(1, b'["\xe9\x94\xae",1.10]')  # there is one already
        assert await store.setting("keys", base=1, value=b"[3]") == Setting(2, b"[3]")
        assert await store.setting("keys", base=1, value=b"[4]") == Setting(2, b"[3]")
        assert await store.setting("keys") == Setting(2, b"[3]")
        assert await store.setting("KEYS") is None
        assert await store.setting("keys ") is None

    async def test_of_many_who_write_a_setting_on_one_revision_one_wins(self, stage: Stage, second: Stage) -> None:
        await stage.store.setting("keys", value=b"[]")
        mine = [b"[%d]" % number for number in range(20)]
        doors = (stage.store, second.store)
        kept = await asyncio.gather(
            *(doors[number % 2].setting("keys", base=1, value=value) for number, value in enumerate(mine))
        )
        assert {setting.revision for setting in kept if setting is not None} == {2}
        assert (
            sum(setting is not None and setting.value == value for setting, value in zip(kept, mine, strict=True)) == 1
        )
