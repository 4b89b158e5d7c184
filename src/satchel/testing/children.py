"""Child runs: told and counted apart, under their parent's attempt and lease."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from satchel.domain.limits import Limits
from satchel.domain.run import Attempt, Run
from satchel.engine import RunContext
from satchel.errors import (
    IllegalTransition,
    LimitExceeded,
    NotAllowed,
    RunFenced,
    RunNested,
    VersionConflict,
    VersionRequired,
)
from satchel.testing.stage import ADA, ADAS_AGENT, AGENT, BOBS_AGENT, Stage, asking, refused, said, unchanged
from satchel.testing.suite import StoreSuite


async def family(stage: Stage, **options: Any) -> tuple[str, Attempt, Attempt]:
    """A session with a RUNNING run and a child run of it: session, parent, child."""
    sid = await stage.session()
    _, parent = await stage.started_run(sid, goal="parent goal", **options)
    child = await stage.runs().add_child_run(sid, parent, goal="child goal")
    return sid, parent, Attempt(child.run_id, child.attempt)


async def run_of(stage: Stage, sid: str, attempt: Attempt) -> Run:
    return await stage.runs().get_run(sid, attempt.run_id)


class ChildSuite(StoreSuite):
    limits = Limits(open_children=3)

    # -- a run of its own

    async def test_a_child_run_is_running_at_once_and_counts_as_a_run(self, stage: Stage) -> None:
        sid = await stage.session()
        parent, attempt = await stage.started_run(sid)
        child = await stage.runs().add_child_run(sid, attempt, goal="read the logs", agent="reader", metadata={"k": 1})
        assert (child.status, child.number, child.attempt) == ("RUNNING", 2, 1)
        assert (child.goal, child.agent, child.metadata) == ("read the logs", "reader", {"k": 1})
        assert (child.parent_run_id, parent.parent_run_id) == (parent.run_id, None)
        record = await stage.record(sid)
        assert record.version == child.version == 2
        assert (record.runs, record.run_number, record.turn and record.turn.run_id) == (2, 2, parent.run_id)
        event = (await stage.log(sid))[-1]
        assert (event.kind, event.run_id, event.data["parent_run_id"]) == ("run_added", child.run_id, parent.run_id)
        assert (await stage.runs().get_run(sid, child.run_id)).to_dict() == child.to_dict()

    async def test_what_a_child_writes_is_the_childs(self, stage: Stage) -> None:
        sid, parent, child = await family(stage)
        agent, runs = stage.sessions(ADAS_AGENT), stage.runs()
        message = await agent.append_message(sid, said("found it", "assistant"), attempt=child)
        call = await agent.start_tool_call(sid, "grep", attempt=child)
        await agent.finish_tool_call(sid, call.seq, result="1 line", attempt=child)
        await runs.add_step(sid, child, "gpt", total_tokens=7)
        await runs.add_step(sid, parent, "gpt", total_tokens=5)
        assert (message.run_id, call.run_id) == (child.run_id, child.run_id)
        ended = await runs.complete_run(sid, child, stop_reason="done")
        assert (ended.status, ended.stop_reason, ended.steps, ended.usage.total_tokens) == ("COMPLETED", "done", 2, 7)
        over = await runs.complete_run(sid, parent)
        assert (over.steps, over.usage.total_tokens) == (1, 5)  # its own alone
        assert (await stage.sessions().get_session(sid)).usage.total_tokens == 12  # each counted once

    async def test_a_child_ends_by_itself_and_its_parent_goes_on(self, stage: Stage) -> None:
        sid = await stage.session()
        _, parent = await stage.started_run(sid)
        runs = stage.runs()
        waiting = await runs.add_run(sid, on_busy="queue")
        for ending in ("COMPLETED", "FAILED", "CANCELLED"):
            child = await runs.add_child_run(sid, parent)
            attempt = Attempt(child.run_id, 1)
            if ending == "COMPLETED":
                ended = await runs.complete_run(sid, attempt)
            elif ending == "FAILED":
                ended = await runs.fail_run(sid, attempt, code="broken")
            else:
                ended = await runs.end_cancelled_run(sid, attempt)
            assert ended.status == ending
            async with refused(stage, sid, RunFenced, run_id=child.run_id):
                await runs.complete_run(sid, attempt)
        record = await stage.record(sid)
        assert record.turn is not None
        assert (record.turn.run_id, record.turn.status, record.children) == (parent.run_id, "RUNNING", ())
        assert [one.run_id for one in record.queue] == [waiting.run_id]
        await runs.complete_run(sid, parent)

    async def test_children_are_listed_by_their_parent(self, stage: Stage) -> None:
        sid, parent, child = await family(stage)
        runs = stage.runs()
        other = await runs.add_child_run(sid, parent)
        await runs.complete_run(sid, child)
        listed = await runs.list_runs(sid, parent_run_id=parent.run_id)
        assert [run.run_id for run in listed] == [other.run_id, child.run_id]
        first = await runs.list_runs(sid, parent_run_id=parent.run_id, limit=1)
        rest = await runs.list_runs(sid, parent_run_id=parent.run_id, limit=1, cursor=first.next)
        assert [run.run_id for run in (*first, *rest)] == [other.run_id, child.run_id]
        open_ones = await runs.list_runs(sid, parent_run_id=parent.run_id, status="RUNNING")
        assert [run.run_id for run in open_ones] == [other.run_id]
        assert (await runs.list_runs(sid, parent_run_id=child.run_id)).items == ()
        assert (await runs.list_runs(sid, run_id=child.run_id, parent_run_id=child.run_id)).items == ()

    # -- what it cannot have

    async def test_a_child_has_no_turn_and_no_lease_and_no_children(self, stage: Stage) -> None:
        sid, parent, child = await family(stage)
        runs = stage.runs()
        async with refused(stage, sid, RunFenced, run_id=child.run_id):
            await runs.renew_run(sid, child)
        async with refused(stage, sid, RunFenced, run_id=child.run_id):
            await runs.complete_run(sid, Attempt(child.run_id, 2))
        async with refused(stage, sid, RunNested, run_id=child.run_id):
            await runs.add_child_run(sid, child)
        async with refused(stage, sid, IllegalTransition, current="RUNNING", wanted="READY"):
            await runs.hand_back_run(sid, child)
        async with refused(stage, sid, IllegalTransition, current="RUNNING", wanted="RUNNING"):
            await runs.start_run(sid, child.run_id)
        async with unchanged(stage, sid):
            await runs.keep_waiting(sid, child.run_id)
        assert parent.run_id == (await stage.sessions().get_session(sid)).active_run_id

    async def test_a_parent_is_needed_and_an_agent(self, stage: Stage) -> None:
        sid, parent, _ = await family(stage)
        async with refused(stage, sid, NotAllowed):
            await stage.runs(ADA).add_child_run(sid, parent)
        async with refused(stage, sid, RunFenced):
            await stage.runs().add_child_run(sid, Attempt(parent.run_id, 2))
        await stage.runs().complete_run(sid, parent)
        async with refused(stage, sid, RunFenced):
            await stage.runs().add_child_run(sid, parent)

    async def test_so_many_children_are_open_at_most(self, stage: Stage) -> None:
        sid, parent, child = await family(stage)
        runs = stage.runs()
        for _ in range(2):
            await runs.add_child_run(sid, parent)
        async with refused(stage, sid, LimitExceeded, size=4, limit=3, setting="limits.open_children"):
            await runs.add_child_run(sid, parent)
        await runs.complete_run(sid, child)
        await runs.add_child_run(sid, parent)

    async def test_a_repeated_call_adds_one_child(self, stage: Stage) -> None:
        sid, parent, _ = await family(stage)
        first = await stage.runs().add_child_run(sid, parent, goal="g", idempotency_key="k")
        async with unchanged(stage, sid):
            again = await stage.runs().add_child_run(sid, parent, goal="g", idempotency_key="k")
        assert (again.run_id, again.replayed, first.replayed) == (first.run_id, True, False)

    async def test_one_childs_calls_are_not_anothers_to_finish(self, stage: Stage) -> None:
        sid, parent, child = await family(stage)
        agent = stage.sessions(ADAS_AGENT)
        call = await agent.start_tool_call(sid, "t", attempt=child)
        async with refused(stage, sid, RunFenced, run_id=child.run_id):
            await agent.finish_tool_call(sid, call.seq, attempt=parent)

    # -- the block

    async def test_a_block_ends_its_child(self, stage: Stage) -> None:
        sid = await stage.session()
        runs = stage.runs()
        async with stage.sessions(ADAS_AGENT).run(sid) as run:
            async with run.child("fine", agent="reader", metadata={"k": 1}) as child:
                await child.append_message(said("found it", "assistant"))
                child.stop("found")
            with pytest.raises(ZeroDivisionError):
                async with run.child("raises") as broken:
                    raise ZeroDivisionError("by zero")
            with pytest.raises(RunNested):
                async with run.child("outer") as outer, outer.child("inner"):
                    pass
            waiting = asyncio.Event()

            async def forever() -> None:
                async with run.child("cancelled"):
                    waiting.set()
                    await asyncio.sleep(60)

            task = asyncio.create_task(forever())
            await waiting.wait()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            assert (await stage.record(sid)).children == ()
        shown = {one.goal: one for one in await runs.list_runs(sid, parent_run_id=run.run.run_id)}
        assert {goal: (one.status, one.stop_reason) for goal, one in shown.items()} == {
            "fine": ("COMPLETED", "found"),
            "raises": ("FAILED", "error"),
            "outer": ("FAILED", "error"),
            "cancelled": ("CANCELLED", "cancelled"),
        }
        assert (shown["fine"].agent, shown["fine"].metadata) == ("reader", {"k": 1})
        error = shown["raises"].error
        assert error is not None
        assert (error.code, error.message, broken.run.run_id) == (
            "agent_error",
            "ZeroDivisionError: by zero",
            shown["raises"].run_id,
        )

    async def test_children_work_side_by_side(self, stage: Stage) -> None:
        sid = await stage.session()

        async def part(run: RunContext, goal: str) -> None:
            async with run.child(goal) as child:
                for number in range(3):
                    await child.append_message(said(f"{goal} {number}", "assistant"))
                    async with child.tool("t", {"goal": goal}) as call:
                        call.result = number

        async with stage.sessions(ADAS_AGENT).run(sid) as run:
            await asyncio.gather(*(part(run, goal) for goal in ("a", "b", "c")))
        runs = await stage.runs().list_runs(sid, parent_run_id=run.run.run_id)
        for one in runs:
            told = [message.content for message in await stage.sessions().messages(sid, run_id=one.run_id)]
            assert told == [f"{one.goal} {number}" for number in range(3)]
            assert (one.status, one.steps) == ("COMPLETED", 3)

    # -- what is shown to whom

    async def test_a_context_leaves_out_what_child_runs_said_and_a_childs_holds_its_own(self, stage: Stage) -> None:
        sid = await stage.session()
        agent = stage.sessions(ADAS_AGENT)
        await stage.sessions(AGENT).append_message(sid, said("be brief", "system"))
        await agent.update_working_memory(sid, {"append": {"completed": "read app.py"}})
        async with agent.run(sid, goal="parent goal", input="parent question") as run:
            await run.append_message(said("parent answer", "assistant"))
            async with run.child("child goal") as child, run.child("sibling goal") as sibling:
                await child.append_message(asking("c"))
                async with child.tool("child_tool", tool_call_id="c") as call:
                    call.result = "child result"
                await child.append_message(said("child answer", "assistant"))
                await sibling.append_message(said("sibling answer", "assistant"))
                seen = (await child.context()).messages
                parents = str((await run.context()).messages)
        later = str((await agent.context(sid)).messages)
        for text in ("be brief", "read app.py", "parent goal", "parent question", "parent answer"):
            assert text in parents
            assert text in later
        for text in ("child result", "child answer", "child_tool", "sibling"):
            assert text not in parents
            assert text not in later
        assert seen[0] == said("be brief", "system")
        assert [message["role"] for message in seen] == ["system", "user", "assistant", "tool", "assistant"]
        preamble = str(seen[1])
        for text in ("read app.py", "parent goal", "child goal"):
            assert text in preamble
        for text in ("parent question", "parent answer", "sibling"):
            assert text not in str(seen)

    async def test_many_child_runs_hide_nothing_of_the_conversation(self, stage: Stage) -> None:
        sid = await stage.session()
        agent = stage.sessions(ADAS_AGENT)
        async with agent.run(sid, goal="first goal", input="first question") as run:
            for number in range(120):
                async with run.child(f"part {number}") as child:
                    await child.append_message(said("z" * 200, "assistant"))
            assert "first goal" in str((await run.context()).messages)
        async with agent.run(sid, goal="second goal", input="second question") as run, run.child("last"):
            context = await run.context(max_tokens=1_000)
        shown = str(context.messages)
        for text in ("first question", "second question", "second goal"):
            assert text in shown
        assert "zzz" not in shown
        assert context.dropped == 0

    async def test_a_follower_of_the_parent_sees_the_parents_events(self, stage: Stage) -> None:
        sid, parent, child = await family(stage)
        await stage.runs().add_step(sid, child, "gpt")
        await stage.runs().add_step(sid, parent, "gpt")
        await stage.runs().complete_run(sid, parent)
        followed = [event async for event in stage.sessions().follow(sid, after=0, run_id=parent.run_id)]
        assert [event.kind for event in followed] == ["run_added", "run_started", "run_step", "run_ended"]
        followed = [event async for event in stage.sessions().follow(sid, after=0, run_id=child.run_id)]
        assert [event.kind for event in followed] == ["run_added", "run_step", "run_ended"]

    # -- working memory

    async def test_a_child_appends_freely_and_sets_with_a_version(self, stage: Stage) -> None:
        sid, _, child = await family(stage)
        agent = stage.sessions(ADAS_AGENT)
        memory = await agent.update_working_memory(sid, {"append": {"plan": "c"}}, attempt=child)
        async with refused(stage, sid, VersionRequired):
            await agent.update_working_memory(sid, {"set": {"goal": "c"}}, attempt=child)
        await agent.update_working_memory(sid, {"set": {"goal": "c"}}, attempt=child, expected_version=memory.version)
        assert [event.run_id for event in await stage.log(sid)][-2:] == [child.run_id, child.run_id]

    async def test_a_child_writes_to_its_parents_layer(self, stage: Stage) -> None:
        sid = await stage.session()
        agent = stage.sessions(ADAS_AGENT)
        async with agent.run(sid, memory="run") as run:
            await run.update_working_memory({"append": {"plan": "of the parent"}})
            async with run.child("c") as child, run.child("d") as sibling:
                memory = await child.update_working_memory({"append": {"plan": "of the child"}})
                assert memory.plan == (await sibling.working_memory()).plan == ("of the parent", "of the child")
                assert "of the child" in str((await sibling.context()).messages[0])
                with pytest.raises(VersionRequired):
                    await sibling.update_working_memory({"set": {"goal": "g"}})
                await sibling.update_working_memory({"append": {"plan": "of the sibling"}})
                with pytest.raises(VersionConflict):  # of two siblings one is told so
                    await child.update_working_memory({"set": {"goal": "g"}}, expected_version=memory.version)
            assert (await agent.get_working_memory(sid)).is_empty
        assert (await agent.get_working_memory(sid)).plan == ("of the parent", "of the child", "of the sibling")

    # -- copies

    @pytest.mark.parametrize("ending", ["open", "completed"])
    async def test_child_runs_and_layers_come_over_whole(self, stage: Stage, ending: str) -> None:
        sid = await stage.session(external_id="chat")
        agent, runs = stage.sessions(ADAS_AGENT), stage.runs()
        _, attempt = await stage.started_run(sid, memory="run")
        for number in range(2):
            child = await runs.add_child_run(sid, attempt, goal=f"child {number}", metadata={"k": number})
            mine = Attempt(child.run_id, 1)
            await agent.update_working_memory(sid, {"append": {"plan": f"c{number}"}}, attempt=mine)
            await agent.append_message(sid, said("of the child", "assistant"), attempt=mine)
            await runs.cancel_run(sid, child.run_id)
            if number == 0:
                await runs.end_cancelled_run(sid, mine)
        await agent.update_working_memory(sid, {"set": {"goal": "mine"}}, attempt=attempt)
        memory = await agent.get_working_memory(sid)
        await agent.update_working_memory(sid, {"set": {"goal": "theirs"}}, expected_version=memory.version)
        if ending == "completed":
            await runs.complete_run(sid, attempt)
        exported = b"".join([piece async for piece in agent.export_sessions([sid])])
        (imported,) = [one async for one in stage.sessions(BOBS_AGENT).import_sessions([exported])]
        fork = await agent.fork_session(sid)
        there = [one.to_dict() | {"session_id": ""} for one in await runs.list_runs(sid)]
        for who, copy in ((BOBS_AGENT, imported.session_id), (ADAS_AGENT, fork.session_id)):
            here = [one.to_dict() | {"session_id": ""} for one in await stage.runs(who).list_runs(copy)]
            if ending == "open":
                ended = [(one["goal"], one["status"], one["stop_reason"]) for one in here]
                assert ended == [
                    ("child 1", "FAILED", "moved"),
                    ("child 0", "CANCELLED", "cancelled"),
                    ("", "FAILED", "moved"),
                ]
                assert here[-1]["working_memory"] == {"append": {"plan": ["c0", "c1"]}, "set": {"goal": "mine"}}
            else:
                assert here == there
                assert here[-1]["not_merged"] == {"reason": "changed", "patch": {"set": {"goal": "mine"}}}
            held = await stage.sessions(who).get_working_memory(copy)
            assert held.to_dict() == (await agent.get_working_memory(sid)).to_dict()
            assert (await stage.record(copy)).child_runs == 2
