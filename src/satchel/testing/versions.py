"""Versions: two writers, one of them hears about it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

import pytest

from satchel.errors import InvalidInput, SatchelError, VersionConflict
from satchel.testing.stage import ADAS_AGENT, ADMIN, Stage, refused, said, unchanged
from satchel.testing.suite import StoreSuite
from satchel.testing.wrappers import RivalStore


class VersionSuite(StoreSuite):
    async def test_two_callers_that_read_the_same_version_one_wins_and_one_hears(
        self, stage: Stage, second: Stage
    ) -> None:
        sid = await stage.session()
        for n in range(3):
            await stage.sessions().append_message(sid, said(str(n)))
        told = await asyncio.gather(
            stage.sessions().append_message(sid, said("mine"), expected_version=3),
            second.sessions().append_message(sid, said("yours"), expected_version=3),
            return_exceptions=True,
        )
        (won,) = [one for one in told if not isinstance(one, BaseException)]
        (lost,) = [one for one in told if isinstance(one, BaseException)]
        assert won.version == 4
        assert isinstance(lost, VersionConflict)
        assert (lost.expected, lost.current, lost.changed) == (3, 4, ("messages",))
        assert (await stage.record(sid)).version == 4

    async def test_every_write_checks_its_expected_version_and_stores_nothing(self, stage: Stage) -> None:
        sid = await stage.session()
        agent, runs = stage.sessions(ADAS_AGENT), stage.runs()
        await agent.append_message(sid, said("x"))
        opened = await agent.start_tool_call(sid, "t", {})
        run = await runs.add_run(sid)
        stale: tuple[Awaitable[Any], ...] = (
            agent.append_message(sid, said("y"), expected_version=1),
            agent.append_messages(sid, [said("y")], expected_version=1),
            agent.retract_message(sid, 1, expected_version=1),
            agent.append_tool_history(sid, {"tool": "t"}, expected_version=1),
            agent.start_tool_call(sid, "t", expected_version=1),
            agent.finish_tool_call(sid, opened.seq, expected_version=1),
            agent.update_session(sid, title="y", expected_version=1),
            agent.rename_session(sid, "y", expected_version=1),
            agent.close_session(sid, expected_version=1),
            agent.restore_session(sid, expected_version=1),
            agent.delete_session(sid, expected_version=1),
            stage.sessions(ADMIN).expire_session(sid, expected_version=1),
            stage.sessions(ADMIN).transfer_session(sid, "bob", expected_version=1),
            runs.add_run(sid, on_busy="queue", expected_version=1),
            runs.cancel_run(sid, run.run_id, expected_version=1),
        )
        for write in stale:
            async with refused(stage, sid, VersionConflict, expected=1, current=3, changed=("tool_history", "runs")):
                await write
        for future in (4, 99):
            async with refused(stage, sid, VersionConflict, expected=future, current=3, changed=()):
                await agent.append_message(sid, said("y"), expected_version=future)
        for wrong in (-1, 1.0, "3", True):
            async with refused(stage, sid, InvalidInput, field="expected_version"):
                await agent.append_message(sid, said("y"), expected_version=wrong)  # type: ignore[arg-type]  # wrong on purpose

    async def test_changed_names_the_parts_that_changed_since(self, stage: Stage) -> None:
        sid = await stage.session()
        agent = stage.sessions(ADAS_AGENT)
        await agent.append_message(sid, said("x"))  # 1
        await agent.append_tool_history(sid, {"tool": "t"})  # 2
        await stage.runs().add_run(sid)  # 3
        await agent.update_working_memory(sid, {"append": {"plan": "x"}})  # 4
        await agent.update_session(sid, metadata={"k": 1})  # 5
        await agent.rename_session(sid, "t")  # 6
        await agent.close_session(sid)  # 7: its run ends too
        await agent.restore_session(sid)  # 8
        parts = ("messages", "tool_history", "runs", "working_memory", "metadata", "title", "status")
        last = {
            "messages": 1,
            "tool_history": 2,
            "working_memory": 4,
            "metadata": 5,
            "title": 6,
            "runs": 7,
            "status": 8,
        }
        for expected in range(8):
            changed = tuple(part for part in parts if last[part] > expected)
            async with refused(stage, sid, VersionConflict, current=8, changed=changed):
                await agent.append_message(sid, said("y"), expected_version=expected)

    async def test_a_conflict_is_merged_and_tried_again(self, stage: Stage) -> None:
        sid = await stage.session()
        agent = stage.sessions(ADAS_AGENT)
        read = await agent.get_working_memory(sid)
        await agent.update_working_memory(sid, {"set": {"goal": "theirs"}}, expected_version=read.version)
        with pytest.raises(VersionConflict) as met:
            await agent.update_working_memory(sid, {"set": {"goal": "mine"}}, expected_version=read.version)
        again = await agent.get_working_memory(sid)
        assert (again.goal, again.version) == ("theirs", met.value.current)
        merged = await agent.update_working_memory(
            sid, {"set": {"goal": f"{again.goal} and mine"}}, expected_version=again.version
        )
        assert merged.goal == "theirs and mine"

    async def test_what_changes_nothing_moves_neither_version_nor_time(self, stage: Stage) -> None:
        sid = await stage.session(title="t", metadata={"k": 1})
        _, attempt = await stage.started_run(sid)
        stage.clock.pass_time(5)
        before = await stage.record(sid)
        await stage.runs().renew_run(sid, attempt)
        await stage.sweep()
        after = await stage.record(sid)
        assert (after.version, after.updated_at, after.last_seq) == (before.version, before.updated_at, before.last_seq)
        if not stage.draws_keys:
            assert after.revision == before.revision + 1  # the renewal alone
        async with unchanged(stage, sid):
            await stage.sessions().get_session(sid)
            await stage.sessions().update_session(sid, title="t", metadata={"k": 1})
            await stage.sessions().update_session(sid, metadata={"absent": None})
            await stage.sessions(ADMIN).transfer_session(sid, "ada")
            await stage.sessions(ADAS_AGENT).update_working_memory(sid, {"remove": {"plan": "absent"}})
            await stage.sessions(ADAS_AGENT).update_working_memory(sid, {})

    async def test_title_and_metadata_change_in_one_version_by_merge_patch(self, stage: Stage) -> None:
        sid = await stage.session(metadata={"a": {"x": 1, "y": 2}, "b": 1})
        shown = await stage.sessions().update_session(
            sid, title="广告收入", metadata={"a": {"x": None, "z": 3}, "b": None, "c": "n"}
        )
        assert (shown.version, shown.title, shown.metadata) == (1, "广告收入", {"a": {"y": 2, "z": 3}, "c": "n"})
        assert await stage.kinds(sid) == ["title_changed", "metadata_changed"]

    async def test_a_stale_decision_is_taken_again_on_what_is_there(self, stage: Stage) -> None:
        """A rival appends between load and commit: with an expected version the caller hears, without one both land."""
        sid = await stage.session()
        racing = RivalStore(stage.store)
        slow = Stage(racing, stage.clock)

        async def append() -> None:
            await stage.sessions().append_message(sid, said("rival"))

        racing.rival = append
        told = await slow.sessions().append_message(sid, said("mine"))
        assert (told.seq, told.version) == (2, 2)
        racing.rival = append
        with pytest.raises(VersionConflict) as met:
            await slow.sessions().append_message(sid, said("mine"), expected_version=2)
        assert met.value.current == 3
        assert [message.content for message in await stage.sessions().messages(sid)] == ["rival", "mine", "rival"]

    async def test_a_session_made_again_under_the_same_name_is_not_taken_for_the_old_one(self, stage: Stage) -> None:
        first = await stage.sessions().create_session(external_id="chat")
        revisions = {(await stage.record(first.session_id)).revision}
        for _ in range(3):
            made = await stage.session()
            revisions.add((await stage.record(made)).revision)
        assert len(revisions) == 4, "the first revision is drawn at random"

    async def test_one_bad_call_does_not_fail_its_neighbours(self, stage: Stage) -> None:
        good, bad = await stage.session(), await stage.session()
        await stage.sessions().close_session(bad)
        told = await asyncio.gather(
            *(stage.sessions().append_message(sid, said("x")) for sid in (good, bad, good, bad, good)),
            return_exceptions=True,
        )
        assert [isinstance(one, SatchelError) for one in told] == [False, True, False, True, False]
        assert (await stage.record(good)).last_seq == 3
