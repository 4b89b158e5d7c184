"""Working memory: patched by field, so that two editors never both hear yes for one field."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from satchel.domain.memory import WorkingMemory
from satchel.errors import InvalidInput, RunFenced, VersionConflict, VersionRequired
from satchel.testing.stage import ADAS_AGENT, Stage, refused, said, unchanged
from satchel.testing.suite import StoreSuite

REFUSED: tuple[tuple[Any, str, str], ...] = (
    ("text", "patch", ""),
    ([], "patch", ""),
    ({"replace": {}}, "patch", "/replace"),
    ({"set": []}, "patch", "/set"),
    ({"set": {"mood": "x"}}, "working_memory", "/set/mood"),
    ({"set": {"goal": 1}}, "working_memory", "/set/goal"),
    ({"set": {"plan": "x"}}, "working_memory", "/set/plan"),
    ({"set": {"plan": ["x", 1]}}, "working_memory", "/set/plan/1"),
    ({"set": {"notes": []}}, "working_memory", "/set/notes"),
    ({"append": {"goal": "x"}}, "patch", "/append/goal"),
    ({"append": {"notes": {"k": 1}}}, "patch", "/append/notes"),
    ({"append": {"plan": [1]}}, "working_memory", "/append/plan/0"),
    ({"remove": {"next_action": "x"}}, "patch", "/remove/next_action"),
    ({"clear": "plan"}, "patch", "/clear"),
    ({"clear": ["plan", "mood"]}, "patch", "/clear/1"),
)


class MemorySuite(StoreSuite):
    async def test_a_patch_clears_removes_appends_and_sets_in_this_order(self, stage: Stage) -> None:
        sid = await stage.session()
        agent = stage.sessions(ADAS_AGENT)
        await agent.replace_working_memory(
            sid, {"goal": "old", "plan": ["a", "b", "a"], "notes": {"k": 1, "l": 2}}, expected_version=0
        )
        patched = await agent.update_working_memory(
            sid,
            {
                "set": {"next_action": "install requests"},
                "append": {"plan": ["c"], "completed": "one text is one item"},
                "remove": {"plan": "a", "notes": ["k"]},
                "clear": ["goal"],
            },
            expected_version=1,
        )
        expected = {
            "goal": "",
            "plan": ["b", "c"],
            "completed": ["one text is one item"],
            "errors": [],
            "important_files": [],
            "next_action": "install requests",
            "notes": {"l": 2},
        }
        assert (patched.to_dict(), patched.version) == (expected, 2)
        assert (await agent.get_working_memory(sid)) == patched
        cleared = await agent.update_working_memory(
            sid, {"clear": ["plan"], "append": {"plan": "anew"}, "set": {"plan": ["the last word"]}}, expected_version=2
        )
        assert cleared.plan == ("the last word",)

    async def test_notes_are_left_out_of_the_json_while_they_are_empty(self, stage: Stage) -> None:
        sid = await stage.session()
        memory = await stage.sessions().get_working_memory(sid)
        assert (memory.version, memory.is_empty) == (0, True)
        assert list(memory.to_dict()) == ["goal", "plan", "completed", "errors", "important_files", "next_action"]

    @pytest.mark.parametrize(("patch", "field", "pointer"), REFUSED, ids=range(len(REFUSED)))
    async def test_a_wrong_patch_is_refused_with_its_place(
        self, stage: Stage, patch: Any, field: str, pointer: str
    ) -> None:
        sid = await stage.session()
        async with refused(stage, sid, InvalidInput, field=field, pointer=pointer):
            await stage.sessions(ADAS_AGENT).update_working_memory(sid, patch, expected_version=0)

    async def test_set_clear_and_replace_need_a_version_and_append_and_remove_do_not(self, stage: Stage) -> None:
        sid = await stage.session()
        agent = stage.sessions(ADAS_AGENT)
        for patch in ({"set": {"goal": "x"}}, {"clear": ["goal"]}, {"append": {"plan": "x"}, "set": {"goal": "x"}}):
            async with refused(stage, sid, VersionRequired):
                await agent.update_working_memory(sid, patch)
        async with refused(stage, sid, VersionRequired):
            await agent.replace_working_memory(sid, {})
        await agent.update_working_memory(sid, {"append": {"plan": "x"}, "remove": {"completed": "y"}})

    async def test_a_stream_of_messages_does_not_starve_the_editor(self, stage: Stage) -> None:
        sid = await stage.session()
        agent = stage.sessions(ADAS_AGENT)
        read = await agent.update_working_memory(sid, {"append": {"plan": "x"}})
        for n in range(5):
            await agent.append_message(sid, said(str(n)))
        kept = await agent.update_working_memory(sid, {"set": {"goal": "x"}}, expected_version=read.version)
        assert kept.version == 7
        async with refused(stage, sid, VersionConflict, expected=read.version, current=7):
            await agent.update_working_memory(sid, {"set": {"goal": "y"}}, expected_version=read.version)
        async with refused(stage, sid, VersionConflict, expected=8, current=7):
            await agent.update_working_memory(sid, {"set": {"goal": "y"}}, expected_version=8)
        async with refused(stage, sid, VersionConflict):
            await agent.update_working_memory(sid, {"append": {"plan": "y"}}, expected_version=read.version)

    async def test_never_are_two_callers_told_yes_with_one_value_left(self, stage: Stage, second: Stage) -> None:
        sid = await stage.session()
        doors = (stage.sessions(ADAS_AGENT), second.sessions(ADAS_AGENT))
        told = await asyncio.gather(
            *(
                doors[n % 2].update_working_memory(sid, {"set": {"goal": str(n)}}, expected_version=0)
                for n in range(10)
            ),
            return_exceptions=True,
        )
        (won,) = [one for one in told if isinstance(one, WorkingMemory)]
        assert (await stage.sessions().get_working_memory(sid)).goal == won.goal
        assert sum(isinstance(one, VersionConflict) for one in told) == 9

    async def test_appends_at_once_all_land_in_commit_order(self, stage: Stage, second: Stage) -> None:
        sid = await stage.session()
        doors = (stage.sessions(ADAS_AGENT), second.sessions(ADAS_AGENT))
        told = await asyncio.gather(
            *(doors[n % 2].update_working_memory(sid, {"append": {"completed": str(n)}}) for n in range(30))
        )
        kept = (await stage.sessions().get_working_memory(sid)).completed
        assert sorted(kept, key=int) == [str(n) for n in range(30)]
        by_version = sorted(range(30), key=lambda n: told[n].version)
        assert kept == tuple(str(n) for n in by_version)

    async def test_the_run_that_has_the_turn_needs_no_version(self, stage: Stage) -> None:
        sid = await stage.session()
        agent = stage.sessions(ADAS_AGENT)
        run, attempt = await stage.started_run(sid)
        await agent.update_working_memory(sid, {"set": {"goal": "x"}}, attempt=attempt)
        await agent.replace_working_memory(sid, {"goal": "y"}, attempt=attempt)
        event = (await stage.log(sid))[-1]
        assert (event.kind, event.run_id) == ("working_memory_changed", run.run_id)
        await stage.runs().complete_run(sid, attempt)
        async with refused(stage, sid, RunFenced):
            await agent.update_working_memory(sid, {"set": {"goal": "late"}}, attempt=attempt)

    async def test_memory_holds_what_it_was_given_and_shares_nothing_with_the_caller(self, stage: Stage) -> None:
        sid = await stage.session()
        agent = stage.sessions(ADAS_AGENT)
        notes: dict[str, Any] = {"deep": {"list": [1, 2.5, None, "NUL \0 😀"]}}
        await agent.update_working_memory(sid, {"set": {"notes": notes}}, expected_version=0)
        notes["deep"]["list"].append("changed behind its back")
        read = await agent.get_working_memory(sid)
        assert read.notes == {"deep": {"list": [1, 2.5, None, "NUL \0 😀"]}}
        read.notes["deep"]["list"].clear()
        assert (await agent.get_working_memory(sid)).notes == {"deep": {"list": [1, 2.5, None, "NUL \0 😀"]}}

    async def test_a_number_in_the_notes_stays_as_it_was_written(self, stage: Stage) -> None:
        sid = await stage.session()
        agent = stage.sessions(ADAS_AGENT)
        for version, number in enumerate(
            ("1.50", "0.1234567890123456789", "9007199254740993.0", "1e-400", "-0", "1E2")
        ):
            notes = b'{"a":{"x":[%s]},"b":0.5,"c":%s}' % (number.encode(), number.encode())
            text: Any = b'{"set":{"notes":%s}}' % notes
            patched = await agent.update_working_memory(sid, text, expected_version=3 * version)
            held = patched.to_json()
            assert held.endswith(b'"notes":' + notes + b"}")
            assert patched.notes == json.loads(notes)
            without: Any = b'{"remove":{"notes":"a"}}'
            less = await agent.update_working_memory(sid, without)
            assert less.to_json().endswith(b'"notes":{"b":0.5,"c":%s}}' % number.encode())
            for read in (await agent.get_working_memory(sid), (await agent.get_session(sid)).working_memory):
                assert read is not None
                assert read.to_json() == less.to_json()
            async with unchanged(stage, sid):
                await agent.replace_working_memory(sid, less, expected_version=less.version)
            whole: Any = held
            assert (await agent.replace_working_memory(sid, whole, expected_version=less.version)).to_json() == held

    async def test_a_whole_memory_written_back_as_read_is_no_change(self, stage: Stage) -> None:
        sid = await stage.session()
        agent = stage.sessions(ADAS_AGENT)
        read = await agent.update_working_memory(sid, {"append": {"plan": ["a", "b"]}})
        async with unchanged(stage, sid):
            await agent.replace_working_memory(sid, read, expected_version=read.version)
        emptied = await agent.replace_working_memory(sid, {}, expected_version=read.version)
        assert emptied.is_empty
