"""Agents that ask: what a worker does while a run waits, and when it goes on."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from typing import Any

import pytest

from satchel import OpenStore, RunContext, RunFenced, RunSuspended, ToolCallFailed
from satchel.errors import StoreUnavailable
from satchel.store import EventPage
from satchel.testing.wrappers import StoreWrapper
from tests.worker.stage import Stage, until, working

SIZE = {"type": "integer", "minimum": 1}


async def asks(ctx: RunContext) -> None:
    size = await ctx.ask("size", "How big?", schema=SIZE)
    await ctx.append_message({"role": "assistant", "content": f"{size} in attempt {ctx.attempt.attempt}"})


async def quick(ctx: RunContext) -> None:
    await ctx.append_message({"role": "assistant", "content": "quick"})


async def test_a_run_that_waits_holds_no_slot_and_goes_on_when_it_is_answered(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "satchel.worker")
    async with working(stage.store, {"asks": asks, "quick": quick}, concurrency=1) as worker:
        run = await stage.added("asks")
        behind = await stage.added("quick", run.session_id)
        assert (await stage.reached(run, "WAITING")).attempt == 1
        await until(lambda: not worker.held_runs)
        assert (await stage.ended(await stage.added("quick"))).status == "COMPLETED"
        assert (await stage.now(behind)).status == "READY"  # the turn is the waiting run's
        await stage.runs.answer_run(run.session_id, run.run_id, 7)
        assert (await stage.ended(run)).status == "COMPLETED"
        assert (await stage.ended(behind)).status == "COMPLETED"
    said = [message.content for message in await stage.sessions.messages(run.session_id)]
    assert said == ["7 in attempt 2", "quick"]
    kinds = [event.kind for event in await stage.log(run.session_id) if event.run_id == run.run_id]
    assert kinds == [
        "run_added",
        "run_started",
        "question_asked",
        "question_answered",
        "run_started",
        "message",
        "run_ended",
    ]
    assert not [record for record in caplog.records if record.levelno > logging.INFO]


async def test_another_worker_goes_on(stage: Stage) -> None:
    run = await stage.added("asks")
    async with working(stage.store, {"asks": asks}):
        await stage.reached(run, "WAITING")
    await stage.runs.answer_run(run.session_id, run.run_id, 7)
    async with working(stage.store, {"asks": asks}):
        assert (await stage.ended(run)).status == "COMPLETED"


async def test_an_answer_is_waited_for_while_the_store_is_away(stage: Stage) -> None:
    class Absent(StoreWrapper):
        refused = 0

        async def events(self, *args: Any, **what: Any) -> EventPage:
            if self.refused < 3:
                self.refused += 1
                raise StoreUnavailable("the network is gone")
            return await self.inner.events(*args, **what)

    run = await stage.added("asks")
    async with working(stage.store, {"asks": asks}):
        await stage.reached(run, "WAITING")
    await stage.runs.answer_run(run.session_id, run.run_id, 7)
    store = Absent(stage.store.store)
    async with working(OpenStore(store), {"asks": asks}):
        ended = await stage.ended(run)
    assert (ended.status, ended.error, store.refused) == ("COMPLETED", None, 3)
    kinds = [event.kind for event in await stage.log(run.session_id)]
    assert kinds.count("question_asked") == 1


async def test_an_agent_that_swallows_the_exception_is_fenced(stage: Stage) -> None:
    met: list[BaseException] = []

    async def stubborn(ctx: RunContext) -> None:
        if ctx.attempt.attempt == 1:
            try:
                await ctx.ask("size", "How big?")
            except Exception:  # noqa: BLE001  # it is no Exception
                met.append(AssertionError("an agent's own handler caught it"))
            except asyncio.CancelledError as left:
                met.append(left)
            try:
                await ctx.append_message({"role": "assistant", "content": "I go on"})
            except RunFenced as fenced:
                met.append(fenced)
            return
        await ctx.append_message({"role": "assistant", "content": await ctx.ask("size", "How big?")})

    async with working(stage.store, {"stubborn": stubborn}) as worker:
        run = await stage.added("stubborn")
        await until(lambda: len(met) == 2)
        await until(lambda: not worker.held_runs)
        assert [type(one) for one in met] == [RunSuspended, RunFenced]
        assert (await stage.now(run)).status == "WAITING"
        await stage.runs.answer_run(run.session_id, run.run_id, "big")
        assert (await stage.ended(run)).status == "COMPLETED"
    assert [message.content for message in await stage.sessions.messages(run.session_id)] == ["big"]


async def test_an_agent_that_does_not_leave_is_cancelled_and_then_let_go(stage: Stage) -> None:
    told = asyncio.Event()

    async def in_a_group(ctx: RunContext) -> None:
        """A group takes a child that was cancelled for one that has ended."""
        if ctx.attempt.attempt == 1:
            async with asyncio.TaskGroup() as group:
                group.create_task(ctx.ask("size", "How big?"))
            while True:
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.sleep(60)
                told.set()
        assert await ctx.ask("size", "How big?") == "big"

    async with working(stage.store, {"group": in_a_group}, grace=1.2) as worker:
        run = await stage.added("group")
        await until(told.is_set)
        await until(lambda: not worker.held_runs)
        assert (await stage.now(run)).status == "WAITING"
        await stage.runs.answer_run(run.session_id, run.run_id, "big")
        assert (await stage.ended(run)).status == "COMPLETED"


async def test_what_an_agent_does_before_its_question_under_a_name_it_does_once(stage: Stage) -> None:
    ran: list[Any] = []

    def look_up(_: Any) -> int:
        ran.append("look_up")
        return 120

    async def pays(ctx: RunContext) -> None:
        price = await ctx.call("look_up", {"of": "ticket"}, look_up, step="price")
        approval = await ctx.approve("pay", "pay", {"amount": price})
        if approval.is_granted:
            await ctx.call("pay", approval.arguments, ran.append, step="pay")
        await ctx.ask("thanks", "All right?")

    async with working(stage.store, {"pays": pays}):
        run = await stage.added("pays")
        waiting = await stage.reached(run, "WAITING")
        assert waiting.question is not None
        assert waiting.question.question == 'May pay be called with {"amount":120}?'
        await stage.runs.answer_run(run.session_id, run.run_id, {"decision": "edit", "arguments": {"amount": 100}})
        await until(lambda: len(ran) == 2)
        await stage.reached(run, "WAITING")
        await stage.runs.answer_run(run.session_id, run.run_id, True)
        ended = await stage.ended(run)
    assert (ended.status, ended.attempt) == ("COMPLETED", 3)
    assert ran == ["look_up", {"amount": 100}]
    assert await stage.calls(run.session_id) == ["succeeded", "succeeded"]


async def test_an_expired_question_fails_its_run_and_the_queue_goes_on(stage: Stage) -> None:
    async def impatient(ctx: RunContext) -> None:
        await ctx.ask("size", "How big?", expires_in=0.3)

    async with working(stage.store, {"impatient": impatient, "quick": quick}, lease=1):
        run = await stage.added("impatient")
        behind = await stage.added("quick", run.session_id)
        ended = await stage.ended(run)
        assert ended.error is not None
        assert (ended.status, ended.error.code) == ("FAILED", "question_expired")
        assert (await stage.ended(behind)).status == "COMPLETED"


async def test_a_run_that_was_asked_to_stop_asks_nothing(stage: Stage) -> None:
    started = asyncio.Event()

    async def late(ctx: RunContext) -> None:
        started.set()
        while not ctx.is_cancelled:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(0.01)
        await ctx.ask("size", "How big?")

    async with working(stage.store, {"late": late, "asks": asks}):
        run = await stage.added("late")
        await until(started.is_set)
        await stage.runs.cancel_run(run.session_id, run.run_id)
        assert (await stage.ended(run)).status == "CANCELLED"
        waits = await stage.added("asks")
        await stage.reached(waits, "WAITING")
        await stage.runs.cancel_run(waits.session_id, waits.run_id)
        assert (await stage.now(waits)).status == "CANCELLED"
    assert "question_asked" not in [event.kind for event in await stage.log(run.session_id)]


async def test_a_question_inside_a_tool_call_is_refused(stage: Stage) -> None:
    async def inside(ctx: RunContext) -> None:
        async with ctx.tool("t"):
            await ctx.ask("size", "How big?")

    async with working(stage.store, {"inside": inside}):
        ended = await stage.ended(await stage.added("inside"))
    assert ended.error is not None
    assert (ended.status, ended.error.code) == ("FAILED", "agent_error")
    assert "still open" in ended.error.message


@pytest.mark.parametrize("fails", [False, True])
async def test_a_model_reads_that_a_human_changed_the_call_it_asked_for(stage: Stage, *, fails: bool) -> None:
    made: list[Any] = []
    outcomes: list[Any] = []

    def refund(arguments: Any) -> str:
        made.append(arguments)
        if fails:
            raise ValueError("no such order")
        return "paid back"

    async def agent(ctx: RunContext) -> None:
        function = {"name": "refund", "arguments": '{"order": 17}'}
        if ctx.attempt.attempt == 1:
            calls = [{"id": "call_1", "type": "function", "function": function}]
            await ctx.append_message({"role": "assistant", "content": None, "tool_calls": calls})
        approval = await ctx.approve("refund", "refund", {"order": 17})
        try:
            result = await ctx.call("refund", approval.arguments, refund, tool_call_id="call_1", step="refund")
        except ToolCallFailed as failed:
            result = str(failed)
        outcomes.append(result)
        await ctx.ask("again", "Once more?")  # the agent is called again, and is given what was

    async with working(stage.store, {"agent": agent}):
        run = await stage.added("agent")
        await stage.reached(run, "WAITING")
        edit = {"decision": "edit", "arguments": {"order": 18}}
        await stage.runs.answer_run(run.session_id, run.run_id, edit, name="refund")
        await until(lambda: len(outcomes) == 1)
        await stage.reached(run, "WAITING")
        await stage.runs.answer_run(run.session_id, run.run_id, "no", name="again")
        assert (await stage.ended(run)).status == "COMPLETED"
    assert made == [{"order": 18}]
    assert outcomes[0] == outcomes[1]
    assert ("no such order" in outcomes[0]) if fails else (outcomes[0] == "paid back")
    context = await stage.sessions.context(run.session_id)
    (asked,) = (message for message in context.messages if message["role"] == "assistant")
    (answered,) = (message for message in context.messages if message["role"] == "tool")
    assert asked["tool_calls"][0]["function"]["arguments"] == '{"order": 17}'
    outcome = {"error": "ValueError: no such order"} if fails else {"result": "paid back"}
    told = {"note": "a human changed the arguments of this call", "arguments": {"order": 18}}
    assert json.loads(answered["content"]) == told | outcome
