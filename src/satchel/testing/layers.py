"""A run's own layer over the session's working memory."""

from __future__ import annotations

import asyncio
from typing import Any

from satchel.domain.limits import Limits
from satchel.domain.run import Attempt, Run
from satchel.errors import InvalidInput, LimitExceeded, RunFenced, RunNotFound, VersionConflict
from satchel.testing.stage import ADA, ADAS_AGENT, Stage, refused, unchanged
from satchel.testing.suite import StoreSuite
from satchel.testing.transfer import ELSEWHERE, exported, imported


async def layered_run(stage: Stage, **options: Any) -> tuple[str, Attempt]:
    """A session with some memory, and a run with a layer, RUNNING."""
    sid = await stage.session()
    agent = stage.sessions(ADAS_AGENT)
    await agent.update_working_memory(sid, {"append": {"completed": "read app.py", "plan": ["a", "b"]}})
    memory = await agent.get_working_memory(sid)
    await agent.update_working_memory(
        sid, {"set": {"goal": "repair", "next_action": "look"}}, expected_version=memory.version
    )
    _, attempt = await stage.started_run(sid, memory="run", **options)
    return sid, attempt


async def held(stage: Stage, sid: str) -> dict[str, Any]:
    """The session's memory, without what is empty in it."""
    memory = await stage.sessions().get_working_memory(sid)
    return {name: value for name, value in memory.to_dict().items() if value}


async def somebody_sets(stage: Stage, sid: str, **fields: Any) -> None:
    agent = stage.sessions(ADAS_AGENT)
    version = (await agent.get_working_memory(sid)).version
    await agent.update_working_memory(sid, {"set": fields}, expected_version=version)


async def end(stage: Stage, sid: str, attempt: Attempt) -> Run:
    return await stage.runs().complete_run(sid, attempt)


