"""The tools of a chat engine."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Annotated, Any

import msgspec
import pytest

from satchel import RunContext
from satchel.engines import ChatTool, ToolFailed
from tests.engines.chat_stage import ChatStage, error_of
from tests.engines.model_server import (
    asks,
    says,
)


async def test_what_goes_wrong_with_a_tool_is_told_to_the_model(
    stage: ChatStage, caplog: pytest.LogCaptureFixture
) -> None:
    def broken() -> None:
        raise KeyError("secretly broken")

    def failing() -> None:
        raise ToolFailed("the shop is closed")

    async def slow() -> None:
        await asyncio.sleep(30)

    def unsaid() -> Any:
        return object()

    def nan() -> float:
        return float("nan")

    def count(n: int) -> int:
        return n

    tools = [broken, failing, unsaid, nan, count, ChatTool(slow, timeout=0.1)]
    wrong = {
        "a": ("broken", "{}", "secretly broken"),
        "b": ("failing", "{}", "the shop is closed"),
        "c": ("slow", "{}", "no result within 0.1 s"),
        "d": ("unsaid", "{}", "not JSON"),
        "e": ("nan", "{}", "cannot be stored"),
        "f": ("count", '{"n": "many"}', "wrong arguments"),
        "g": ("count", '{"n": 1, "m": 2}', "unknown field"),
        "h": ("count", '{"n": 1', "not a JSON object"),
        "i": ("count", "[1]", "not a JSON object"),
        "j": ("cuont", "{}", "there is no tool 'cuont'; the tools are: broken"),
        "k": ("", "{}", "there is no tool ''"),
        "l": ("count", '{"n": NaN}', "not a JSON object"),
        "m": ("count", '{"n":' + "[" * 100 + "]" * 100 + "}", "cannot be made"),
        "n": ("x" * 200, "{}", "cannot be made"),
        "o": ("count", '{"n": "7"}', "7"),  # models write numbers as text
    }
    calls = [(label, name, arguments) for label, (name, arguments, _) in wrong.items()]
    run = await stage.talk("go", asks(*calls), says("I see"), engine=stage.engine(tools=tools))
    assert run.status == "COMPLETED", run.error
    told = {body["tool_call_id"]: body["content"] for body in await stage.bodies() if body["role"] == "tool"}
    for label, (_, _, words) in wrong.items():
        assert words in told[label], label
    assert told["o"] == "7"
    sent = next(message for message in stage.model.seen if message.get("tool_calls"))
    for call in sent["tool_calls"]:
        assert isinstance(json.loads(call["function"]["arguments"]), dict)  # endpoints fall over anything else
    assert "secretly broken" in caplog.text
    assert "the shop is closed" not in caplog.text


async def test_tools_of_one_answer_run_at_once(stage: ChatStage) -> None:
    there = asyncio.Barrier(2)

    async def meet() -> str:
        await there.wait()
        return "met"

    engine = stage.engine(tools=[ChatTool(meet, timeout=5)])
    run = await stage.talk("go", asks(("a", "meet", "{}"), ("b", "meet", "{}")), says("done"), engine=engine)
    assert run.status == "COMPLETED"
    assert [body["content"] for body in await stage.bodies() if body["role"] == "tool"] == ["met", "met"]


async def test_a_tool_that_blocks_stops_no_other(stage: ChatStage) -> None:
    def block() -> str:
        time.sleep(0.3)
        return "ok"

    began = time.monotonic()
    calls = [(f"c{n}", "block", "{}") for n in range(4)]
    await stage.talk("go", asks(*calls), says("done"), engine=stage.engine(tools=[block]))
    assert time.monotonic() - began < 1.1


async def test_a_tool_may_have_the_runs_context(stage: ChatStage) -> None:
    async def remember(what: str, ctx: RunContext) -> str:
        await ctx.update_working_memory({"append": {"completed": what}})
        return "kept"

    engine = stage.engine(tools=[remember])
    assert list(engine.tools["remember"].parameters["properties"]) == ["what"]
    await stage.talk("go", asks(("a", "remember", '{"what": "the cat"}')), says("done"), engine=engine)
    assert (await stage.sessions.get_working_memory(stage.session_id)).completed == ("the cat",)


async def test_a_label_that_a_provider_gives_again_is_another_call(stage: ChatStage) -> None:
    given: list[int] = []

    def take(n: int) -> int:
        given.append(n)
        return n

    again = [asks(("call_0", "take", f'{{"n": {n}}}')) for n in range(3)]
    run = await stage.talk("go", *again, says("done"), engine=stage.engine(tools=[take]))
    assert run.status == "COMPLETED"
    assert given == [0, 1, 2]
    assert [body["content"] for body in await stage.bodies() if body["role"] == "tool"] == ["0", "1", "2"]


async def test_a_result_that_would_fill_the_window_is_kept_whole_and_shown_in_part(stage: ChatStage) -> None:
    def read() -> str:
        return "甲" * 100_000

    await stage.talk("go", asks(("a", "read", "{}")), says("done"), engine=stage.engine(tools=[read], max_tokens=8000))
    (told,) = [body["content"] for body in await stage.bodies() if body["role"] == "tool"]
    assert len(told) == 100_000
    shown = stage.model.seen[-1]
    assert (shown["role"], shown["tool_call_id"]) == ("tool", "a")
    assert 500 < len(shown["content"]) < 10_000


async def test_a_model_that_never_stops_asking_is_stopped(stage: ChatStage) -> None:
    def again() -> str:
        return "again"

    replies = [asks((f"c{n}", "again", "{}")) for n in range(5)]
    run = await stage.talk("go", *replies, engine=stage.engine(tools=[again], max_turns=3))
    assert error_of(run) == ("FAILED", "turn_limit")
    assert len(stage.model.requests) == 3


async def test_more_calls_at_once_than_anybody_needs_fail_the_run(stage: ChatStage) -> None:
    run = await stage.talk("go", asks(*((f"c{n}", "x", "{}") for n in range(65))))
    assert error_of(run) == ("FAILED", "model_malformed")


class Place(msgspec.Struct):
    city: str


def test_a_signature_becomes_a_schema() -> None:
    def weather(
        place: Place,
        days: Annotated[int, msgspec.Meta(ge=1, description="how many")] = 1,
        tags: list[str] = ["a"],  # noqa: B006  # what is tested
    ) -> None: ...

    tool = ChatTool(weather)
    assert tool.parameters["additionalProperties"] is False
    assert tool.parameters["required"] == ["place"]
    assert tool.parameters["properties"]["days"] == {
        "type": "integer",
        "minimum": 1,
        "description": "how many",
        "default": 1,
    }
    assert list(tool.parameters["$defs"]) == ["Place"]
