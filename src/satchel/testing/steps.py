"""Named tool calls: what a run did under a name it does once."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from satchel.domain.run import Attempt
from satchel.domain.tool_call import ToolCall
from satchel.engine import RunContext
from satchel.errors import InvalidInput, LimitExceeded, RunFenced, StepOpen, ToolCallFailed
from satchel.testing.stage import ADA, ADAS_AGENT, Stage, asking, refused, unchanged
from satchel.testing.suite import StoreSuite
from satchel.testing.transfer import ELSEWHERE, exported, imported


class StepSuite(StoreSuite):
    async def next_attempt(self, stage: Stage, sid: str, attempt: Attempt) -> Attempt:
        await stage.runs().hand_back_run(sid, attempt)
        return Attempt(attempt.run_id, (await stage.runs().start_run(sid, attempt.run_id)).attempt)

    @pytest.mark.parametrize("outcome", [{"result": {"rows": [1, None]}}, {"result": None}, {"error": "broken"}])
    async def test_an_outcome_is_given_to_every_later_attempt(self, stage: Stage, outcome: dict[str, Any]) -> None:
        sid = await stage.session()
        agent = stage.sessions(ADAS_AGENT)
        _, attempt = await stage.started_run(sid, max_attempts=5)
        call = await agent.start_tool_call(sid, "count", {"of": "rows"}, step="count rows", attempt=attempt)
        assert (call.step, call.is_open) == ("count rows", True)
        await agent.finish_tool_call(sid, call.seq, **outcome, attempt=attempt)
        for _ in range(2):
            async with unchanged(stage, sid):
                again = await agent.start_tool_call(sid, "count", {"of": "rows"}, step="count rows", attempt=attempt)
            assert (again.seq, again.ok, again.is_open) == (call.seq, "result" in outcome, False)
            assert (again.result, again.error) == (outcome.get("result"), outcome.get("error"))
            assert (again.step, again.replayed, again.arguments) == ("count rows", True, {"of": "rows"})
            attempt = await self.next_attempt(stage, sid, attempt)
        (kept,) = await agent.tool_history(sid)
        assert (kept.seq, kept.step, kept.to_dict()["step"]) == (call.seq, "count rows", "count rows")

    async def test_the_name_decides_whatever_is_called_in_a_later_attempt(self, stage: Stage) -> None:
        sid = await stage.session()
        agent = stage.sessions(ADAS_AGENT)
        _, attempt = await stage.started_run(sid, max_attempts=2)
        await agent.append_tool_history(sid, {"tool": "t", "step": "s", "result": 1}, attempt=attempt)
        attempt = await self.next_attempt(stage, sid, attempt)
        again = await agent.start_tool_call(sid, "t", {"at": "another time"}, step="s", attempt=attempt)
        assert (again.result, again.arguments) == (1, None)

    async def test_what_was_cancelled_or_is_unknown_is_made_again(self, stage: Stage) -> None:
        sid = await stage.session()
        agent = stage.sessions(ADAS_AGENT)
        _, attempt = await stage.started_run(sid, max_attempts=3)
        first = await agent.start_tool_call(sid, "t", step="s", attempt=attempt)
        await agent.finish_tool_call(sid, first.seq, cancelled=True, attempt=attempt)
        second = await agent.start_tool_call(sid, "t", step="s", attempt=attempt)
        attempt = await self.next_attempt(stage, sid, attempt)  # it ends as unknown
        third = await agent.start_tool_call(sid, "t", step="s", attempt=attempt)
        assert (third.is_open, third.repeat_of) == (True, second.seq)
        await agent.finish_tool_call(sid, third.seq, result=3, attempt=attempt)
        assert (await agent.start_tool_call(sid, "t", step="s", attempt=attempt)).seq == third.seq
        assert [call.status for call in await agent.tool_history(sid)] == ["cancelled", "unknown", "succeeded"]

    async def test_one_call_at_a_time_has_a_steps_name(self, stage: Stage, second: Stage) -> None:
        sid = await stage.session()
        _, attempt = await stage.started_run(sid)
        told = await asyncio.gather(
            *(
                door.sessions(ADAS_AGENT).start_tool_call(sid, "t", {"n": n}, step="s", attempt=attempt)
                for n, door in enumerate((stage, second, stage))
            ),
            return_exceptions=True,
        )
        (won,) = [one for one in told if isinstance(one, ToolCall)]
        assert sorted(one.seq for one in told if isinstance(one, StepOpen)) == [won.seq] * 2
        agent = stage.sessions(ADAS_AGENT)
        async with refused(stage, sid, StepOpen, step="s", seq=won.seq):
            await agent.append_tool_history(sid, {"tool": "t", "step": "s", "result": 1}, attempt=attempt)
        await agent.start_tool_call(sid, "t", step="another", attempt=attempt)

    async def test_a_steps_name_is_its_runs_own(self, stage: Stage) -> None:
        sid, other = await stage.session(), await stage.session()
        agent = stage.sessions(ADAS_AGENT)
        seqs = []
        for place in (sid, sid, other):
            _, attempt = await stage.started_run(place)
            call = await agent.start_tool_call(place, "t", step="s", attempt=attempt)
            assert call.is_open
            await agent.finish_tool_call(place, call.seq, result=1, attempt=attempt)
            seqs.append(call.seq)
            await stage.runs().complete_run(place, attempt)
        assert len(set(seqs[:2])) == 2

    async def test_a_step_that_a_message_answered_has_its_result(self, stage: Stage) -> None:
        sid = await stage.session()
        agent = stage.sessions(ADAS_AGENT)
        _, attempt = await stage.started_run(sid, max_attempts=2)
        await agent.append_message(sid, asking("c1", "c2"), attempt=attempt)
        call = await agent.start_tool_call(sid, "t", step="one", tool_call_id="c1", attempt=attempt)
        await agent.finish_tool_call(sid, call.seq, result={"rows": 1}, attempt=attempt)
        recorded = {"tool": "t", "step": "two", "tool_call_id": "c2", "error": "x"}
        await agent.append_tool_history(sid, recorded, attempt=attempt)
        attempt = await self.next_attempt(stage, sid, attempt)
        async with unchanged(stage, sid):
            one = await agent.start_tool_call(sid, "t", step="one", tool_call_id="c9", attempt=attempt)
            two = await agent.append_tool_history(sid, recorded, attempt=attempt)
        assert (one.result, one.tool_call_id, two.error) == ({"rows": 1}, "c1", "x")

    async def test_a_repeated_call_under_a_key_is_told_as_it_was_first(self, stage: Stage) -> None:
        sid = await stage.session()
        agent = stage.sessions(ADAS_AGENT)
        _, attempt = await stage.started_run(sid)
        first = await agent.start_tool_call(sid, "t", step="s", attempt=attempt, idempotency_key="k1")
        await agent.finish_tool_call(sid, first.seq, result=1, attempt=attempt)
        again = await agent.start_tool_call(sid, "t", step="s", attempt=attempt, idempotency_key="k1")
        assert (again.replayed, again.is_open, again.seq) == (True, True, first.seq)
        for _ in range(2):
            given = await agent.start_tool_call(sid, "t", step="s", attempt=attempt, idempotency_key="k2")
            assert (given.seq, given.result) == (first.seq, 1)

    async def test_a_tool_that_is_left_while_its_call_is_written_leaves_no_call_open(self, stage: Stage) -> None:
        sid = await stage.session()
        ran = 0

        async def use(run: RunContext) -> None:
            nonlocal ran
            async with run.tool("t", {"a": 1}, tool_call_id="call-1", step="s") as call:
                ran += 1
                await asyncio.sleep(60)
                call.result = "late"

        async with stage.sessions(ADAS_AGENT).run(sid) as run:
            for turns in range(12):
                using = asyncio.create_task(use(run))
                for _ in range(turns):
                    await asyncio.sleep(0)
                using.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await using
                assert (await stage.record(sid)).open_calls == ()
            async with run.tool("t", {"a": 1}, tool_call_id="call-1", step="s") as call:
                assert not call.is_replayed
                call.result = "done"
        *left, last = [call.status for call in await stage.sessions().tool_history(sid)]
        assert (set(left), last) == ({"cancelled"}, "succeeded")
        assert ran < len(left)  # some were written, and left before they ran

    async def test_a_wrong_step_is_refused_by_name(self, stage: Stage) -> None:
        sid = await stage.session()
        agent = stage.sessions(ADAS_AGENT)
        _, attempt = await stage.started_run(sid)
        for step in ("", 5, "a\nb", "\ud800", True, ["s"]):
            async with refused(stage, sid, InvalidInput, field="step"):
                await agent.start_tool_call(sid, "t", step=step, attempt=attempt)  # type: ignore[arg-type]  # wrong
            async with refused(stage, sid, InvalidInput, field="call"):
                await agent.append_tool_history(sid, {"tool": "t", "step": step}, attempt=attempt)
        async with refused(stage, sid, LimitExceeded, field="step", setting="limits.id"):
            await agent.start_tool_call(sid, "t", step="x" * 129, attempt=attempt)
        async with refused(stage, sid, InvalidInput, field="step"):
            await agent.start_tool_call(sid, "t", step="of no run")
        async with refused(stage, sid, RunFenced):
            await agent.start_tool_call(sid, "t", step="s", attempt=Attempt(attempt.run_id, 7))

    async def test_a_function_runs_once_under_a_steps_name(self, stage: Stage) -> None:
        sid = await stage.session()
        ran: list[Any] = []

        def count(arguments: Any) -> tuple[int, ...]:
            ran.append(arguments)
            return (1, 2)

        async def slowly(arguments: Any) -> str:
            await asyncio.sleep(0)
            ran.append(arguments)
            return "slow"

        async with stage.sessions(ADAS_AGENT).run(sid) as ctx:
            for _ in range(3):
                assert await ctx.call("count", {"n": 1}, count, step="one") == [1, 2]
                assert await ctx.call("slowly", None, slowly, step="two") == "slow"
            assert await ctx.call("count", {"n": 1}, count) == (1, 2)
            async with unchanged(stage, sid):
                async with ctx.tool("count", {"n": 1}, step="one") as call:
                    assert call.is_replayed
                    assert (call.result, call.error, call.seq) == ([1, 2], None, 3)
                    call.result = "is not written"
                with pytest.raises(ZeroDivisionError):
                    async with ctx.tool("count", {"n": 1}, step="one"):
                        _ = 1 / 0
        assert ran == [{"n": 1}, None, {"n": 1}]

    async def test_a_function_that_failed_has_failed_in_every_later_attempt(self, stage: Stage) -> None:
        sid = await stage.session()
        ran = 0

        def fail(_: Any) -> None:
            nonlocal ran
            ran += 1
            raise OSError("no route to host")

        async with stage.sessions(ADAS_AGENT).run(sid) as ctx:
            with pytest.raises(ToolCallFailed) as now:
                await ctx.call("fetch", {}, fail, step="fetch")
            with pytest.raises(ToolCallFailed) as later:
                await ctx.call("fetch", {}, fail, step="fetch")
            assert isinstance(now.value.__cause__, OSError)
            for met in (now.value, later.value):
                assert (met.tool, met.step, met.error) == ("fetch", "fetch", "OSError: no route to host")
            with pytest.raises(ToolCallFailed):
                await ctx.call("fetch", {}, fail, step="once more")
        assert ran == 2
        assert [call.status for call in await stage.sessions().tool_history(sid)] == ["failed", "failed"]

    async def test_a_name_given_to_two_calls_of_one_attempt_is_refused(self, stage: Stage) -> None:
        """Else a loop would be given its first result again and again."""
        sid = await stage.session()
        async with stage.sessions(ADAS_AGENT).run(sid) as ctx:
            await ctx.call("read", {"path": "a"}, str, step="read")
            for tool, arguments in (("read", {"path": "b"}), ("write", {"path": "a"}), ("read", object())):
                async with refused(stage, sid, InvalidInput):
                    await ctx.call(tool, arguments, str, step="read")
            await ctx.call("read", {"path": "a"}, str, step="read")

    async def test_steps_move_with_their_session(self, stage: Stage) -> None:
        sid = await stage.session()
        agent = stage.sessions(ADAS_AGENT)
        _, attempt = await stage.started_run(sid)
        call = await agent.start_tool_call(sid, "t", {"a": 1}, step="one", attempt=attempt)
        await agent.finish_tool_call(sid, call.seq, result=1, attempt=attempt)
        await agent.append_tool_history(sid, {"tool": "t", "step": "two", "result": 2}, attempt=attempt)
        await stage.runs().complete_run(sid, attempt)
        line = await exported(stage, ADA, sid)
        (report,) = await imported(stage, ELSEWHERE, [line])
        there = await stage.sessions(ELSEWHERE).tool_history(report.session_id)
        assert there.items == (await agent.tool_history(sid)).items
        assert [one.step for one in there] == ["one", "two"]