class LayerSuite(StoreSuite):
    limits = Limits(working_memory=2_000, nodes=400)

    # -- while the run works

    async def test_what_a_run_writes_to_its_layer_is_seen_by_it_and_by_nobody_else(self, stage: Stage) -> None:
        sid, attempt = await layered_run(stage)
        agent = stage.sessions(ADAS_AGENT)
        before = await held(stage, sid)
        answer = await agent.update_working_memory(
            sid, {"append": {"completed": "installed"}, "set": {"next_action": "test"}}, attempt=attempt
        )
        assert (answer.completed, answer.next_action) == (("read app.py", "installed"), "test")
        assert await held(stage, sid) == before
        seen = await agent.get_working_memory(sid, run_id=attempt.run_id)
        assert seen == answer
        event = (await stage.log(sid))[-1]
        assert (event.kind, event.run_id) == ("run_memory_changed", attempt.run_id)
        run = await stage.runs().get_run(sid, attempt.run_id)
        layer = {"append": {"completed": ["installed"]}, "set": {"next_action": "test"}}
        assert run.working_memory == run.to_dict()["working_memory"] == layer
        assert run.to_dict()["memory"] == "run"

    async def test_a_run_without_a_layer_writes_to_the_session_and_shows_none(self, stage: Stage) -> None:
        sid = await stage.session()
        run, attempt = await stage.started_run(sid)
        await stage.sessions(ADAS_AGENT).update_working_memory(sid, {"set": {"goal": "g"}}, attempt=attempt)
        assert await held(stage, sid) == {"goal": "g"}
        assert run.memory == "session"
        assert not {"memory", "working_memory", "not_merged"} & run.to_dict().keys()

    async def test_what_others_write_meanwhile_shows_through_the_layer(self, stage: Stage) -> None:
        sid, attempt = await layered_run(stage)
        agent = stage.sessions(ADAS_AGENT)
        await agent.update_working_memory(
            sid, {"append": {"plan": "mine"}, "set": {"next_action": "mine"}}, attempt=attempt
        )
        await agent.update_working_memory(sid, {"append": {"plan": "theirs"}})
        await somebody_sets(stage, sid, goal="another")
        seen = await agent.get_working_memory(sid, run_id=attempt.run_id)
        assert (seen.plan, seen.goal, seen.next_action) == (("a", "b", "theirs", "mine"), "another", "mine")

    async def test_the_context_of_a_run_shows_its_layer_and_that_of_others_does_not(self, stage: Stage) -> None:
        sid = await stage.session()
        agent = stage.sessions(ADAS_AGENT)
        async with agent.run(sid, goal="g", memory="run") as run:
            await run.update_working_memory({"append": {"completed": "in the layer"}})
            assert (await run.working_memory()).completed == ("in the layer",)
            assert "in the layer" in str((await run.context()).messages)
            assert "in the layer" not in str((await agent.context(sid)).messages)

    async def test_replacing_the_memory_goes_into_the_layer_too(self, stage: Stage) -> None:
        sid, attempt = await layered_run(stage)
        agent = stage.sessions(ADAS_AGENT)
        answer = await agent.replace_working_memory(sid, {"goal": "anew"}, attempt=attempt)
        assert {name: value for name, value in answer.to_dict().items() if value} == {"goal": "anew"}
        assert (await held(stage, sid))["goal"] == "repair"
        await end(stage, sid, attempt)
        assert await held(stage, sid) == {"goal": "anew"}

    async def test_a_patch_that_changes_nothing_of_the_layer_changes_nothing(self, stage: Stage) -> None:
        sid, attempt = await layered_run(stage)
        agent = stage.sessions(ADAS_AGENT)
        patch = {"set": {"next_action": "test"}}
        await agent.update_working_memory(sid, patch, attempt=attempt)
        async with unchanged(stage, sid):
            await agent.update_working_memory(sid, {}, attempt=attempt)

    async def test_a_repeated_call_is_in_the_layer_once(self, stage: Stage) -> None:
        sid, attempt = await layered_run(stage)
        agent = stage.sessions(ADAS_AGENT)
        patch = {"append": {"plan": "c"}}
        await agent.update_working_memory(sid, patch, attempt=attempt, idempotency_key="k")
        async with unchanged(stage, sid):
            again = await agent.update_working_memory(sid, patch, attempt=attempt, idempotency_key="k")
        assert again.replayed
        assert again.plan == ("a", "b", "c")

    async def test_an_expected_version_speaks_of_the_memory_and_of_the_layer(self, stage: Stage) -> None:
        sid, attempt = await layered_run(stage)
        agent = stage.sessions(ADAS_AGENT)
        seen = await agent.get_working_memory(sid, run_id=attempt.run_id)
        await agent.append_message(sid, {"role": "user", "content": "in between"})
        newer = await agent.update_working_memory(
            sid, {"append": {"plan": "c"}}, attempt=attempt, expected_version=seen.version
        )
        async with refused(stage, sid, VersionConflict, expected=seen.version):
            await agent.update_working_memory(
                sid, {"append": {"plan": "d"}}, attempt=attempt, expected_version=seen.version
            )
        await agent.update_working_memory(
            sid, {"append": {"plan": "d"}}, attempt=attempt, expected_version=newer.version
        )

    async def test_the_layer_is_bounded_like_the_memory(self, stage: Stage) -> None:
        sid, attempt = await layered_run(stage)
        agent = stage.sessions(ADAS_AGENT)
        await agent.update_working_memory(sid, {"append": {"plan": "x" * 1_500}}, attempt=attempt)
        async with refused(stage, sid, LimitExceeded, limit=2_000, setting="limits.working_memory"):
            await agent.update_working_memory(sid, {"append": {"plan": "y" * 500}}, attempt=attempt)
        for number in range(50):  # what replaces what it wrote before takes no more room
            await agent.update_working_memory(sid, {"set": {"next_action": f"{number} " + "z" * 300}}, attempt=attempt)

    async def test_a_layer_holds_no_more_values_than_a_copy_can_take_at_once(self, stage: Stage) -> None:
        sid, attempt = await layered_run(stage)
        agent = stage.sessions(ADAS_AGENT)
        await agent.update_working_memory(sid, {"append": {"plan": ["x"] * 250}}, attempt=attempt)
        async with refused(stage, sid, LimitExceeded, limit=400, setting="limits.nodes"):
            await agent.update_working_memory(sid, {"append": {"plan": ["y"] * 150}}, attempt=attempt)
        await agent.update_working_memory(sid, {"append": {"plan": ["y"] * 140}}, attempt=attempt)
        await end(stage, sid, attempt)
        (report,) = await imported(stage, ELSEWHERE, [await exported(stage, ADA, sid)])
        copied = await stage.sessions(ELSEWHERE).get_working_memory(report.session_id)
        assert len(copied.plan) == 2 + 390

    async def test_only_the_attempt_that_holds_the_run_writes_to_its_layer(self, stage: Stage) -> None:
        sid, attempt = await layered_run(stage)
        await end(stage, sid, attempt)
        async with refused(stage, sid, RunFenced):
            await stage.sessions(ADAS_AGENT).update_working_memory(sid, {"append": {"plan": "late"}}, attempt=attempt)

    async def test_a_view_of_an_unknown_run_is_refused(self, stage: Stage) -> None:
        sid = await stage.session()
        async with refused(stage, sid, RunNotFound):
            await stage.sessions().get_working_memory(sid, run_id="run_unknown")
        async with refused(stage, sid, InvalidInput, field="memory"):
            await stage.runs().add_run(sid, memory="other")  # type: ignore[arg-type]  # the wrong word is the point

    # -- how it ends

    async def test_completing_merges_the_layer_in_the_same_commit(self, stage: Stage) -> None:
        sid, attempt = await layered_run(stage)
        agent = stage.sessions(ADAS_AGENT)
        await agent.update_working_memory(
            sid, {"append": {"completed": "installed"}, "remove": {"plan": "a"}}, attempt=attempt
        )
        await agent.update_working_memory(sid, {"set": {"next_action": "test", "notes": {"k": 1.5}}}, attempt=attempt)
        before = await stage.record(sid)
        run = await end(stage, sid, attempt)
        assert (await stage.record(sid)).version == before.version + 1
        assert await held(stage, sid) == {
            "goal": "repair",
            "plan": ["b"],
            "completed": ["read app.py", "installed"],
            "next_action": "test",
            "notes": {"k": 1.5},
        }
        assert (run.working_memory, run.not_merged) == ({}, {})
        merged, ended = (await stage.log(sid))[-2:]
        assert (merged.kind, merged.run_id, merged.version) == (
            "working_memory_changed",
            attempt.run_id,
            ended.version,
        )
        assert (await stage.record(sid)).changed.working_memory == ended.version

    async def test_appends_of_both_sides_are_kept(self, stage: Stage, second: Stage) -> None:
        sid, attempt = await layered_run(stage)
        await stage.sessions(ADAS_AGENT).update_working_memory(sid, {"append": {"plan": "mine"}}, attempt=attempt)
        await asyncio.gather(
            second.sessions(ADAS_AGENT).update_working_memory(sid, {"append": {"plan": "theirs"}}),
            stage.runs().complete_run(sid, attempt),
        )
        plan = (await held(stage, sid))["plan"]
        assert sorted(plan) == ["a", "b", "mine", "theirs"]

    async def test_a_field_that_somebody_else_changed_stays_and_the_run_keeps_its_own(self, stage: Stage) -> None:
        sid, attempt = await layered_run(stage)
        agent = stage.sessions(ADAS_AGENT)
        await agent.update_working_memory(
            sid,
            {"set": {"next_action": "mine", "goal": "mine"}, "append": {"completed": "mine"}, "clear": ["plan"]},
            attempt=attempt,
        )
        await agent.update_working_memory(sid, {"append": {"plan": "mine"}}, attempt=attempt)
        await somebody_sets(stage, sid, next_action="theirs", plan=["theirs"])
        run = await end(stage, sid, attempt)
        assert await held(stage, sid) == {
            "goal": "mine",
            "plan": ["theirs"],
            "completed": ["read app.py", "mine"],
            "next_action": "theirs",
        }
        kept = {"reason": "changed", "patch": {"set": {"plan": ["mine"], "next_action": "mine"}}}
        assert run.not_merged == run.to_dict()["not_merged"] == kept
        assert run.working_memory == {}
        assert (await stage.log(sid))[-1].data["not_merged"] == kept
        # The kept patch is one that can be applied.
        version = (await agent.get_working_memory(sid)).version
        await agent.update_working_memory(sid, run.not_merged["patch"], expected_version=version)
        assert (await held(stage, sid))["next_action"] == "mine"

    async def test_what_was_changed_before_the_run_first_set_it_is_no_conflict(self, stage: Stage) -> None:
        sid, attempt = await layered_run(stage)
        await somebody_sets(stage, sid, next_action="theirs")
        agent = stage.sessions(ADAS_AGENT)
        await agent.update_working_memory(sid, {"set": {"next_action": "mine"}}, attempt=attempt)
        await agent.update_working_memory(sid, {"set": {"next_action": "mine again"}}, attempt=attempt)
        run = await end(stage, sid, attempt)
        assert run.not_merged == {}
        assert (await held(stage, sid))["next_action"] == "mine again"

    async def test_both_sides_saying_the_same_is_no_conflict(self, stage: Stage) -> None:
        sid, attempt = await layered_run(stage)
        agent = stage.sessions(ADAS_AGENT)
        await agent.update_working_memory(sid, {"set": {"next_action": "same"}}, attempt=attempt)
        await somebody_sets(stage, sid, next_action="same")
        run = await end(stage, sid, attempt)
        assert run.not_merged == {}
        assert (await stage.kinds(sid))[-2:] == [
            "working_memory_changed",
            "run_ended",
        ]  # theirs: there was nothing to add

    async def test_over_the_limit_nothing_merges_and_the_run_completes_and_says_so(self, stage: Stage) -> None:
        sid, attempt = await layered_run(stage)
        agent = stage.sessions(ADAS_AGENT)
        patch = {"append": {"plan": ["x" * 1_200]}, "set": {"next_action": "test"}}
        await agent.update_working_memory(sid, patch, attempt=attempt)
        await agent.update_working_memory(sid, {"append": {"plan": "y" * 1_200}})
        before = await held(stage, sid)
        run = await end(stage, sid, attempt)
        assert run.status == "COMPLETED"
        assert await held(stage, sid) == before
        assert run.not_merged == {"reason": "limit", "patch": patch}
        assert run.working_memory == {}

    async def test_in_any_other_end_the_layer_stays_with_the_run(self, stage: Stage) -> None:
        patch = {"append": {"plan": ["mine"]}}
        for ending in ("FAILED", "CANCELLED", "lost", "closed"):
            sid, attempt = await layered_run(stage)
            before = await held(stage, sid)
            await stage.sessions(ADAS_AGENT).update_working_memory(sid, patch, attempt=attempt)
            if ending == "FAILED":
                await stage.runs().fail_run(sid, attempt, code="broken")
            elif ending == "CANCELLED":
                await stage.runs().end_cancelled_run(sid, attempt)
            elif ending == "lost":
                stage.clock.pass_time(31)
            else:
                await stage.sessions().close_session(sid)
                await stage.sessions().restore_session(sid)
            (run,) = (await stage.sessions().restore_session(sid)).runs
            assert run.is_terminal
            assert run.working_memory == patch
            assert run.not_merged == {}
            assert await held(stage, sid) == before
            seen = await stage.sessions().get_working_memory(sid, run_id=run.run_id)
            assert seen.plan == ("a", "b", "mine")

    async def test_each_attempt_begins_with_an_empty_layer(self, stage: Stage) -> None:
        sid, attempt = await layered_run(stage, max_attempts=2)
        agent = stage.sessions(ADAS_AGENT)
        patch = {"append": {"plan": ["once"]}, "set": {"next_action": "test"}}
        await agent.update_working_memory(sid, patch, attempt=attempt)
        returned = await stage.runs().hand_back_run(sid, attempt)
        assert (returned.status, returned.working_memory) == ("READY", patch)
        started = await stage.runs().start_run(sid, attempt.run_id)
        assert started.working_memory == {}
        again = Attempt(attempt.run_id, 2)
        await agent.update_working_memory(sid, patch, attempt=again)  # the engine begins at its start
        await end(stage, sid, again)
        assert (await held(stage, sid))["plan"] == ["a", "b", "once"]

    async def test_a_user_reads_the_layer_and_cannot_write_to_it(self, stage: Stage) -> None:
        sid, attempt = await layered_run(stage)
        await stage.sessions(ADAS_AGENT).update_working_memory(sid, {"append": {"plan": "mine"}}, attempt=attempt)
        run = await stage.runs(ADA).get_run(sid, attempt.run_id)
        assert run.working_memory == {"append": {"plan": ["mine"]}}
