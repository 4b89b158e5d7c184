"""What cannot be asked, and when not: the question by itself, its size, and the state of its run."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from satchel.domain.run import Attempt
from satchel.errors import (
    CancelRequested,
    Conflict,
    IllegalTransition,
    InvalidInput,
    LimitExceeded,
    RunFenced,
    ToolCallOpen,
)
from satchel.runs import RunManager
from satchel.testing.stage import ADA, ADAS_AGENT, Stage, refused
from satchel.testing.suite import StoreSuite
from satchel.testing.transfer import ELSEWHERE, exported, imported


class QuestionRefusalSuite(StoreSuite):
    async def test_a_wrong_question_is_refused_by_name(self, stage: Stage) -> None:
        sid = await stage.session()
        _, attempt = await stage.started_run(sid)
        wrong: tuple[tuple[dict[str, Any], str, str], ...] = (
            ({"name": ""}, "name", ""),
            ({"name": "a\nb"}, "name", ""),
            ({"name": 5}, "name", ""),
            ({"question": " "}, "question", ""),
            ({"question": "a\0b"}, "question", ""),
            ({"question": "\ud800"}, "question", ""),
            ({"expires_in": 0}, "expires_in", ""),
            ({"expires_in": float("nan")}, "expires_in", ""),
            ({"expires_in": True}, "expires_in", ""),
            ({"schema": []}, "schema", ""),
            ({"schema": {"type": "robot"}}, "schema", "/type"),
            ({"schema": {"properties": {"a/b": {"minimum": "1"}}}}, "schema", "/properties/a~1b/minimum"),
            ({"schema": {"pattern": "("}}, "schema", "/pattern"),
            ({"schema": {"$schema": "https://example.com/mine"}}, "schema", "/$schema"),
            ({"schema": {"$schema": 5}}, "schema", "/$schema"),
            ({"schema": {"$ref": "https://example.com/x.json"}}, "schema", "/$ref"),
            ({"schema": {"allOf": [{"$ref": "file:///etc/passwd"}]}}, "schema", "/allOf/0/$ref"),
            ({"schema": {"$ref": "#/$defs/none"}}, "schema", ""),
        )
        for options, field, pointer in wrong:
            async with refused(stage, sid, InvalidInput, field=field, pointer=pointer):
                await stage.runs().ask_question(sid, attempt, **{"name": "n", "question": "?"} | options)

    async def test_questions_and_answers_have_limits(self, stage: Stage) -> None:
        sid = await stage.session()
        runs = stage.runs()
        _, attempt = await stage.started_run(sid)
        async with refused(stage, sid, LimitExceeded, size=8_193, setting="limits.question"):
            await runs.ask_question(sid, attempt, "n", "x" * 8_193)
        large = {"const": "x" * 16_384}
        async with refused(stage, sid, LimitExceeded, setting="limits.question_schema"):
            await runs.ask_question(sid, attempt, "n", "?", schema=large)
        await runs.ask_question(sid, attempt, "n", "x" * 8_192)
        async with refused(stage, sid, LimitExceeded, size=65_538, limit=65_536, setting="limits.answer"):
            await stage.runs(ADA).answer_run(sid, attempt.run_id, "x" * 65_536)
        await stage.runs(ADA).answer_run(sid, attempt.run_id, "x" * 65_534)
        for number in range(63):
            attempt = Attempt(attempt.run_id, (await runs.start_run(sid, attempt.run_id)).attempt)
            await runs.ask_question(sid, attempt, f"n{number}", "?")
            await stage.runs(ADA).answer_run(sid, attempt.run_id, number)
        attempt = Attempt(attempt.run_id, (await runs.start_run(sid, attempt.run_id)).attempt)
        assert (await runs.ask_question(sid, attempt, "n62", "?")).answer == 62
        async with refused(stage, sid, LimitExceeded, size=65, limit=64, setting="limits.questions"):
            await runs.ask_question(sid, attempt, "one more", "?")

    async def test_a_run_does_not_ask_inside_a_tool_call_or_when_it_is_to_stop(self, stage: Stage) -> None:
        sid = await stage.session()
        runs, agent = stage.runs(), stage.sessions(ADAS_AGENT)
        _, attempt = await stage.started_run(sid)
        await agent.start_tool_call(sid, "of nobody's run")
        call = await agent.start_tool_call(sid, "t", attempt=attempt)
        async with refused(stage, sid, ToolCallOpen, seq=call.seq):
            await runs.ask_question(sid, attempt, "size", "How big?")
        await agent.finish_tool_call(sid, call.seq, result=1, attempt=attempt)
        await stage.runs(ADA).cancel_run(sid, attempt.run_id)
        async with refused(stage, sid, CancelRequested, run_id=attempt.run_id):
            await runs.ask_question(sid, attempt, "size", "How big?")

    async def test_a_run_does_not_ask_while_it_is_saying_a_message(self, stage: Stage) -> None:
        sid = await stage.session()
        runs = stage.runs()
        _, attempt = await stage.started_run(sid)
        await runs.add_text(sid, attempt, "Wait", message=1, offset=0)
        async with refused(stage, sid, IllegalTransition, run_id=attempt.run_id, wanted="WAITING"):
            await runs.ask_question(sid, attempt, "size", "How big?")
        await runs.end_text(sid, attempt, {"role": "assistant", "content": "Wait"}, message=1)
        assert (await runs.ask_question(sid, attempt, "size", "How big?")).run.status == "WAITING"

    async def test_neither_a_child_run_asks_nor_a_run_whose_children_are_open(self, stage: Stage) -> None:
        sid = await stage.session()
        runs = stage.runs()
        _, attempt = await stage.started_run(sid)
        child = await runs.add_child_run(sid, attempt, goal="look")
        for asking in (attempt, Attempt(child.run_id, child.attempt)):
            async with refused(stage, sid, IllegalTransition, run_id=asking.run_id, wanted="WAITING"):
                await runs.ask_question(sid, asking, "size", "How big?")
        await runs.complete_run(sid, Attempt(child.run_id, child.attempt))
        assert (await runs.ask_question(sid, attempt, "size", "How big?")).run.status == "WAITING"

    async def test_a_layer_stays_with_the_client_that_waits_in_place_and_begins_anew_with_any_other(
        self, stage: Stage
    ) -> None:
        for here in (True, False):
            sid = await stage.session()
            runs, agent = stage.runs(), stage.sessions(ADAS_AGENT)
            _, attempt = await stage.started_run(sid, memory="run")
            await agent.update_working_memory(sid, {"append": {"completed": "before"}}, attempt=attempt)
            await runs.ask_question(sid, attempt, "size", "How big?", here=here)
            await stage.runs(ADA).answer_run(sid, attempt.run_id, 1)
            again = await runs.start_run(sid, attempt.run_id)
            attempt = Attempt(attempt.run_id, again.attempt)
            await agent.update_working_memory(sid, {"append": {"completed": "after"}}, attempt=attempt)
            await runs.complete_run(sid, attempt)
            memory = await agent.get_working_memory(sid)
            assert memory.completed == (("before", "after") if here else ("after",))
            (report,) = await imported(stage, ELSEWHERE, [await exported(stage, ADA, sid)])
            there = await stage.sessions(ELSEWHERE).get_working_memory(report.session_id)
            assert there.completed == memory.completed

    async def test_every_illegal_transition_is_refused(self, stage: Stage) -> None:
        runs, user = stage.runs(), stage.runs(ADA)
        verbs: dict[str, Callable[[str, Attempt], Awaitable[object]]] = {
            "RUNNING": lambda sid, of: runs.start_run(sid, of.run_id),
            "WAITING": lambda sid, of: runs.ask_question(sid, of, "other", "?"),
            "READY": lambda sid, of: user.answer_run(sid, of.run_id, 1),
            "returned": runs.hand_back_run,
            "COMPLETED": runs.complete_run,
            "FAILED": lambda sid, of: runs.fail_run(sid, of, code="x"),
            "stopped": runs.end_cancelled_run,
            "CANCELLED": lambda sid, of: user.cancel_run(sid, of.run_id),
        }
        allowed = {
            "READY": {"RUNNING", "CANCELLED"},
            "RUNNING": {"WAITING", "returned", "COMPLETED", "FAILED", "stopped", "CANCELLED"},
            "WAITING": {"READY", "CANCELLED"},
            "COMPLETED": set(),
            "FAILED": set(),
            "CANCELLED": {"CANCELLED"},  # twice is fine, and changes nothing
        }
        for status, legal in allowed.items():
            for wanted, verb in verbs.items():
                if wanted in legal:
                    continue
                sid = await stage.session()
                attempt = await self.run_that_is(stage.runs(), sid, status)
                async with refused(stage, sid, Conflict) as met:
                    await verb(sid, attempt)
                assert isinstance(met[0], (IllegalTransition, RunFenced)), (status, wanted, met)

    async def run_that_is(self, runs: RunManager, sid: str, status: str) -> Attempt:
        run = await runs.add_run(sid)
        if status != "READY":
            run = await runs.start_run(sid, run.run_id)
        attempt = Attempt(run.run_id, run.attempt)
        if status == "WAITING":
            await runs.ask_question(sid, attempt, "n", "?")
        elif status == "COMPLETED":
            await runs.complete_run(sid, attempt)
        elif status == "FAILED":
            await runs.fail_run(sid, attempt, code="x")
        elif status == "CANCELLED":
            await runs.end_cancelled_run(sid, attempt)
        return attempt
