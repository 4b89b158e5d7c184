"""How a child run ends: by its parent's end, by a cancel of its own or of its parent."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from satchel.domain.limits import Limits
from satchel.domain.run import Attempt
from satchel.engine import RunContext
from satchel.errors import LimitExceeded, RunFenced
from satchel.testing.children import family, run_of
from satchel.testing.stage import ADA, ADAS_AGENT, ADMIN, Stage, refused, said, unchanged
from satchel.testing.suite import StoreSuite


class ChildEndSuite(StoreSuite):
    @pytest.mark.parametrize("ending", ["COMPLETED", "FAILED", "CANCELLED", "handed back", "lost", "closed", "expired"])
    async def test_children_end_with_their_parents_attempt_in_the_same_commit(self, stage: Stage, ending: str) -> None:
        sid, parent, child = await family(stage, max_attempts=2)
        runs, agent = stage.runs(), stage.sessions(ADAS_AGENT)
        call = await agent.start_tool_call(sid, "t", attempt=child)
        before = await stage.record(sid)
        status, reason, outcome = "CANCELLED", "parent_ended", "unknown"
        if ending == "COMPLETED":
            await runs.complete_run(sid, parent)
        elif ending == "FAILED":
            await runs.fail_run(sid, parent, code="broken")
        elif ending == "CANCELLED":
            await runs.end_cancelled_run(sid, parent)
            outcome = "cancelled"
        elif ending == "handed back":
            await runs.hand_back_run(sid, parent)
        elif ending == "lost":
            stage.clock.pass_time(31)
            status, reason = "FAILED", "worker_lost"
        elif ending == "closed":
            await stage.sessions().close_session(sid)
            reason = "session_closed"
        else:
            await stage.sessions(ADMIN).expire_session(sid)
            reason = "session_expired"
        session = await stage.sessions().get_session(sid)
        ended = await run_of(stage, sid, child)
        assert (ended.status, ended.stop_reason) == (status, reason)
        assert (ended.error is not None) == (status == "FAILED")
        assert [one.status for one in session.tool_history if one.seq == call.seq] == [outcome]
        record = await stage.record(sid)
        assert (record.children, record.version) == ((), before.version + 1)
        if session.status == "ACTIVE":
            async with refused(stage, sid, RunFenced):
                await agent.append_message(sid, said("late", "assistant"), attempt=child)

    async def test_a_parent_that_goes_on_has_new_children(self, stage: Stage) -> None:
        sid, parent, child = await family(stage, max_attempts=2)
        runs = stage.runs()
        await runs.hand_back_run(sid, parent)
        await runs.start_run(sid, parent.run_id)
        async with refused(stage, sid, RunFenced):
            await runs.add_child_run(sid, parent)
        again = await runs.add_child_run(sid, Attempt(parent.run_id, 2))
        async with refused(stage, sid, RunFenced):
            await runs.complete_run(sid, child)
        await runs.complete_run(sid, Attempt(again.run_id, 1))

    async def test_a_childs_own_write_does_not_take_its_parent_for_dead(self, stage: Stage) -> None:
        sid, parent, child = await family(stage)
        stage.clock.pass_time(31)
        await stage.sessions(ADAS_AGENT).append_message(sid, said("slow", "assistant"), attempt=child)
        await stage.runs().renew_run(sid, parent)
        await stage.runs().complete_run(sid, child)

    # -- cancelling

    async def test_cancelling_a_child_asks_it_alone(self, stage: Stage) -> None:
        sid, parent, child = await family(stage)
        runs = stage.runs()
        other = await runs.add_child_run(sid, parent)
        asked = await stage.runs(ADA).cancel_run(sid, child.run_id, reason="no more")
        assert (asked.status, asked.cancel_requested) == ("RUNNING", True)
        record = await stage.record(sid)
        assert [(one.run_id, one.cancel_requested) for one in record.children] == [
            (child.run_id, True),
            (other.run_id, False),
        ]
        assert record.turn is not None
        assert not record.turn.cancel_requested
        assert await runs.renew_run(sid, parent) is False
        async with unchanged(stage, sid):
            await runs.cancel_run(sid, child.run_id)
        assert (await runs.end_cancelled_run(sid, child)).status == "CANCELLED"
        async with unchanged(stage, sid):
            assert (await runs.cancel_run(sid, child.run_id)).status == "CANCELLED"

    async def test_a_child_that_was_asked_hears_it_and_ends_cancelled(self, stage: Stage) -> None:
        sid = await stage.session()
        async with stage.sessions(ADAS_AGENT).run(sid, lease=0.3) as run:
            async with run.child("one") as child, run.child("two") as other:
                await stage.runs().cancel_run(sid, child.run.run_id)
                for _ in range(100):
                    if child.is_cancelled:
                        break
                    await asyncio.sleep(0.02)
                assert (child.is_cancelled, other.is_cancelled, run.is_cancelled) == (True, False, False)
            ended = {one.goal: one.status for one in await stage.runs().list_runs(sid, parent_run_id=run.run.run_id)}
            assert ended == {"one": "CANCELLED", "two": "COMPLETED"}

    async def test_cancelling_the_parent_tells_the_children(self, stage: Stage) -> None:
        sid = await stage.session()
        async with stage.sessions(ADAS_AGENT).run(sid) as run:
            async with run.child("one") as child:
                await stage.runs().cancel_run(sid, run.run.run_id)
                await run.step("gpt")
                assert child.is_cancelled
            assert (await stage.runs().get_run(sid, child.run.run_id)).status == "CANCELLED"
        assert (await stage.runs().get_run(sid, run.run.run_id)).status == "CANCELLED"

    async def test_a_caller_that_is_cancelled_while_its_child_run_is_refused_is_cancelled(self, stage: Stage) -> None:
        few = Stage(stage.store, stage.clock, limits=Limits(open_children=1))
        sid = await few.session()

        async def begin(run: RunContext) -> None:
            try:
                async with run.child("one too many"):
                    raise AssertionError
            except LimitExceeded:
                task = asyncio.current_task()
                assert task is not None
                assert not task.cancelling()

        async with few.sessions(ADAS_AGENT).run(sid) as run, run.child("first"):
            for turns in range(12):
                beginning = asyncio.create_task(begin(run))
                for _ in range(turns):
                    await asyncio.sleep(0)
                beginning.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await beginning
            assert len((await few.record(sid)).children) == 1
