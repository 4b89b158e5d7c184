"""An agent's own loop around a model that asks for tools: called again from its start, it does what is left to do."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest

from satchel import Principal, RunContext, RunManager, SessionManager, ToolCallFailed
from satchel.domain.run import Attempt
from tests.worker.stage import Stage, working


def asks_for(*calls: tuple[str, str, str]) -> dict[str, Any]:
    """What a model says that wants (label, tool, arguments)."""
    asked = [{"id": label, "type": "function", "function": {"name": tool, "arguments": a}} for label, tool, a in calls]
    return {"role": "assistant", "content": None, "tool_calls": asked}


class Shop:
    """The loop of docs/agents.md. ``replies``: what its model will say, in turn; ``seen``: what it was shown."""

    def __init__(self, *replies: dict[str, Any]) -> None:
        self.replies = list(replies)
        self.seen: list[list[dict[str, Any]]] = []
        self.done: list[Any] = []

    async def refund(self, arguments: Any) -> str:
        self.done.append(arguments)
        return "paid back"

    async def run(self, ctx: RunContext) -> None:
        while True:
            for call in await ctx.pending_calls():
                arguments = call.arguments
                if call.tool == "refund":
                    approval = await ctx.approve(call.name, call.tool, arguments)
                    if not approval.is_granted:
                        no = {
                            "role": "tool",
                            "tool_call_id": call.tool_call_id,
                            "content": f"refused: {approval.reason}",
                        }
                        await ctx.append_message(no)
                        continue
                    arguments = approval.arguments
                with contextlib.suppress(ToolCallFailed):
                    await ctx.call(call.tool, arguments, self.refund, tool_call_id=call.tool_call_id)
            context = await ctx.context()
            self.seen.append(context.messages)
            answer = self.replies.pop(0)
            await ctx.append_message(answer)
            if not answer.get("tool_calls"):
                return


@pytest.mark.parametrize(
    ("answer", "done", "told"),
    [
        ({"decision": "approve"}, [{"order": 17}], "paid back"),
        ({"decision": "edit", "arguments": {"order": 18}}, [{"order": 18}], "a human changed the arguments"),
        ({"decision": "deny", "reason": "too late"}, [], "refused: too late"),
    ],
)
async def test_what_was_asked_for_before_a_question_is_done_after_its_answer(
    stage: Stage, answer: Any, done: list[Any], told: str
) -> None:
    shop = Shop(asks_for(("c1", "refund", '{"order": 17}')), {"role": "assistant", "content": "All done."})
    async with working(stage.store, {"shop": shop}):
        run = await stage.added("shop", input="Refund order 17.")
        await stage.reached(run, "WAITING")
    async with working(stage.store, {"shop": shop}):  # a day later
        await stage.runs.answer_run(run.session_id, run.run_id, answer)
        assert (await stage.ended(run)).status == "COMPLETED"
    assert shop.done == done
    assert len(shop.seen) == 2  # the model was asked once for the call, and once with its outcome
    assert told in shop.seen[1][-1]["content"]
    said = [message.role for message in await stage.sessions.messages(run.session_id)]
    assert said == ["user", "assistant", "tool", "assistant"]


async def test_a_call_that_an_attempt_died_in_is_pending_and_may_have_happened(stage: Stage) -> None:
    run = await stage.added("shop", max_attempts=2)
    sid = run.session_id
    operator = Principal.operator(tenant_id="acme")
    claimed = await RunManager(stage.store, operator).start_run(sid, run.run_id, lease=0.2)
    sessions, attempt = SessionManager(stage.store, operator), Attempt(run.run_id, claimed.attempt)
    asked = asks_for(("a", "pay", "{}"), ("b", "look", "{}"), ("c", "look", "{}"))
    await sessions.append_message(sid, asked, attempt=attempt)
    looked = await sessions.start_tool_call(sid, "look", {}, tool_call_id="c", attempt=attempt)
    await sessions.finish_tool_call(sid, looked.seq, result="seen", attempt=attempt)
    await sessions.start_tool_call(sid, "pay", {}, tool_call_id="a", attempt=attempt)  # and it dies
    found: list[tuple[str, bool]] = []

    async def agent(ctx: RunContext) -> None:
        found.extend((call.tool_call_id, call.may_have_happened) for call in await ctx.pending_calls())

    async with working(stage.store, {"shop": agent}, lease=0.6):
        ended = await stage.ended(run)
    assert (ended.status, ended.attempt) == ("COMPLETED", 2)
    assert found == [("a", True), ("b", False)]
