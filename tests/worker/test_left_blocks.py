"""Blocks of an agent that are left while they are entered, or while somebody else is in them."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Sequence

import pytest

from satchel import OpenStore, Principal, RunContext, SessionManager, StoreUnavailable, Worker
from satchel.store import Change, Outcome
from satchel.stores.memory import MemoryStore
from satchel.testing.wrappers import StoreWrapper
from satchel.worker import worker as worker_module
from tests.worker.stage import TENANT, Stage, until, working


class SlowStore(StoreWrapper):
    """What is committed is told late, and not at all while it is away."""

    pause = 0.0
    is_away = False
    refused = 0

    async def commit(self, changes: Sequence[Change]) -> list[Outcome]:
        if self.is_away:
            self.refused += 1
            raise StoreUnavailable("the network is gone")
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


@pytest.mark.parametrize("where", ["in place", "in a worker"])
async def test_who_waits_to_write_is_not_kept_by_the_end_of_the_message(where: str) -> None:
    slow = SlowStore(MemoryStore())
    stage = Stage(OpenStore(slow))
    text = "a" * 100_000

    async def agent(ctx: RunContext) -> None:
        slow.pause = 0.3
        async with ctx.stream() as answer:
            writing = asyncio.create_task(answer.write(text))
            await asyncio.sleep(0.1)
            assert not writing.done()
            slow.pause = 0.0
        assert answer.text == text
        await asyncio.wait_for(writing, 5)

    if where == "in place":
        sessions = SessionManager(stage.store, Principal.agent("shop", tenant_id=TENANT, acting_for="ada"))
        sid = await stage.session()
        async with sessions.run(sid) as run:
            await agent(run)
    else:
        async with working(stage.store, {"shop": agent}):
            ended = await stage.ended(await stage.added("shop"))
        assert ended.error is None
        sid = ended.session_id
    (message,) = await stage.sessions.messages(sid)
    assert (message.content, message.status) == (text, "complete")


async def test_a_worker_that_stops_while_the_store_is_away_leaves_nobody_asking_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(worker_module, "LAST_WORDS", 0.2)
    slow = SlowStore(MemoryStore())
    stage = Stage(OpenStore(slow))
    inside, gate = threading.Event(), threading.Event()

    async def agent(ctx: RunContext) -> None:
        async with ctx.tool("t") as call:
            inside.set()
            await asyncio.to_thread(gate.wait, 10)
            call.result = "done"

    before = asyncio.all_tasks()
    worker = Worker(stage.store, {"shop": agent}, grace=0)
    task = asyncio.create_task(worker.run_forever())
    await stage.added("shop")
    await until(inside.is_set)
    slow.is_away = True
    gate.set()
    await until(lambda: slow.refused > 1)
    worker.stop()
    await task
    await until(lambda: asyncio.all_tasks() <= before, within=5)
