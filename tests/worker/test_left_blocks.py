"""Blocks of an agent in a worker that are left while they are entered."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence

import pytest

from satchel import OpenStore, RunContext
from satchel.store import Change, Outcome
from satchel.stores.memory import MemoryStore
from satchel.testing.wrappers import StoreWrapper
from tests.worker.stage import Stage, working


class SlowStore(StoreWrapper):
    """What is committed is told late."""

    pause = 0.0

    async def commit(self, changes: Sequence[Change]) -> list[Outcome]:
        outcomes = await self.inner.commit(changes)
        await asyncio.sleep(self.pause)
        return outcomes


@pytest.mark.parametrize("block", ["tool", "child"])
async def test_a_block_that_is_left_while_it_is_entered_leaves_nothing_open(block: str) -> None:
    slow = SlowStore(MemoryStore())
    stage = Stage(OpenStore(slow))
    left: list[int] = []

    async def agent(ctx: RunContext) -> None:
        slow.pause = 0.3
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.1):
                async with ctx.tool("t", step="s") if block == "tool" else ctx.child("part"):
                    raise AssertionError
        slow.pause = 0.0
        running = [run for run in (await ctx.session()).runs if run.status == "RUNNING"]
        left.extend((len((await ctx.tool_history(is_open=True)).items), len(running)))
        async with ctx.tool("t", step="s") as call:
            call.result = "done"

    async with working(stage.store, {"shop": agent}):
        run = await stage.ended(await stage.added("shop"))
    assert (run.status, run.error, left) == ("COMPLETED", None, [0, 1])
    assert await stage.calls(run.session_id) == ["cancelled", "succeeded"][block == "child" :]
