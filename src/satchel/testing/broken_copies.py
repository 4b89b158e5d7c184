"""A copy that breaks off: what of it is seen, what time does to it, and how it is gone on with."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import msgspec
import pytest

from satchel.domain.clock import DAY
from satchel.domain.decisions.imports import was_abandoned
from satchel.domain.ids import SessionRef
from satchel.errors import RunFenced, SessionNotFound, StoreUnavailable
from satchel.opened import OpenStore
from satchel.store import Outcome
from satchel.stores.memory import MemoryStore
from satchel.testing.copying import BetweenStores, fields_but, move, put_record
from satchel.testing.rows import record
from satchel.testing.stage import ADAS_AGENT, ADMIN, BOB, TENANT, Stage, everything, lasting, refused, said
from satchel.testing.transfer import FailingStore, busy_session, innermost
from satchel.testing.wrappers import StoreWrapper, UnknownStore
from satchel.transfer.copying import Copied
from satchel.transfer.moving import Move


class BrokenCopySuite(BetweenStores):
    async def long_session(self, where: Stage) -> str:
        sid = await where.session()
        for start in range(0, 450, 90):
            await where.sessions(ADAS_AGENT).append_messages(sid, [said(str(start + n)) for n in range(90)])
        return sid

    async def half_copied(self, stage: Stage, other: Stage, *, chunks: int = 2) -> str:
        sid = await self.long_session(other)
        failing = FailingStore(innermost(stage.store))
        failing.good = chunks
        with pytest.raises(StoreUnavailable):
            await move(other.opened, OpenStore(failing))
        return sid

    async def test_a_copy_that_broke_off_is_seen_by_nobody_and_gone_on_with(self, stage: Stage, other: Stage) -> None:
        sid = await self.half_copied(stage, other)
        with pytest.raises(SessionNotFound):
            await stage.sessions().get_session(sid)
        assert (await stage.record(sid)).last_seq == 400
        counting = FailingStore(innermost(stage.store))
        counting.good = 10
        assert await move(other.opened, OpenStore(counting)) == {sid: "copied"}
        assert counting.good == 9, "what was there already was written again"
        assert await stage.log(sid) == await other.log(sid)

    async def test_what_a_copy_left_for_a_day_is_begun_again(self, stage: Stage, other: Stage) -> None:
        """The sweeper takes it for abandoned: nobody ever saw it, so its id was not used."""
        sid = await self.half_copied(stage, other)
        stage.clock.step_wall(DAY / 1_000_000 + 1)
        await stage.sweep()
        assert was_abandoned(await stage.record(sid))
        assert await move(other.opened, stage.opened) == {sid: "copied"}
        assert await stage.log(sid) == await other.log(sid)
        stage.clock.step_wall(DAY / 1_000_000 + 1)
        assert (await stage.sweep()).deleted == 0
        assert len(await stage.log(sid)) == 450

    @pytest.mark.parametrize("how", ["broken off", "closed"])
    async def test_a_copy_that_begins_again_while_its_remains_are_swept_does_not_break_off_the_sweep(
        self, stage: Stage, other: Stage, how: str
    ) -> None:
        sid = await self.half_copied(stage, other)
        closed = how == "closed"
        if closed:
            await other.sessions().close_session(sid)
        stage.clock.step_wall(DAY / 1_000_000 + 1)

        class Slow(StoreWrapper):
            async def scrub(self, *, most: int | None = None) -> bool:
                if most is None:
                    again = FailingStore(innermost(stage.store))
                    again.good = 100 if closed else 2  # the end of the erasure, and a chunk
                    with contextlib.suppress(StoreUnavailable):
                        await move(other.opened, OpenStore(again))
                return await self.inner.scrub(most=most)

        await Stage(Slow(innermost(stage.store)), stage.clock).sweep()
        there = await stage.record(sid)
        assert (there.hidden, there.status) == ((False, "CLOSED") if closed else (True, "ACTIVE"))
        assert await move(other.opened, stage.opened) == {sid: "exists" if closed else "copied"}

    async def test_half_of_something_else_gives_way(self, stage: Stage, other: Stage) -> None:
        sid = await self.half_copied(stage, other)
        third = Stage(MemoryStore(clock=stage.clock), stage.clock)
        await put_record(third, record(SessionRef(TENANT, sid)))
        await third.sessions().append_message(sid, said("another beginning"))
        assert (await move(third.opened, stage.opened))[sid] == "copied"
        assert await stage.log(sid) == await third.log(sid)

    async def test_a_session_that_was_deleted_before_its_copy_was_whole_leaves_nothing(
        self, stage: Stage, other: Stage
    ) -> None:
        sid = await self.half_copied(stage, other)
        await other.sessions().delete_session(sid)
        assert await move(other.opened, stage.opened) == {sid: "tombstone"}
        assert await stage.log(sid) == ()
        assert (await stage.record(sid)).status == "DELETED"

    async def continued_and_broken_off(self, stage: Stage, other: Stage, *, chunks: int = 1) -> None:
        failing = FailingStore(innermost(stage.store))
        failing.good = chunks
        with pytest.raises(StoreUnavailable):
            await move(other.opened, OpenStore(failing))

    async def test_what_was_seen_before_stays_seen_where_its_next_copy_breaks_off(
        self, stage: Stage, other: Stage
    ) -> None:
        """It is what it was at the source after the same event; neither the sweeper nor its own policy takes it."""
        sid = await busy_session(other)
        await move(other.opened, stage.opened)
        agent = other.sessions(ADAS_AGENT)
        await agent.update_session(sid, title="then", metadata={"l": None, "then": "新"})
        await agent.update_working_memory(sid, {"append": {"completed": "then"}})
        before = (await stage.record(sid)).last_seq
        more = before + 200 - (await other.record(sid)).last_seq
        await agent.append_messages(sid, [said(str(number)) for number in range(more // 2)])
        await other.sessions().close_session(sid, reason="then")
        await other.sessions().restore_session(sid)
        await agent.append_messages(sid, [said(str(number)) for number in range(more - more // 2 - 2)])
        then = await everything(other, sid)
        await agent.update_session(sid, title="now", metadata={"then": None})
        await agent.update_working_memory(sid, {"append": {"completed": "now"}})
        for _ in range(3):
            await agent.append_messages(sid, [said("x")] * 90)
        await self.continued_and_broken_off(stage, other)
        for _ in range(2):
            stage.clock.step_wall(DAY / 1_000_000 + 1)
            await stage.sweep()
        there, *rest = await everything(stage, sid)
        anew = ("revision", "active_at", "clock_from", "sweep_at", "arriving")
        assert (fields_but(there, anew), rest) == (fields_but(then[0], anew), list(then[1:]))
        assert (await stage.sessions().get_session(sid)).title == "then"
        assert await move(other.opened, stage.opened) == {sid: "continued"}
        there, *rest = await everything(stage, sid)
        now, *wanted = await everything(other, sid)
        assert (fields_but(there, anew), rest, there.arriving) == (fields_but(now, anew), wanted, False)

    async def test_what_its_log_does_not_say_is_there_as_it_was(self, stage: Stage, other: Stage) -> None:
        """A title and metadata that it was created with, and an owner, all changed behind the break."""
        sid = await other.session(title="made", metadata={"k": 1})
        await move(other.opened, stage.opened)
        await other.sessions(ADAS_AGENT).append_messages(sid, [said("x")] * 100)
        await other.sessions(ADAS_AGENT).append_messages(sid, [said("x")] * 100)
        await other.sessions().update_session(sid, title="now", metadata={"k": None})
        await other.sessions(ADMIN).transfer_session(sid, "bob")
        await self.continued_and_broken_off(stage, other)
        shown = await stage.sessions().get_session(sid)
        assert (shown.title, shown.metadata, shown.message_count) == ("made", {"k": 1}, 200)
        assert await move(other.opened, stage.opened) == {sid: "continued"}
        shown = await stage.sessions(BOB).get_session(sid)
        assert (shown.title, shown.metadata) == ("now", {})
        with pytest.raises(SessionNotFound):
            await stage.sessions().get_session(sid)

    @pytest.mark.parametrize("what", ["idle", "closed"])
    async def test_time_does_nothing_to_it_before_its_copy_is_whole(
        self, stage: Stage, other: Stage, what: str
    ) -> None:
        """Idle for long, or closed for longer than it would be kept."""
        sid = await other.session(policy=lasting(idle=60) if what == "idle" else lasting(idle=None, retention=60))
        await move(other.opened, stage.opened)
        agent = other.sessions(ADAS_AGENT)
        for count in (100, 99):
            await agent.append_messages(sid, [said("x")] * count)
        if what == "closed":
            await other.sessions().close_session(sid)  # the last event of the first chunk
            await other.sessions().restore_session(sid)
        else:
            await agent.append_messages(sid, [said("y")] * 2)
            await agent.append_message(sid, said("z"))
        await self.continued_and_broken_off(stage, other)
        for _ in range(2):
            assert (await stage.sessions().get_session(sid)).status == ("ACTIVE" if what == "idle" else "CLOSED")
            stage.clock.step_wall(61)
            await stage.sweep()
        assert await move(other.opened, stage.opened) == {sid: "continued"}
        assert (await stage.sessions().get_session(sid)).status == ("EXPIRED" if what == "idle" else "ACTIVE")

    @pytest.mark.parametrize("how", ["waits", "works"])
    async def test_a_run_that_was_open_at_a_break_is_nobodys(self, stage: Stage, other: Stage, how: str) -> None:
        sid = await other.session()
        await other.sessions(ADAS_AGENT).append_message(sid, said("before"))
        await move(other.opened, stage.opened)
        attempt = None
        if how == "works":
            _, attempt = await other.started_run(sid, agent="coding", input="one")
        else:
            await other.runs().add_run(sid, agent="coding", input="one")
        await other.runs().add_run(sid, agent="coding", input="two", on_busy="queue")
        for _ in range(5):
            await other.sessions(ADAS_AGENT).append_messages(sid, [said("x", "assistant")] * 90, attempt=attempt)
        await self.continued_and_broken_off(stage, other)
        stage.clock.step_wall(DAY / 1_000_000 + 1)  # leases at the source live
        await stage.sweep()
        shown = await stage.sessions().get_session(sid)
        status = "RUNNING" if how == "works" else "READY"
        assert [run.status for run in shown.runs] == [status, "READY"]
        assert await stage.store.due("ready", agent="coding", limit=9) == []
        assert await move(other.opened, stage.opened) == {sid: "continued"}
        shown = await stage.sessions().get_session(sid)
        assert [(run.status, run.stop_reason) for run in shown.runs] == [("FAILED", "moved")] * 2
        assert (await stage.log(sid))[:450] == (await other.log(sid))[:450]
        assert await move(other.opened, stage.opened) == {sid: "exists"}

    @pytest.mark.parametrize("idle", [60, None])
    async def test_who_writes_where_a_copy_broke_off_has_the_session_from_then_on(
        self, stage: Stage, other: Stage, idle: int | None
    ) -> None:
        sid = await other.session(policy=lasting(idle=idle))
        await move(other.opened, stage.opened)
        await other.runs().add_run(sid, agent="coding", input="one")
        for _ in range(4):
            await other.sessions(ADAS_AGENT).append_messages(sid, [said("x")] * 90)
        await self.continued_and_broken_off(stage, other)
        await stage.sessions().append_message(sid, said("here"))
        assert [ref.session_id for ref in await stage.store.due("ready", agent="coding", limit=9)] == [sid]
        log = await stage.log(sid)
        moving = Move(other.opened, stage.opened)
        (copied,) = [one async for one in moving.copy()]
        moving.close()
        assert isinstance(copied, Copied)
        assert copied.result == "differs"
        assert await stage.log(sid) == log
        stage.clock.pass_time(61)
        await stage.sweep()
        assert (await stage.record(sid)).status == ("ACTIVE" if idle is None else "EXPIRED")

    @pytest.mark.parametrize("max_attempts", [1, 2])
    async def test_a_run_that_worked_at_the_source_is_lost_where_somebody_writes_behind_a_break(
        self, stage: Stage, other: Stage, max_attempts: int
    ) -> None:
        """Nobody executes it here: it keeps nobody out, and the next in the queue has its turn."""
        sid = await other.session()
        await other.sessions(ADAS_AGENT).append_message(sid, said("before"))
        await move(other.opened, stage.opened)
        run, attempt = await other.started_run(sid, agent="coding", input="one", max_attempts=max_attempts)
        for _ in range(5):
            await other.sessions(ADAS_AGENT).append_messages(sid, [said("x", "assistant")] * 90, attempt=attempt)
        await self.continued_and_broken_off(stage, other)
        async with refused(stage, sid, RunFenced):
            await stage.runs().renew_run(sid, attempt)
        async with refused(stage, sid, RunFenced):
            await stage.sessions(ADAS_AGENT).append_message(sid, said("x", "assistant"), attempt=attempt)
        await stage.sessions().append_message(sid, said("here"))
        await stage.sweep()
        turn = (await stage.record(sid)).turn
        assert turn is None or turn.status == "READY"
        shown = await stage.runs().get_run(sid, run.run_id)
        if max_attempts == 1:
            assert (shown.status, shown.stop_reason) == ("FAILED", "worker_lost")
        else:
            again = await stage.runs().start_run(sid, run.run_id)
            assert (shown.status, again.status, again.attempt) == ("READY", "RUNNING", 2)

    async def test_who_writes_together_where_a_copy_broke_off_meets_what_was_due_there(
        self, stage: Stage, other: Stage
    ) -> None:
        """The first of them has the session from then on, and the second already meets what time did."""
        sid = await other.session(policy=lasting(idle=None, max_lifetime=3_600))
        await other.sessions(ADAS_AGENT).append_message(sid, said("before"))
        await move(other.opened, stage.opened)
        run, attempt = await other.started_run(sid, agent="coding", input="one")
        await other.runs().ask_question(sid, attempt, "how", "?", expires_in=60)
        for _ in range(5):
            await other.sessions(ADAS_AGENT).append_messages(sid, [said("x")] * 90)
        await self.continued_and_broken_off(stage, other)
        stage.clock.pass_time(61)
        await asyncio.gather(*(stage.sessions().append_message(sid, said(text)) for text in ("here", "at once")))
        shown = await stage.runs().get_run(sid, run.run_id)
        assert (shown.status, shown.stop_reason) == ("FAILED", "question_expired")

    async def test_readers_see_it_grow_while_it_is_continued(self, stage: Stage, other: Stage) -> None:
        sid = await other.session()
        await other.sessions().append_message(sid, said("before"))
        await move(other.opened, stage.opened)
        for _ in range(5):
            await other.sessions(ADAS_AGENT).append_messages(sid, [said("x")] * 90)
        seen: list[int] = []

        class Watched(StoreWrapper):
            async def commit(self, changes: Any) -> list[Outcome]:
                outcomes: list[Outcome] = await self.inner.commit(changes)
                seen.append((await stage.sessions().get_session(sid)).message_count)
                return outcomes

        assert await move(other.opened, OpenStore(Watched(innermost(stage.store)))) == {sid: "continued"}
        assert seen[-1] == 451
        assert seen == sorted(set(seen))
        assert {(count - 1) % 90 for count in seen} == {0}, "messages that came together were seen apart"
        assert len(seen) > 1, "it came in one chunk: the test tests nothing"

    @pytest.mark.parametrize("commits", [1, 2, 3])
    async def test_a_copy_that_breaks_off_while_it_takes_back_what_a_former_one_ended_is_gone_on_with(
        self, stage: Stage, other: Stage, commits: int
    ) -> None:
        sid = await other.session()
        _, attempt = await other.started_run(sid, input="one")
        await move(other.opened, stage.opened)
        for _ in range(3):
            await other.sessions(ADAS_AGENT).append_messages(sid, [said("x", "assistant")] * 90, attempt=attempt)
        await other.runs().complete_run(sid, attempt)
        await self.continued_and_broken_off(stage, other, chunks=commits)
        await stage.sweep()
        assert await move(other.opened, stage.opened) == {sid: "copied"}
        assert (await everything(stage, sid))[1:] == (await everything(other, sid))[1:]

    async def test_two_copies_at_once_make_one(self, stage: Stage, other: Stage) -> None:
        ids = [await busy_session(other), await self.long_session(other)]

        async def one() -> None:
            moving = Move(other.opened, stage.opened)
            async for _ in moving.copy():
                pass  # one of the two may hear that the other writes
            moving.close()

        await asyncio.gather(one(), one())
        assert await move(other.opened, stage.opened) == dict.fromkeys(ids, "exists")
        for sid in ids:
            assert await stage.log(sid) == await other.log(sid)

    async def test_an_unknown_outcome_is_found_out_inside(self, stage: Stage, other: Stage) -> None:
        ids = [await busy_session(other), await self.long_session(other)]
        gone = await other.session()
        await other.sessions().delete_session(gone)
        wanted = dict.fromkeys(ids, "copied") | {gone: "tombstone"}
        assert await move(other.opened, OpenStore(UnknownStore(stage.store, seed=3))) == wanted

    async def test_an_import_that_is_not_whole_stays_where_it_is(self, stage: Stage, other: Stage) -> None:
        sid = await other.session()
        await put_record(other, msgspec.structs.replace(await other.record(sid), session_id="sess_half", hidden=True))
        assert await move(other.opened, stage.opened) == {sid: "copied", "sess_half": "unfinished"}
        assert (await stage.store.snapshot(SessionRef(TENANT, "sess_half"))).record is None
