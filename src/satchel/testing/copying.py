"""All sessions from one store to another. The store under test is the destination of most of these, and the source of some;
the other side is in memory."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from satchel.domain.principal import Principal
from satchel.domain.record import SessionRecord
from satchel.domain.run import Attempt, Run
from satchel.errors import RunFenced, SessionDeleted, SessionNotFound, StoreUnavailable
from satchel.opened import OpenStore
from satchel.store import Change, Outcome
from satchel.stores.memory import MemoryStore
from satchel.testing.stage import ADA, ADAS_AGENT, ADMIN, BOB, TENANT, Stage, everything, lasting, said
from satchel.testing.suite import StoreSuite
from satchel.testing.transfer import FailingStore, busy_session, conversation, imported
from satchel.transfer.copying import Copied, Result
from satchel.transfer.moving import Failed, Move

EVE = Principal.agent("shop", tenant_id="umbrella", acting_for="eve")


async def move(source: OpenStore, target: OpenStore, **options: Any) -> dict[str, Result]:
    """By session what became of it, and all of it proved."""
    moving = Move(source, target, **options)
    try:
        results: dict[str, Result] = {}
        async for one in moving.copy():
            assert isinstance(one, Copied), one
            results[one.ref.session_id] = one.result
        async for copied, proof in moving.verify():
            assert not isinstance(proof, Failed), proof
            assert proof.holds, copied
        assert moving.sum.source == moving.sum.destination
    finally:
        moving.close()
    return results


class BetweenStores(StoreSuite):
    @pytest.fixture
    def other(self, stage: Stage) -> Stage:
        """Another store, in memory."""
        return Stage(MemoryStore(clock=stage.clock), stage.clock)


class CopySuite(BetweenStores):
    async def test_sessions_of_all_tenants_come_over_whole_under_their_ids(self, stage: Stage, other: Stage) -> None:
        busy = await busy_session(other)
        plain = await other.session()
        eves = await other.session(EVE, title="与 Ada 无关", external_id="chat-1")
        await other.sessions(EVE).append_message(eves, said("你好"))
        fork = (await other.sessions(ADAS_AGENT).fork_session(busy, up_to=4)).session_id
        closed = await other.session(policy=lasting(idle=None, retention=10 * 86_400))
        await other.sessions().close_session(closed, reason="done")
        await other.sessions(ADAS_AGENT).append_message(plain, said("x"), idempotency_key="key-1")
        assert await move(other.opened, stage.opened) == dict.fromkeys((busy, plain, eves, fork, closed), "copied")
        for sid, tenant in ((busy, TENANT), (plain, TENANT), (eves, "umbrella"), (fork, TENANT), (closed, TENANT)):
            original, *rest = await everything(other, sid, tenant)
            copy, *copied = await everything(stage, sid, tenant)
            assert copied == rest
            anew = ("revision", "active_at", "clock_from", "sweep_at")
            assert fields_but(copy, anew) == fields_but(original, anew)
        # The same name finds the same session, and expiry goes on from now.
        again = await stage.sessions(EVE).create_session(external_id="chat-1")
        assert (again.session_id, again.version) == (eves, 1)
        stage.clock.pass_time(10 * 86_400)
        with pytest.raises(SessionDeleted):
            await stage.sessions().get_session(closed)
        # Idempotency records do not travel.
        fresh = await stage.sessions(ADAS_AGENT).append_message(plain, said("x"), idempotency_key="key-1")
        assert (fresh.replayed, fresh.seq) == (False, 2)

    async def test_there_and_back_is_the_same(self, stage: Stage, other: Stage) -> None:
        busy = await busy_session(stage)
        log = await stage.log(busy)
        await move(stage.opened, other.opened)
        third = Stage(MemoryStore(clock=stage.clock), stage.clock)
        await move(other.opened, third.opened)
        assert await third.log(busy) == log

    async def test_the_same_copy_again_changes_nothing(self, stage: Stage, other: Stage) -> None:
        busy = await busy_session(other)
        gone = await other.session()
        await other.sessions().delete_session(gone)
        await move(other.opened, stage.opened)
        before = await everything(stage, busy)
        assert await move(other.opened, stage.opened) == {busy: "exists", gone: "tombstone"}
        assert await everything(stage, busy) == before

    async def test_only_the_tenant_that_was_asked_for_is_copied(self, stage: Stage, other: Stage) -> None:
        mine, eves = await other.session(), await other.session(EVE)
        assert await move(other.opened, stage.opened, tenant_id="umbrella") == {eves: "copied"}
        assert await move(other.opened, stage.opened, tenant_id="umbrell") == {}
        with pytest.raises(SessionNotFound):
            await stage.sessions().get_session(mine)

    # -- tombstones

    async def test_an_erased_id_is_not_used_again_at_the_destination(self, stage: Stage, other: Stage) -> None:
        gone = await other.session(external_id="chat-1", title="secret")
        await other.sessions().append_message(gone, said("Rosebud"))
        await other.sessions().delete_session(gone, reason="asked for")
        assert await move(other.opened, stage.opened) == {gone: "tombstone"}
        there, here = await stage.record(gone), await other.record(gone)
        assert fields_but(there, ("revision",)) == fields_but(here, ("revision",))
        assert there.lifecycle[-1].reason == "asked for"
        assert await stage.log(gone) == ()
        with pytest.raises(SessionDeleted):
            await stage.sessions().restore_session(gone)
        anew = await stage.sessions().create_session(external_id="chat-1")
        assert anew.session_id != gone
        assert (await stage.sweep()).visited == 0

    async def test_a_name_that_went_on_behind_an_abandoned_import_finds_its_session_at_the_destination(
        self, stage: Stage, other: Stage
    ) -> None:
        """What the import left was never a session; but the name has gone on from its id."""
        failing = FailingStore(other.store)
        failing.good = 1
        with pytest.raises(StoreUnavailable):
            await imported(Stage(failing, other.clock), ADAS_AGENT, [conversation("chat-1", *[said("x")] * 450)])
        line = conversation("chat-1", said("another conversation"))
        (there,) = await imported(other, ADAS_AGENT, [line])
        for _ in range(2):
            results = await move(other.opened, stage.opened)
            assert results.pop(there.session_id) in ("copied", "exists")
            assert list(results.values()) == ["unfinished"]
            found = await stage.sessions().create_session(external_id="chat-1")
            assert (found.session_id, found.existed, found.message_count) == (there.session_id, True, 1)
            assert [one.result for one in await imported(stage, ADAS_AGENT, [line])] == ["exists"]
        assert (await stage.sweep()).visited == 0

    async def test_what_was_deleted_at_one_side_is_named_and_left_at_both(self, stage: Stage, other: Stage) -> None:
        here, there = await other.session(), await other.session()
        await move(other.opened, stage.opened)
        await other.sessions().delete_session(here)
        await stage.sessions().delete_session(there)
        before = [await everything(stage, sid) for sid in (here, there)]
        assert await move(other.opened, stage.opened) == {here: "differs", there: "differs"}
        assert [await everything(stage, sid) for sid in (here, there)] == before
        assert (await other.sessions().get_session(there)).status == "ACTIVE"

    async def test_the_end_of_a_retention_comes_over_as_an_end(self, stage: Stage, other: Stage) -> None:
        """Overdue, and met by nobody: the copy meets it."""
        gone = await other.session(policy=lasting(idle=60, retention=60))
        over = await other.session(policy=lasting(idle=60))
        stage.clock.pass_time(121)
        assert await move(other.opened, stage.opened) == {gone: "tombstone", over: "copied"}
        assert (await stage.sessions().get_session(over)).status == "EXPIRED"

    # -- what stands there already

    @pytest.mark.parametrize("how", ["log", "owner", "title", "metadata"])
    async def test_a_session_that_differs_is_left_and_named(self, stage: Stage, other: Stage, how: str) -> None:
        sid = await other.session(title="t", metadata={"k": 1})
        await move(other.opened, stage.opened)
        if how == "log":
            await other.sessions().append_message(sid, said("here"))
            await stage.sessions().append_message(sid, said("there"))
        elif how == "owner":
            other = Stage(MemoryStore(clock=stage.clock), stage.clock)
            await put_record(other, msgspec.structs.replace(await stage.record(sid), user_id="bob"))
        else:
            other = Stage(MemoryStore(clock=stage.clock), stage.clock)
            same = await stage.record(sid)
            changed = msgspec.structs.replace(same, title="u") if how == "title" else same
            await put_record(other, changed, metadata=b'{"k":2}' if how == "metadata" else b'{"k":1}')
        before = await everything(stage, sid)
        moving = Move(other.opened, stage.opened)
        (copied,) = [one async for one in moving.copy()]
        assert isinstance(copied, Copied)
        proofs = [proof async for _, proof in moving.verify()]
        moving.close()
        if how in ("log", "owner"):
            assert (copied.result, bool(copied.reason), proofs) == ("differs", True, [])
        else:  # the log is the same: it is met when both sides are read
            assert copied.result == "exists"
            assert [proof.holds for proof in proofs if not isinstance(proof, Failed)] == [False]
            assert moving.sum.source != moving.sum.destination
        assert await everything(stage, sid) == before

    async def test_a_copy_takes_along_what_was_said_since_the_last(self, stage: Stage, other: Stage) -> None:
        sid = await busy_session(other)
        await move(other.opened, stage.opened)
        agent = other.sessions(ADAS_AGENT)
        await agent.append_message(sid, said("since"))
        await agent.update_working_memory(sid, {"append": {"completed": "more"}})
        await agent.update_session(sid, title="third title", metadata={"l": None, "m": "新"})
        await agent.append_messages(sid, [said(str(number)) for number in range(60)])
        assert await move(other.opened, stage.opened) == {sid: "continued"}
        assert (await everything(stage, sid))[1:] == (await everything(other, sid))[1:]
        shown = await stage.sessions().get_session(sid)
        assert (shown.title, shown.metadata["m"]) == ("third title", "新")

    async def test_a_session_that_changed_hands_is_continued_and_is_its_new_owners(
        self, stage: Stage, other: Stage
    ) -> None:
        sid = await other.session(external_id="chat-1")
        await other.sessions().append_message(sid, said("Ada's"))
        await move(other.opened, stage.opened)
        await other.sessions(ADMIN).transfer_session(sid, "bob")
        await other.sessions(BOB).append_message(sid, said("Bob's"))
        assert await move(other.opened, stage.opened) == {sid: "continued"}
        assert (await stage.sessions(BOB).get_session(sid)).message_count == 2
        assert [one.session_id for one in (await stage.sessions(BOB).list_sessions()).items] == [sid]
        with pytest.raises(SessionNotFound):
            await stage.sessions().get_session(sid)
        assert (await stage.sessions().list_sessions()).items == ()
        assert (await stage.sessions().create_session(external_id="chat-1")).session_id != sid
        # And where it changed hands at the destination, all that was copied is there.
        await stage.sessions(ADMIN).transfer_session(sid, "carol")
        assert (await move(other.opened, stage.opened))[sid] == "exists"

    async def test_what_went_on_at_the_destination_holds_what_was_copied(self, stage: Stage, other: Stage) -> None:
        sid = await busy_session(other)
        await move(other.opened, stage.opened)
        await stage.sessions().append_message(sid, said("at home here"))
        log = await stage.log(sid)
        assert await move(other.opened, stage.opened) == {sid: "exists"}
        assert await stage.log(sid) == log

    async def test_open_work_arrives_ended_and_the_same_copy_again_finds_it(self, stage: Stage, other: Stage) -> None:
        sid = await other.session()
        agent, runs = other.sessions(ADAS_AGENT), other.runs()
        _, attempt = await other.started_run(sid, input="one")
        await runs.add_run(sid, input="two", on_busy="queue")
        await agent.start_tool_call(sid, "t", attempt=attempt)
        await agent.append_tool_history(sid, {"tool": "u", "ok": True}, attempt=attempt)
        assert await move(other.opened, stage.opened) == {sid: "copied"}
        shown = await stage.sessions().get_session(sid)
        assert [(run.status, run.stop_reason) for run in shown.runs] == [("FAILED", "moved")] * 2
        assert [call.status for call in shown.tool_history] == ["unknown", "succeeded"]
        assert [message.status for message in shown.messages] == ["complete", "unanswered"]
        assert (await other.record(sid)).turn is not None  # at the source it goes on
        assert await move(other.opened, stage.opened) == {sid: "exists"}

    @pytest.mark.parametrize("how", ["running", "waiting", "queued", "calls"])
    async def test_what_was_open_at_the_first_copy_is_brought_up_to_date_by_the_second(
        self, stage: Stage, other: Stage, how: str
    ) -> None:
        """The first ended it at the destination; nobody wrote there since."""
        sid = await other.session(external_id="chat-1", title="t")
        await other.sessions(ADAS_AGENT).append_message(sid, said("before"))
        goes_on = await begin_work(other, sid, how)
        assert await move(other.opened, stage.opened) == {sid: "copied"}
        assert await move(other.opened, stage.opened) == {sid: "exists"}  # it is as open as it was
        await goes_on()
        await other.sessions(ADMIN).transfer_session(sid, "bob")
        assert await move(other.opened, stage.opened) == {sid: "continued"}
        ours = await other.log(sid)
        assert (await stage.log(sid))[: len(ours)] == ours
        shown = await stage.sessions(BOB).get_session(sid)
        assert [(one.status, one.stop_reason) for one in shown.runs] == {
            "running": [("COMPLETED", "end_turn")],
            "queued": [("COMPLETED", "end_turn"), ("FAILED", "moved")],
            "waiting": [("FAILED", "moved")],
            "calls": [],
        }[how]
        if how in ("running", "calls"):
            assert (await everything(stage, sid))[1:] == (await everything(other, sid))[1:]
        assert [one.session_id for one in (await stage.sessions(BOB).list_sessions()).items] == [sid]
        assert await move(other.opened, stage.opened) == {sid: "exists"}

    @pytest.mark.parametrize("was", ["completed", "running", "queued"])
    async def test_a_run_that_came_over_is_not_added_again_under_its_key(
        self, stage: Stage, other: Stage, was: str
    ) -> None:
        sid = await other.session()
        if was == "queued":
            await other.started_run(sid)

        async def add(where: Stage) -> Run:
            return await where.runs().add_run(
                sid, goal="g", input="one", start=True, on_busy="queue", idempotency_key="key-1"
            )

        first = await add(other)
        if was == "completed":
            await other.runs().complete_run(sid, Attempt(first.run_id, 1))
        await move(other.opened, stage.opened)
        before = await everything(stage, sid)
        for _ in range(2):
            again = await add(stage)
            assert (again.run_id, again.number, again.replayed) == (first.run_id, first.number, True)
            assert again.is_terminal
        assert await everything(stage, sid) == before
        with pytest.raises(RunFenced):  # it is executed once
            async with stage.sessions(ADAS_AGENT).run(sid, goal="g", input="one", idempotency_key="key-1"):
                raise AssertionError

    @pytest.mark.parametrize("who", ["a user", "the operator", "time", "time, and a user"])
    async def test_what_a_copy_ended_and_somebody_went_on_with_is_left(
        self, stage: Stage, other: Stage, who: str
    ) -> None:
        sid = await other.session(policy=lasting(idle=60))
        _, attempt = await other.started_run(sid, input="one")
        await move(other.opened, stage.opened)
        await other.sessions(ADAS_AGENT).append_message(sid, said("done", "assistant"), attempt=attempt)
        await other.runs().complete_run(sid, attempt)
        if who.startswith("time"):
            stage.clock.pass_time(61)
            assert (await stage.sweep()).expired == 1
            assert (await stage.record(sid)).status == "EXPIRED"
        if who == "the operator":
            await stage.sessions(ADMIN).update_session(sid, title="mine")
        elif who != "time":
            await stage.sessions(ADMIN).restore_session(sid)
            await stage.sessions().append_message(sid, said("here"))
        before = await everything(stage, sid)
        expected = "continued" if who == "time" else "differs"
        assert await move(other.opened, stage.opened) == {sid: expected}
        if expected == "differs":
            assert await everything(stage, sid) == before
        else:
            assert await stage.log(sid) == await other.log(sid)

    @pytest.mark.parametrize("events", [0, 1])
    async def test_what_time_alone_ended_is_brought_up_to_date(self, stage: Stage, other: Stage, events: int) -> None:
        """Also where nothing was said before the first copy."""
        sid = await other.session(policy=lasting(idle=60))
        for _ in range(events):
            await other.sessions().append_message(sid, said("before"))
        assert await move(other.opened, stage.opened) == {sid: "copied"}
        stage.clock.pass_time(40)
        await other.sessions().append_message(sid, said("hello"))
        stage.clock.pass_time(40)
        assert (await stage.sweep()).expired == 1
        assert await move(other.opened, stage.opened) == {sid: "continued"}
        assert await stage.log(sid) == await other.log(sid)
        assert (await stage.record(sid)).status == "ACTIVE"


async def begin_work(stage: Stage, sid: str, how: str) -> Callable[[], Awaitable[object]]:
    """Something open in a session; called again, it goes on."""
    agent, runs = stage.sessions(ADAS_AGENT), stage.runs()
    if how == "calls":
        call = await agent.start_tool_call(sid, "t")
        return lambda: agent.finish_tool_call(sid, call.seq, result={"k": 1})
    run, attempt = await stage.started_run(sid, input="one")
    if how == "queued":
        await runs.add_run(sid, input="two", on_busy="queue")
    if how == "waiting":
        await runs.ask_question(sid, attempt, "sure", "Sure?")
        return lambda: stage.runs(ADA).answer_run(sid, run.run_id, "yes")

    async def complete() -> None:
        await agent.append_message(sid, said("done", "assistant"), attempt=attempt)
        await runs.complete_run(sid, attempt)

    return complete


def fields_but(kept: SessionRecord, names: tuple[str, ...]) -> dict[str, Any]:
    return {name: value for name, value in msgspec.structs.asdict(kept).items() if name not in names}


async def put_record(stage: Stage, kept: SessionRecord, *, metadata: bytes = b"") -> None:
    change = Change(ref=kept.ref, base=None, record=kept, metadata=metadata)
    assert await stage.store.commit([change]) == [Outcome.APPLIED]
