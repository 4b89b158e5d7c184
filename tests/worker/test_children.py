"""Child runs and layers of a run that a worker executes."""

from __future__ import annotations

import asyncio
import threading

import pytest

from satchel import Run, RunContext, RunFenced
from satchel.errors import RunNested
from tests.worker.stage import Stage, until, working


async def test_an_agent_in_a_worker_has_child_runs_side_by_side_and_a_layer(stage: Stage) -> None:
    async def part(ctx: RunContext, goal: str) -> None:
        async with ctx.child(goal, agent="reader", metadata={"k": goal}) as child:
            assert child.run.parent_run_id == ctx.run.run_id
            async with child.tool("read", {"file": goal}) as call:
                call.result = "fine"
            await child.update_working_memory({"append": {"completed": goal}})
            await child.append_message({"role": "assistant", "content": goal})
            assert goal in str((await child.context()).messages)

    async def boss(ctx: RunContext) -> None:
        await asyncio.gather(*(part(ctx, goal) for goal in ("a.log", "b.log", "c.log")))
        assert sorted((await ctx.working_memory()).completed) == ["a.log", "b.log", "c.log"]
        assert (await ctx.session()).working_memory is not None
        async with ctx.child("outer") as outer:
            with pytest.raises(RunNested):
                async with outer.child("inner"):
                    pass

    async with working(stage.store, {"boss": boss}):
        run = await stage.ended(await stage.added("boss", memory="run"))
    assert (run.status, run.error, run.steps) == ("COMPLETED", None, 0)
    children = await stage.runs.list_runs(run.session_id, parent_run_id=run.run_id)
    assert sorted((one.goal, one.status, one.steps) for one in children) == [
        ("a.log", "COMPLETED", 1),
        ("b.log", "COMPLETED", 1),
        ("c.log", "COMPLETED", 1),
        ("outer", "COMPLETED", 0),
    ]
    memory = await stage.sessions.get_working_memory(run.session_id)
    assert sorted(memory.completed) == ["a.log", "b.log", "c.log"]


async def test_a_child_run_in_a_worker_hears_that_it_was_asked_to_stop(stage: Stage) -> None:
    heard = threading.Event()

    async def boss(ctx: RunContext) -> None:
        async with ctx.child("asked") as child:
            try:
                await asyncio.sleep(60)
            finally:
                if child.is_cancelled:
                    heard.set()
        assert not ctx.is_cancelled

    async with working(stage.store, {"boss": boss}):
        run = await stage.added("boss")
        sid = run.session_id
        (child,) = await until(lambda: children_of(stage, sid, run.run_id))
        await stage.runs.cancel_run(sid, child.run_id)
        assert (await stage.ended(run, within=5)).status == "COMPLETED"
    assert heard.is_set()
    assert (await stage.now(child)).status == "CANCELLED"


async def test_the_task_in_a_childs_block_is_cancelled_and_the_parent_goes_on_behind_it(stage: Stage) -> None:
    async def part(ctx: RunContext, goal: str, seconds: float) -> bool:
        async with ctx.child(goal) as child, child.tool("sleep"):
            await asyncio.sleep(seconds)
        await asyncio.sleep(0)  # nothing of the cancellation is left over
        return child.is_cancelled

    async def boss(ctx: RunContext) -> None:
        long, short = await asyncio.gather(part(ctx, "long", 60), part(ctx, "short", 1))
        assert long
        assert not short
        own = asyncio.current_task()
        assert own is not None
        assert own.cancelling() == 0
        assert await part(ctx, "next", 0) is False  # in the agent's own task
        assert not ctx.is_cancelled

    async with working(stage.store, {"boss": boss}):
        run = await stage.added("boss")
        sid = run.session_id
        await until(lambda: _both_in_their_tools(stage, sid))
        children = await stage.runs.list_runs(sid, parent_run_id=run.run_id)
        (long,) = [child for child in children if child.goal == "long"]
        await stage.runs.cancel_run(sid, long.run_id)
        ended = await stage.ended(run, within=10)
    assert (ended.status, ended.error) == ("COMPLETED", None)
    children = await stage.runs.list_runs(sid, parent_run_id=run.run_id)
    assert {child.goal: child.status for child in children} == {
        "long": "CANCELLED",
        "short": "COMPLETED",
        "next": "COMPLETED",
    }
    assert sorted(await stage.calls(sid)) == ["cancelled", "succeeded", "succeeded"]


async def test_a_parent_that_is_cancelled_leaves_the_block_of_a_child_that_was_cancelled(stage: Stage) -> None:
    went_on = threading.Event()

    async def boss(ctx: RunContext) -> None:
        async with ctx.child("waits") as child:
            try:
                await asyncio.sleep(60)
            finally:
                await until(lambda: ctx.is_cancelled and child.is_cancelled)  # both were asked, one after the other
                await asyncio.sleep(0.2)
        went_on.set()

    async with working(stage.store, {"boss": boss}):
        run = await stage.added("boss")
        (child,) = await until(lambda: children_of(stage, run.session_id, run.run_id))
        await stage.runs.cancel_run(run.session_id, child.run_id)
        await stage.runs.cancel_run(run.session_id, run.run_id)
        assert (await stage.ended(run, within=5)).status == "CANCELLED"
    assert not went_on.is_set()


async def _both_in_their_tools(stage: Stage, session_id: str) -> bool:
    return await stage.calls(session_id) == ["started", "started"]


async def test_a_child_run_ends_with_its_parent_that_was_cancelled(stage: Stage) -> None:
    async def boss(ctx: RunContext) -> None:
        async with ctx.child("waits") as child, child.tool("sleep"):
            await asyncio.sleep(60)

    async with working(stage.store, {"boss": boss}):
        run = await stage.added("boss")
        (child,) = await until(lambda: children_of(stage, run.session_id, run.run_id))
        await until(lambda: stage.calls(run.session_id))
        await stage.runs.cancel_run(run.session_id, run.run_id)
        assert (await stage.ended(run, within=5)).status == "CANCELLED"
    assert (await stage.now(child)).status == "CANCELLED"
    assert await stage.calls(run.session_id) == ["cancelled"]


async def test_the_context_of_a_child_is_of_no_use_after_its_block(stage: Stage) -> None:
    async def boss(ctx: RunContext) -> None:
        async with ctx.child("over") as child:
            pass
        with pytest.raises(RunFenced):
            await child.append_message({"role": "assistant", "content": "late"})
        await ctx.append_message({"role": "assistant", "content": "in time"})

    async with working(stage.store, {"boss": boss}):
        run = await stage.ended(await stage.added("boss"))
    assert (run.status, run.error) == ("COMPLETED", None)


async def children_of(stage: Stage, session_id: str, run_id: str) -> list[Run]:
    return list(await stage.runs.list_runs(session_id, parent_run_id=run_id))
