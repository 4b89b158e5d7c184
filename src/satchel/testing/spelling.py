"""A decimal does not change: JSON that came as text is shown as JSON with its numbers as they were spelled."""

from __future__ import annotations

from typing import Any

import msgspec

from satchel.domain.run import Attempt
from satchel.testing.stage import ADAS_AGENT, Stage, asking
from satchel.testing.suite import StoreSuite

# What Python makes another spelling of, or another number.
ODD = b'{"a": 1.10,"b":[1E2,-0, 0.12345678901234567890]}'
RAW: Any = msgspec.Raw(ODD)
EVEN = b'{"a":1.5,"b":"1.10"}'


class SpellingSuite(StoreSuite):
    async def test_numbers_of_metadata_are_shown_as_they_were_spelled(self, stage: Stage) -> None:
        agent = stage.sessions(ADAS_AGENT)
        given: Any = ODD.decode()
        sid = (await agent.create_session(metadata=given)).session_id
        more: Any = '{"c":2.50}'
        await agent.update_session(sid, metadata=more)
        (listed,) = await agent.list_sessions()
        for session in (await agent.get_session(sid), listed):
            assert b'1.10,"b":[1E2,-0, 0.12345678901234567890],"c":2.50}' in session.to_json()
            assert session.metadata["a"] == 1.1
            assert msgspec.json.decode(session.to_json()) == session.to_dict()

    async def test_numbers_of_tool_calls_are_shown_as_they_were_spelled(self, stage: Stage) -> None:
        sid = await stage.session()
        agent = stage.sessions(ADAS_AGENT)
        await agent.append_message(sid, asking("label", "failing"))
        made = [
            await agent.append_tool_history(sid, {"tool": "t", "arguments": RAW, "result": RAW}),
            await agent.append_tool_history(sid, {"tool": "t", "arguments": RAW, "error": RAW}),
            await agent.append_tool_history(
                sid, {"tool": "t", "tool_call_id": "label", "arguments": RAW, "result": RAW}
            ),
            await agent.append_tool_history(
                sid, {"tool": "t", "tool_call_id": "failing", "arguments": RAW, "error": RAW}
            ),
        ]
        read = (await agent.tool_history(sid)).items
        assert list(read) == made
        for call in read:
            text = call.to_json()
            assert b'"arguments":' + ODD in text
            assert (b'"result":' if call.ok else b'"error":') + ODD in text
            assert (call.arguments["a"], (call.result or call.error)["b"][0]) == (1.1, 100.0)
            assert msgspec.json.decode(text) == call.to_dict()
            assert text in (await agent.get_session(sid)).to_json()

    async def test_numbers_of_runs_are_shown_as_they_were_spelled(self, stage: Stage) -> None:
        sid = await stage.session()
        runs = stage.runs()
        said: Any = b'{"role":"user","content":"x","n":1.10}'
        metadata: Any = ODD
        run = await runs.add_run(sid, input=said, metadata=metadata, start=True)
        attempt = Attempt(run.run_id, run.attempt)
        for shown in (run, await runs.get_run(sid, run.run_id), *(await runs.list_runs(sid)).items):
            assert b'"metadata":' + ODD in shown.to_json()
            assert msgspec.json.decode(shown.to_json()) == shown.to_dict()
        await runs.ask_question(sid, attempt, "how much", "?", schema={"type": "object"})
        await runs.answer_run(sid, run.run_id, RAW)
        again = await runs.start_run(sid, run.run_id)
        asked = await runs.ask_question(
            sid, Attempt(run.run_id, again.attempt), "how much", "?", schema={"type": "object"}
        )
        assert asked.answer["a"] == 1.1
        assert bytes(asked.spelt["answer"]) == ODD

    async def test_what_python_spells_alike_is_kept_once(self, stage: Stage) -> None:
        sid = await stage.session()
        call = await stage.sessions(ADAS_AGENT).append_tool_history(
            sid, {"tool": "t", "arguments": msgspec.Raw(EVEN), "result": "1.10"}
        )
        assert call.spelt == {}
        assert EVEN in call.to_json()
