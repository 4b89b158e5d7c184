"""The labels that a run's messages ask for are that run's: a child's call under the same one answers none of its parent's."""

from __future__ import annotations

from typing import Any

from satchel.domain.run import Attempt
from satchel.testing.stage import ADAS_AGENT, Stage, asking
from satchel.testing.suite import StoreSuite


class ChildLabelSuite(StoreSuite):
    async def test_a_childs_call_does_not_use_up_its_parents_label(self, stage: Stage) -> None:
        sid = await stage.session()
        agent, runs = stage.sessions(ADAS_AGENT), stage.runs()
        run, attempt = await stage.started_run(sid, input="go")
        await agent.append_message(sid, asking("same"), attempt=attempt)
        child = Attempt((await runs.add_child_run(sid, attempt, goal="part")).run_id, 1)
        call: dict[str, Any] = {"tool": "t", "arguments": {}, "tool_call_id": "same"}
        await agent.append_tool_history(sid, call | {"result": "the child's"}, attempt=child)
        begun = await agent.start_tool_call(sid, "t", {}, tool_call_id="same", attempt=child)
        await agent.finish_tool_call(sid, begun.seq, result="the child's", attempt=child)
        assert (await stage.record(sid)).asked == ("same",)
        await agent.append_message(sid, asking("same"), attempt=child)  # its own
        await agent.append_tool_history(sid, call | {"result": "the child's own"}, attempt=child)
        assert (await stage.record(sid)).asked == ("same",)
        seen = (await agent.context(sid, run_id=child.run_id)).messages
        assert [message["content"] for message in seen if message["role"] == "tool"] == ["the child's own"]
        await runs.complete_run(sid, child)
        await agent.append_tool_history(sid, call | {"result": "the parent's"}, attempt=attempt)
        assert (await stage.record(sid)).asked == ()
        seen = (await agent.context(sid, run_id=run.run_id)).messages
        assert [message["content"] for message in seen if message["role"] == "tool"] == ["the parent's"]
        await runs.complete_run(sid, attempt)
        (copy,) = [
            one
            async for one in stage.sessions(ADAS_AGENT).import_sessions(
                [b"".join([piece async for piece in agent.export_sessions([sid])])]
            )
        ]
        assert (await stage.record(copy.session_id)).asked == (await stage.record(sid)).asked
