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
            await until(lambda: child.is_cancelled)
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
