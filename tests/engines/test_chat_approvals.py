"""Tools that a human decides about."""

from __future__ import annotations

from typing import Any

import pytest

from satchel import Run
from satchel.engines import ChatTool
from tests.engines.chat_stage import ChatStage
from tests.engines.model_server import asks, says
from tests.worker.stage import until


class Shop:
    """Pays, and looks; ``done`` holds what was."""

    def __init__(self) -> None:
        self.done: list[Any] = []

    def pay(self, cents: int) -> str:
        self.done.append(cents)
        return "paid"

    def look(self) -> str:
        self.done.append("look")
        return "seen"

    @property
    def tools(self) -> list[Any]:
        return [ChatTool(self.pay, needs_approval=True), self.look]


async def asked(stage: ChatStage, run: Run) -> Run:
    async def look() -> Run | None:
        now = await stage.runs.get_run(run.session_id, run.run_id)
        return now if now.question is not None else None

    found: Run = await until(look)
    return found


@pytest.mark.parametrize(
    ("decision", "paid", "told"),
    [
        ({"decision": "approve"}, [500], "paid"),
        ({"decision": "edit", "arguments": {"cents": 500}}, [500], "paid"),  # not changed, after all
        (
            {"decision": "edit", "arguments": {"cents": 7}},
            [7],
            '{"note":"a human changed the arguments of this call","arguments":{"cents":7},"result":"paid"}',
        ),
        (
            {"decision": "edit", "arguments": [7]},
            [],
            '{"note":"a human changed the arguments of this call","arguments":[7],"error":"the arguments are not a JSON object"}',
        ),
        ({"decision": "deny", "reason": "太贵了"}, [], "a human refused this call: 太贵了"),
        ({"decision": "deny"}, [], "a human refused this call"),
    ],
)
async def test_a_human_decides(stage: ChatStage, decision: dict[str, Any], paid: list[int], told: str) -> None:
    shop = Shop()
    stage.model.replies += [asks(("a", "pay", '{"cents": 500}'), ("b", "look", "{}")), says("done")]
    async with stage.working(stage.engine(tools=shop.tools)):
        run = await stage.added("buy it")
        waiting = await asked(stage, run)
        assert shop.done == ["look"]  # what needs nobody's word does not wait
        assert waiting.question is not None
        assert "pay" in waiting.question.question
        assert '{"cents":500}' in waiting.question.question
        await stage.runs.answer_run(run.session_id, run.run_id, decision)
        run = await stage.ended(run)
    assert run.status == "COMPLETED", run.error
    assert shop.done == ["look", *paid]
    results = {body["tool_call_id"]: body["content"] for body in await stage.bodies() if body["role"] == "tool"}
    assert results == {"a": told, "b": "seen"}
    seen = {
        body["tool_call_id"]: body["content"] for body in stage.model.requests[1]["messages"] if body["role"] == "tool"
    }
    assert seen == results
    asked_for = [body["tool_calls"][0]["function"] for body in await stage.bodies() if body.get("tool_calls")]
    assert asked_for == [{"name": "pay", "arguments": '{"cents": 500}'}]  # what the model said stays as it was said
    assert len(stage.model.requests) == 2


async def test_each_call_is_decided_about_by_itself_and_once(stage: ChatStage) -> None:
    shop = Shop()
    twice = asks(("call_0", "pay", '{"cents": 1}'), ("call_1", "pay", '{"cents": 2}'))
    stage.model.replies += [twice, asks(("call_0", "pay", '{"cents": 1}')), says("done")]
    async with stage.working(stage.engine(tools=shop.tools)):
        run = await stage.added("buy")
        names = []
        for decision in ("approve", "deny", "approve"):
            question = (await asked(stage, run)).question
            assert question is not None
            names.append(question.name)
            await stage.runs.answer_run(run.session_id, run.run_id, {"decision": decision}, name=question.name)
        run = await stage.ended(run)
    assert run.status == "COMPLETED", run.error
    assert len(set(names)) == 3
    assert shop.done == [1, 1]
    assert len(stage.model.requests) == 3


async def test_what_no_function_could_take_is_not_asked_about(stage: ChatStage) -> None:
    shop = Shop()
    run = await stage.talk(
        "buy", asks(("a", "pay", "{broken"), ("b", "sell", "{}")), says("oh"), engine=stage.engine(tools=shop.tools)
    )
    assert run.status == "COMPLETED"
    assert shop.done == []
