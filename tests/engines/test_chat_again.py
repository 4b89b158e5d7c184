"""A chat engine that is cancelled, and one that goes on where another attempt stopped."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from satchel import Attempt, Principal, Run, RunManager, SessionManager
from satchel.engines import ChatTool
from tests.engines.chat_stage import ChatStage, error_of
from tests.engines.model_server import (
    STALL,
    asks,
    chunk,
    says,
    stream,
)
from tests.worker.stage import until


async def test_cancelling_while_the_model_speaks_keeps_what_it_said(stage: ChatStage) -> None:
    stage.model.replies.append(stream(chunk({"content": "第一句。"}), STALL))
    async with stage.working(stage.engine(timeout=30)):
        run = await stage.added("go")
        await stage.heard(run.run_id, "第一句。")
        await stage.runs.cancel_run(stage.session_id, run.run_id)
        run = await stage.ended(run)
        await until(lambda: stage.model.left)  # the endpoint notices, and stops to compute
    assert run.status == "CANCELLED"
    kept = (await stage.messages())[-1]
    assert (kept.content, kept.status) == ("第一句。", "interrupted")
    await stage.talk("go on", says("第二句。"))
    shown = [message.get("content") for message in stage.model.seen]
    assert [text for text in shown if not str(text).startswith("[session")] == [
        "go",
        "第一句。 [interrupted here]",
        "go on",
    ]


async def test_a_run_in_a_callers_own_loop_stops_as_well(stage: ChatStage) -> None:
    stage.session_id = (await stage.sessions.create_session()).session_id
    agent = SessionManager(stage.store, Principal.agent("chat", tenant_id="acme", acting_for="ada"))
    slow = [item for n in range(100) for item in (chunk({"content": f"{n} "}), 0.05)]
    stage.model.replies.append(stream(*slow, chunk(None, "stop")))
    engine = stage.engine()
    async with agent.run(stage.session_id, input="count", lease=2) as ctx:

        async def interrupt() -> None:
            await stage.heard(ctx.run.run_id, "1 ")
            await stage.runs.cancel_run(stage.session_id, ctx.run.run_id)

        await asyncio.gather(engine.run(ctx), interrupt())
    run = await stage.runs.get_run(stage.session_id, ctx.run.run_id)
    assert run.status == "CANCELLED"
    kept = (await stage.messages())[-1]
    assert kept.status == "interrupted"
    assert kept.content.startswith("0 1 ")


class Crashed:
    """An attempt that wrote what it wrote, and died."""

    def __init__(self, stage: ChatStage, run: Run) -> None:
        agent = Principal.agent("chat", tenant_id="acme", acting_for="ada")
        self.sessions = SessionManager(stage.store, agent)
        self.runs = RunManager(stage.store, agent)
        self.session_id = stage.session_id
        self.run = run
        self.attempt = Attempt(run.run_id, 1)

    async def asks(self, *calls: tuple[str, str, str]) -> None:
        asked = [
            {"id": label, "type": "function", "function": {"name": name, "arguments": arguments}}
            for label, name, arguments in calls
        ]
        await self.says(None, tool_calls=asked)

    async def says(self, text: str | None, *, interrupted: bool = False, **more: Any) -> None:
        await self.sessions.append_message(
            self.session_id,
            {"role": "assistant", "content": text, **more},
            attempt=self.attempt,
            status="interrupted" if interrupted else "complete",
        )

    async def begins(self, tool: str, label: str) -> int:
        call = await self.sessions.start_tool_call(self.session_id, tool, {}, tool_call_id=label, attempt=self.attempt)
        return call.seq

    async def ends(self, seq: int, result: Any) -> None:
        await self.sessions.finish_tool_call(self.session_id, seq, result=result, attempt=self.attempt)

    async def dies(self) -> None:
        await self.runs.hand_back_run(self.session_id, self.attempt)


async def crashed(stage: ChatStage) -> Crashed:
    run = await stage.added("go", max_attempts=3)
    made = Crashed(stage, run)
    await RunManager(stage.store, Principal.operator(tenant_id="acme")).start_run(stage.session_id, run.run_id)
    return made


async def test_after_a_crash_open_tools_run_and_the_model_is_not_asked_for_them_again(stage: ChatStage) -> None:
    ran: list[str] = []

    def one() -> str:
        ran.append("one")
        return "1"

    def two() -> str:
        ran.append("two")
        return "2"

    first = await crashed(stage)
    await first.asks(("call_0", "one", "{}"))
    await first.ends(await first.begins("one", "call_0"), "first time")
    await first.asks(("call_0", "one", "{}"), ("call_1", "two", "{}"))  # this provider counts from 0 each time
    await first.ends(await first.begins("one", "call_0"), "second time")
    await first.dies()
    stage.model.replies.append(says("done"))
    async with stage.working(stage.engine(tools=[one, two])):
        run = await stage.ended(first.run)
    assert (run.status, run.attempt) == ("COMPLETED", 2)
    assert ran == ["two"]
    assert len(stage.model.requests) == 1
    assert [m["content"] for m in stage.model.seen if m["role"] == "tool"] == ["first time", "second time", "2"]


async def test_a_tool_whose_outcome_is_unknown_runs_again_only_if_it_may(stage: ChatStage) -> None:
    ran: list[str] = []

    def pay() -> str:
        ran.append("pay")
        return "paid"

    def look() -> str:
        ran.append("look")
        return "seen"

    first = await crashed(stage)
    await first.asks(("a", "pay", "{}"), ("b", "look", "{}"))
    await first.begins("pay", "a")
    await first.begins("look", "b")
    await first.dies()
    stage.model.replies.append(says("did it work?"))
    async with stage.working(stage.engine(tools=[pay, ChatTool(look, repeatable=True)])):
        run = await stage.ended(first.run)
    assert run.status == "COMPLETED"
    assert ran == ["look"]
    shown = {m["tool_call_id"]: m["content"] for m in stage.model.seen if m["role"] == "tool"}
    assert shown["b"] == "seen"
    assert "may or may not have happened" in shown["a"]


@pytest.mark.parametrize("repeatable", [False, True])
async def test_a_tool_that_a_stopped_worker_left_in_the_middle_runs_again_only_if_it_may(
    stage: ChatStage, repeatable: bool
) -> None:
    ran: list[str] = []
    release = threading.Event()

    def pay() -> str:
        ran.append("pay")
        release.wait(10)  # nobody can stop a thread: it is paid
        return "paid"

    engine = stage.engine(tools=[ChatTool(pay, repeatable=repeatable)])
    stage.model.replies += [asks(("a", "pay", "{}")), says("did it work?")]
    async with stage.working(engine, grace=0):
        run = await stage.added("go", max_attempts=2)
        await until(lambda: ran)
    assert [call.status for call in await stage.sessions.tool_history(stage.session_id)] == ["cancelled"]
    release.set()
    async with stage.working(engine):
        run = await stage.ended(run)
    assert (run.status, run.attempt) == ("COMPLETED", 2)
    assert len(ran) == (2 if repeatable else 1)
    (shown,) = [m["content"] for m in stage.model.seen if m["role"] == "tool"]
    assert ("may or may not have happened" in shown) != repeatable


async def test_an_answer_that_was_given_is_not_given_again(stage: ChatStage) -> None:
    first = await crashed(stage)
    await first.says("the answer")
    await first.dies()
    async with stage.working(stage.engine()):
        run = await stage.ended(first.run)
    assert (run.status, run.attempt) == ("COMPLETED", 2)
    assert stage.model.requests == []
    assert [body["content"] for body in await stage.bodies()] == ["go", "the answer"]


async def test_a_partial_answer_of_a_dead_attempt_is_not_what_the_model_goes_on_from(stage: ChatStage) -> None:
    first = await crashed(stage)
    await first.says("the an", interrupted=True)
    await first.dies()
    stage.model.replies.append(says("the answer"))
    async with stage.working(stage.engine()):
        run = await stage.ended(first.run)
    assert run.status == "COMPLETED"
    assert stage.model.seen[-1]["content"] == "go"
    assert [(m.content, m.status) for m in await stage.messages()] == [
        ("go", "complete"),
        ("the an", "interrupted"),
        ("the answer", "complete"),
    ]


async def test_turns_count_over_all_attempts(stage: ChatStage) -> None:
    first = await crashed(stage)
    for number in range(3):
        await first.asks((f"c{number}", "x", "{}"))
        await first.ends(await first.begins("x", f"c{number}"), number)
    await first.dies()
    async with stage.working(stage.engine(max_turns=3)):
        run = await stage.ended(first.run)
    assert error_of(run) == ("FAILED", "turn_limit")
    assert stage.model.requests == []
