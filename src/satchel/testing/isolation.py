"""Snapshots are frozen, and nothing that a caller holds is the store's."""

from __future__ import annotations

from typing import Any

import pytest

from satchel.testing.stage import ADAS_AGENT, Stage, said, unchanged
from satchel.testing.suite import StoreSuite


class IsolationSuite(StoreSuite):
    async def test_a_session_is_a_frozen_snapshot_that_names_the_method_to_use(self, stage: Stage) -> None:
        sid = await stage.session()
        await stage.sessions().append_message(sid, said("x"))
        shown = await stage.sessions().get_session(sid)
        attempts: tuple[tuple[Any, str], ...] = (
            (lambda: setattr(shown, "title", "t"), "rename_session"),
            (lambda: setattr(shown, "status", "CLOSED"), "close_session"),
            (lambda: setattr(shown, "metadata", {}), "update_session"),
            (lambda: setattr(shown, "messages", ()), "append_message"),
            (lambda: shown.messages.append(said("y")), "append_message"),  # type: ignore[attr-defined]  # wrong on purpose
            (shown.messages.clear, "append_message"),  # type: ignore[attr-defined]  # wrong on purpose
            (lambda: shown.tool_history.append({}), "append_tool_history"),  # type: ignore[attr-defined]  # wrong on purpose
            (lambda: shown.runs.extend([]), "add_run"),  # type: ignore[attr-defined]  # wrong on purpose
            (lambda: setattr(shown.messages[0], "seq", 9), "immutable"),
            (lambda: setattr(shown.working_memory, "goal", "x"), "update_working_memory"),
            (lambda: shown.working_memory.completed.append("x"), "update_working_memory"),  # type: ignore[union-attr]  # wrong on purpose
            (lambda: shown.working_memory.notes.update(a=1), "update_working_memory"),  # type: ignore[union-attr]  # wrong on purpose
            (lambda: shown.metadata.update(a=1), "update_session"),
            (lambda: delattr(shown, "title"), "rename_session"),
        )
        async with unchanged(stage, sid):
            for attempt, method in attempts:
                with pytest.raises(AttributeError, match=method):
                    attempt()

    async def test_a_snapshot_does_not_move_when_the_session_does(self, stage: Stage) -> None:
        sid = await stage.session(title="before")
        shown = await stage.sessions().get_session(sid)
        await stage.sessions().append_message(sid, said("x"))
        await stage.sessions().rename_session(sid, "after")
        assert (shown.title, shown.version, shown.messages) == ("before", 0, ())

    async def test_what_was_handed_in_may_change_afterwards(self, stage: Stage) -> None:
        metadata: dict[str, Any] = {"list": [1]}
        message = said([{"type": "text", "text": "a"}])
        sid = await stage.session(metadata=metadata)
        agent = stage.sessions(ADAS_AGENT)
        told = await agent.append_message(sid, message)
        arguments: dict[str, Any] = {"deep": [1]}
        await agent.append_tool_history(sid, {"tool": "t", "arguments": arguments, "result": arguments})
        metadata["list"].append(2)
        message["content"][0]["text"] = "changed behind its back"
        arguments["deep"].append(2)
        async with unchanged(stage, sid):
            shown = await agent.get_session(sid)
            assert shown.metadata == {"list": [1]}
            assert shown.messages[0].content == told.content == [{"type": "text", "text": "a"}]
            assert (shown.tool_history[0].arguments, shown.tool_history[0].result) == ({"deep": [1]}, {"deep": [1]})

    async def test_what_was_handed_out_may_change_too(self, stage: Stage) -> None:
        sid = await stage.session(metadata={"list": [1]})
        agent = stage.sessions(ADAS_AGENT)
        await agent.append_message(sid, said([{"text": "a"}]), metadata={"k": [1]})
        await agent.append_tool_history(sid, {"tool": "t", "result": [1]})
        run, _ = await stage.started_run(sid, input="x", metadata={"k": [1]})
        for _ in range(2):
            shown = await agent.get_session(sid)
            assert shown.metadata == {"list": [1]}
            assert shown.messages[0].data == said([{"text": "a"}])
            assert shown.messages[0].metadata == {"k": [1]}
            assert shown.tool_history[0].result == [1]
            assert (shown.runs[0].metadata, shown.runs[0].input) == ({"k": [1]}, said("x"))
            shown.metadata["list"].append(2)
            shown.messages[0].data["content"].clear()
            shown.messages[0].metadata["k"].clear()
            shown.tool_history[0].result.append(2)
            shown.runs[0].metadata["k"].clear()
            run.input.clear()

    async def test_json_of_a_session_holds_its_messages_as_they_came(self, stage: Stage) -> None:
        sid = await stage.session()
        await stage.sessions().append_message(sid, b'{"role":"user","content":"x","n":1.50}')
        shown = await stage.sessions().get_session(sid)
        assert b'"content":"x","n":1.50}' in shown.to_json()
        assert shown.to_dict()["messages"][0]["n"] == 1.5
