"""A run asks a human: it waits, survives, is answered once, and goes on; or its question expires."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from satchel.domain.clock import SECOND, rfc3339
from satchel.domain.principal import Principal
from satchel.domain.run import Attempt, Run
from satchel.errors import (
    CancelRequested,
    Conflict,
    IdempotencyMismatch,
    IllegalTransition,
    InvalidInput,
    LimitExceeded,
    NotAllowed,
    OtherQuestion,
    RunActive,
    RunFenced,
    RunNotFound,
    SessionClosed,
    SessionNotFound,
    ToolCallOpen,
    VersionConflict,
)
from satchel.runs import RunManager
from satchel.testing.stage import (
    ADA,
    ADAS_AGENT,
    ADMIN,
    AGENT,
    STRANGERS,
    Stage,
    lasting,
    refused,
    unchanged,
)
from satchel.testing.suite import StoreSuite
from satchel.testing.transfer import ELSEWHERE, exported, imported
from satchel.testing.wrappers import RivalStore

MICROSECOND = 0.000001
DAY = 86_400.0
WEEK = 7 * DAY
SIZE = {"type": "object", "properties": {"size": {"type": "integer", "minimum": 1}}, "required": ["size"]}


async def waiting_run(stage: Stage, sid: str, *, name: str = "size", **options: Any) -> tuple[str, Attempt]:
    """A run that was added for workers, was started by one, and asked."""
    asking = {key: options.pop(key) for key in ("schema", "expires_in", "here") if key in options}
    run = await stage.runs().add_run(sid, agent="shop", **options)
    started = await stage.runs().start_run(sid, run.run_id, lease=30)
    attempt = Attempt(run.run_id, started.attempt)
    asked = await stage.runs().ask_question(sid, attempt, name, "How big?", **asking)
    assert not asked.is_answered
    return run.run_id, attempt


async def waiting_now(stage: Stage, sid: str) -> Run:
    """The run that waits for an answer, once there is one."""
    for _ in range(10_000):
        found = (await stage.runs(ADA).list_runs(sid, status="WAITING")).items
        if found:
            return found[0]
        await asyncio.sleep(0.001)
    raise AssertionError("no run asked anything")


class QuestionSuite(StoreSuite):
    async def test_a_run_that_asks_waits_and_keeps_the_turn(self, stage: Stage) -> None:
        sid = await stage.session()
        runs = stage.runs()
        _, attempt = await stage.started_run(sid, agent="shop")
        behind = await runs.add_run(sid, on_busy="queue")
        before = await stage.record(sid)
        asked = await runs.ask_question(sid, attempt, "size", "多大?\nHow big?", schema=SIZE)
        assert (asked.run.status, asked.is_answered, asked.run.version) == ("WAITING", False, before.version + 1)
        kept = await runs.get_run(sid, attempt.run_id)
        assert kept.question is not None
        expires = stage.clock.now + 7 * 86_400 * SECOND
        assert kept.question.to_dict() == {
            "name": "size",
            "question": "多大?\nHow big?",
            "schema": SIZE,
            "expires_at": rfc3339(expires),
            "seq": before.last_seq + 1,
        }
        assert kept == asked.run
        record = await stage.record(sid)
        assert record.turn is not None
        assert (record.turn.run_id, record.turn.status, record.turn.lease) == (attempt.run_id, "WAITING", None)
        assert (record.ready_agent, record.lease_until) == (None, None)
        assert [waiting.run_id for waiting in record.queue] == [behind.run_id]
        (event,) = (await stage.log(sid))[before.last_seq :]
        assert (event.kind, event.run_id, event.actor) == ("question_asked", attempt.run_id, ADAS_AGENT.actor)
        (listed,) = await runs.list_runs(sid, status="WAITING")
        assert listed.question == kept.question

    async def test_an_answered_run_goes_on_with_its_turn_and_is_given_the_answer(self, stage: Stage) -> None:
        sid = await stage.session()
        runs = stage.runs()
        run_id, attempt = await waiting_run(stage, sid)
        before = await stage.record(sid)
        answered = await stage.runs(ADA).answer_run(sid, run_id, {"size": 3})
        assert (answered.status, answered.version, answered.question) == ("READY", before.version + 1, None)
        record = await stage.record(sid)
        assert (record.ready_agent, record.turn and record.turn.run_id) == ("shop", run_id)
        (event,) = (await stage.log(sid))[before.last_seq :]
        assert (event.kind, event.actor, event.data) == (
            "question_answered",
            ADA.actor,
            {"name": "size", "answer": {"size": 3}},
        )
        again = await runs.start_run(sid, run_id, lease=30)
        assert (again.status, again.attempt) == ("RUNNING", attempt.attempt + 1)
        async with unchanged(stage, sid):
            given = await runs.ask_question(sid, Attempt(run_id, again.attempt), "size", "How big?")
        assert (given.is_answered, given.answer, given.run.status) == (True, {"size": 3}, "RUNNING")
        assert (await runs.complete_run(sid, Attempt(run_id, again.attempt))).status == "COMPLETED"

    @pytest.mark.parametrize("answer", ["修复\0 😀", "", None, 0, False, 1.5, [], {}, {"a": [None, {"b": "c"}]}])
    async def test_an_answer_is_any_json_value(self, stage: Stage, answer: Any) -> None:
        sid = await stage.session()
        run_id, _ = await waiting_run(stage, sid)
        await stage.runs(ADA).answer_run(sid, run_id, answer)
        again = await stage.runs().start_run(sid, run_id)
        given = await stage.runs().ask_question(sid, Attempt(run_id, again.attempt), "size", "How big?")
        assert (given.is_answered, given.answer) == (True, answer)

    async def test_the_name_decides_whatever_is_asked_later(self, stage: Stage) -> None:
        sid = await stage.session()
        run_id, _ = await waiting_run(stage, sid)
        await stage.runs(ADA).answer_run(sid, run_id, "big")
        again = await stage.runs().start_run(sid, run_id)
        async with unchanged(stage, sid):
            given = await stage.runs().ask_question(
                sid, Attempt(run_id, again.attempt), "size", "Another question", schema={"type": "integer"}
            )
        assert given.answer == "big"

    async def test_a_question_that_is_pending_is_asked_once(self, stage: Stage, second: Stage) -> None:
        sid = await stage.session()
        _, attempt = await stage.started_run(sid)
        told = await asyncio.gather(
            *(door.runs().ask_question(sid, attempt, "size", "How big?") for door in (stage, second, stage))
        )
        assert [one.is_answered for one in told] == [False] * 3
        assert {one.run.status for one in told} == {"WAITING"}
        async with unchanged(stage, sid):
            again = await stage.runs().ask_question(sid, attempt, "size", "How big?")
        assert again.run.question == told[0].run.question
        async with refused(stage, sid, RunFenced):
            await stage.runs().ask_question(sid, attempt, "colour", "Which colour?")
        assert (await stage.kinds(sid)).count("question_asked") == 1

    async def test_whoever_asked_is_fenced_until_it_starts_again(self, stage: Stage) -> None:
        sid = await stage.session()
        runs, agent = stage.runs(), stage.sessions(ADAS_AGENT)
        run_id, attempt = await waiting_run(stage, sid)

        async def late_writes() -> None:
            for write in (
                lambda: agent.append_message(sid, {"role": "assistant", "content": "x"}, attempt=attempt),
                lambda: agent.start_tool_call(sid, "t", attempt=attempt),
                lambda: runs.renew_run(sid, attempt),
                lambda: runs.complete_run(sid, attempt),
                lambda: runs.hand_back_run(sid, attempt),
            ):
                async with refused(stage, sid, RunFenced, run_id=run_id):
                    await write()

        await late_writes()
        await stage.runs(ADA).answer_run(sid, run_id, 1)
        await late_writes()
        await runs.start_run(sid, run_id)
        await late_writes()

    async def test_a_question_and_its_answer_outlive_the_process(self, stage: Stage, second: Stage) -> None:
        sid = await stage.session()
        run_id, attempt = await waiting_run(stage, sid, schema=SIZE)
        stage.clock.reboot()
        stage.clock.pass_time(3 * DAY)
        shown = await second.runs(ADA).get_run(sid, run_id)
        assert (shown.status, shown.attempt) == ("WAITING", attempt.attempt)
        await second.runs(ADA).answer_run(sid, run_id, {"size": 1})
        again = await second.runs().start_run(sid, run_id)
        given = await second.runs().ask_question(sid, Attempt(run_id, again.attempt), "size", "How big?")
        assert given.answer == {"size": 1}

    async def test_an_attempt_is_not_taken_for_dead_by_its_own_question(self, stage: Stage) -> None:
        sid = await stage.session()
        run_id, _ = await waiting_run(stage, sid)
        await stage.runs(ADA).answer_run(sid, run_id, "big")
        attempt = Attempt(run_id, (await stage.runs().start_run(sid, run_id, lease=30)).attempt)
        stage.clock.pass_lease_time(100)
        assert (await stage.runs().ask_question(sid, attempt, "size", "How big?")).answer == "big"
        assert await stage.runs().renew_run(sid, attempt) is False

    # -- who may answer what

    @pytest.mark.parametrize("who", [ADA, ADAS_AGENT, AGENT, ADMIN], ids=lambda who: who.role)
    async def test_who_may_use_a_session_may_answer_its_runs(self, stage: Stage, who: Principal) -> None:
        sid = await stage.session()
        run_id, _ = await waiting_run(stage, sid)
        await stage.runs(who).answer_run(sid, run_id, "yes")
        assert (await stage.log(sid))[-1].actor == who.actor

    async def test_strangers_cannot_answer_and_users_cannot_ask(self, stage: Stage) -> None:
        sid = await stage.session()
        run_id, attempt = await waiting_run(stage, sid, schema=SIZE)
        for stranger in STRANGERS:
            for answer in ({"size": 1}, "does not fit"):
                async with refused(stage, sid, SessionNotFound):
                    await stage.runs(stranger).answer_run(sid, run_id, answer)
        async with refused(stage, sid, RunNotFound):
            await stage.runs(ADA).answer_run(sid, "run_x", {"size": 1})
        await stage.runs(ADA).answer_run(sid, run_id, {"size": 1})
        again = await stage.runs().start_run(sid, run_id)
        async with refused(stage, sid, NotAllowed):
            await stage.runs(ADA).ask_question(sid, Attempt(run_id, again.attempt), "colour", "Which colour?")
        assert attempt.attempt == 1

    async def test_an_answer_must_fit_the_questions_schema(self, stage: Stage) -> None:
        sid = await stage.session()
        run_id, _ = await waiting_run(stage, sid, schema=SIZE)
        runs = stage.runs(ADA)
        for answer, pointer in (("big", ""), ({}, ""), ({"size": 0}, "/size"), ({"size": "3"}, "/size")):
            async with refused(stage, sid, InvalidInput, field="answer", pointer=pointer):
                await runs.answer_run(sid, run_id, answer)
        async with refused(stage, sid, InvalidInput, field="answer"):
            await runs.answer_run(sid, run_id, float("nan"))
        assert (await runs.answer_run(sid, run_id, {"size": 3})).status == "READY"

    async def test_only_the_pending_question_is_answered(self, stage: Stage) -> None:
        sid = await stage.session()
        runs = stage.runs(ADA)
        run_id, _ = await waiting_run(stage, sid)
        async with refused(stage, sid, OtherQuestion, name="colour", pending="size"):
            await runs.answer_run(sid, run_id, "red", name="colour")
        await runs.answer_run(sid, run_id, "big", name="size")
        for name in (None, "size"):
            async with refused(stage, sid, IllegalTransition, current="READY", wanted="READY") as met:
                await runs.answer_run(sid, run_id, "bigger", name=name)
            assert str(met[0]) == f"run {run_id} is READY: it waits for no answer"

    async def test_one_of_two_answers_counts(self, stage: Stage, second: Stage) -> None:
        sid = await stage.session()
        run_id, _ = await waiting_run(stage, sid, schema=SIZE)
        told = await asyncio.gather(
            *(door.runs(ADA).answer_run(sid, run_id, {"size": n}) for n, door in ((1, stage), (2, second))),
            return_exceptions=True,
        )
        assert sum(isinstance(one, Run) for one in told) == 1
        assert sum(isinstance(one, IllegalTransition) for one in told) == 1
        assert (await stage.kinds(sid)).count("question_answered") == 1

    async def test_an_answer_is_held_against_the_question_that_is_pending_at_its_commit(self, stage: Stage) -> None:
        """Between the look at the question and the commit it is answered, and the run asks another."""
        sid = await stage.session()
        run_id, _ = await waiting_run(stage, sid, name="first", schema={"type": "integer"})
        racing = RivalStore(stage.store)
        slow = Stage(racing, stage.clock)

        async def answer_and_ask_again() -> None:
            await stage.runs(ADA).answer_run(sid, run_id, 1)
            again = await stage.runs().start_run(sid, run_id)
            attempt = Attempt(run_id, again.attempt)
            await stage.runs().ask_question(sid, attempt, "second", "?", schema={"type": "string"})

        racing.rival = answer_and_ask_again
        with pytest.raises(InvalidInput):
            await slow.runs(ADA).answer_run(sid, run_id, 2)
        assert (await stage.runs().get_run(sid, run_id)).status == "WAITING"
        assert (await stage.runs(ADA).answer_run(sid, run_id, "two")).status == "READY"

    # -- keys and versions

    async def test_a_repeated_answer_is_the_first_one_whatever_came_later(self, stage: Stage) -> None:
        sid = await stage.session()
        runs = stage.runs(ADA)
        run_id, _ = await waiting_run(stage, sid, schema={"type": "integer"})
        first = await runs.answer_run(sid, run_id, 1, idempotency_key="ui-1")
        async with refused(stage, sid, IdempotencyMismatch):
            await runs.answer_run(sid, run_id, 2, idempotency_key="ui-1")
        again = await stage.runs().start_run(sid, run_id)
        attempt = Attempt(run_id, again.attempt)
        await stage.runs().ask_question(sid, attempt, "name", "What is it called?", schema={"type": "string"})
        async with unchanged(stage, sid):  # it does not fit what is asked now, and is no answer to that
            repeated = await runs.answer_run(sid, run_id, 1, idempotency_key="ui-1")
        assert (repeated.replayed, repeated.status, repeated.version) == (True, "READY", first.version)
        await stage.sessions().close_session(sid)
        assert (await runs.answer_run(sid, run_id, 1, idempotency_key="ui-1")).replayed
        async with refused(stage, sid, SessionClosed):
            await runs.answer_run(sid, run_id, "x")

    async def test_a_repeated_question_is_told_as_it_was_first(self, stage: Stage) -> None:
        sid = await stage.session()
        _, attempt = await stage.started_run(sid)
        first = await stage.runs().ask_question(sid, attempt, "size", "How big?", idempotency_key="k")
        async with unchanged(stage, sid):
            again = await stage.runs().ask_question(sid, attempt, "size", "How big?", idempotency_key="k")
        assert (again.run.replayed, again.run.status, again.is_answered) == (True, "WAITING", False)
        assert again.run.question == first.run.question

    async def test_an_answer_may_build_on_a_version(self, stage: Stage) -> None:
        sid = await stage.session()
        run_id, _ = await waiting_run(stage, sid)
        version = (await stage.record(sid)).version
        async with refused(stage, sid, VersionConflict):
            await stage.runs(ADA).answer_run(sid, run_id, 1, expected_version=version - 1)
        await stage.runs(ADA).answer_run(sid, run_id, 1, expected_version=version)

    # -- what cannot be asked

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

    # -- how else a question ends

    async def test_a_question_expires_at_its_instant_and_not_before(self, stage: Stage) -> None:
        sid = await stage.session()
        run_id, _ = await waiting_run(stage, sid, expires_in=60)
        behind = await stage.runs().add_run(sid, on_busy="queue", input="next")
        before = await stage.record(sid)
        stage.clock.pass_time(60 - MICROSECOND)
        assert (await stage.runs(ADA).get_run(sid, run_id)).status == "WAITING"
        stage.clock.pass_time(MICROSECOND)
        ended = await stage.runs(ADA).get_run(sid, run_id)  # a reader met it
        assert ended.error is not None
        assert (ended.status, ended.error.code, ended.stop_reason) == ("FAILED", "question_expired", "question_expired")
        assert ended.question is None
        after = await stage.record(sid)
        assert after.version == before.version + 1
        assert after.turn is not None
        assert (after.turn.run_id, after.turn.status, after.queue) == (behind.run_id, "READY", ())
        assert (await stage.log(sid))[-1].actor == "operator"
        async with refused(stage, sid, IllegalTransition, current="FAILED"):
            await stage.runs(ADA).answer_run(sid, run_id, "too late")

    async def test_an_answer_decided_before_the_expiry_does_not_commit_after_it(self, stage: Stage) -> None:
        sid = await stage.session()
        run_id, _ = await waiting_run(stage, sid, expires_in=60)
        racing = RivalStore(stage.store)
        slow = Stage(racing, stage.clock)

        async def the_hour_strikes() -> None:
            stage.clock.step_wall(60)

        racing.rival = the_hour_strikes
        with pytest.raises(IllegalTransition):
            await slow.runs(ADA).answer_run(sid, run_id, "too late")
        assert (await stage.kinds(sid))[-2:] == ["question_asked", "run_ended"]

    async def test_the_sweeper_finds_an_expired_question(self, stage: Stage) -> None:
        sid = await stage.session(policy=lasting(idle=None))
        run_id, attempt = await waiting_run(stage, sid, expires_in=60)
        stage.clock.pass_time(59)
        assert (await stage.sweep()).visited == 0
        stage.clock.pass_time(1)
        assert (await stage.sweep()).runs_settled == 1
        record = await stage.record(sid)
        assert (record.turn, record.sweep_at) == (None, None)
        page = await stage.store.runs(record.ref, run_id=run_id, limit=1)
        assert (page.runs[0].status, page.runs[0].attempt) == ("FAILED", attempt.attempt)

    async def test_the_sweeper_comes_for_the_second_question_too(self, stage: Stage) -> None:
        sid = await stage.session(policy=lasting(idle=None))
        run_id, _ = await waiting_run(stage, sid, expires_in=60)
        await stage.runs(ADA).answer_run(sid, run_id, 1)
        again = await stage.runs().start_run(sid, run_id, lease=3_600)
        stage.clock.pass_time(100)
        await stage.sweep()  # the entry of the first one is early: nothing is due
        await stage.runs().ask_question(sid, Attempt(run_id, again.attempt), "second", "?", expires_in=50)
        stage.clock.pass_time(50)
        assert (await stage.sweep()).runs_settled == 1

    async def test_a_strangers_look_ends_no_question(self, stage: Stage) -> None:
        sid = await stage.session()
        run_id, _ = await waiting_run(stage, sid, expires_in=60)
        stage.clock.pass_time(60)
        for stranger in STRANGERS:
            async with refused(stage, sid, SessionNotFound):
                await stage.runs(stranger).get_run(sid, run_id)

    async def test_a_waiting_run_keeps_its_session_from_idling_until_its_question_expires(self, stage: Stage) -> None:
        sid = await stage.session(policy=lasting(idle=60))
        asked_at = stage.clock.now
        run_id, _ = await waiting_run(stage, sid, expires_in=1_000)
        assert (await stage.record(sid)).expires_at == asked_at + 1_060 * SECOND
        stage.clock.pass_time(999)
        shown = await stage.sessions().get_session(sid)
        assert (shown.status, shown.runs[0].status) == ("ACTIVE", "WAITING")
        stage.clock.pass_time(60)  # nobody met the expiry: idle counts from its instant all the same
        assert (await stage.sessions().list_sessions()).items[0].status == "ACTIVE"
        assert (await stage.sessions().get_session(sid)).status == "ACTIVE"
        assert (await stage.record(sid)).expires_at == asked_at + 1_060 * SECOND
        stage.clock.pass_time(1)
        assert (await stage.sessions().list_sessions()).items[0].status == "EXPIRED"
        expired = await stage.sessions().get_session(sid)
        assert (expired.status, expired.runs[0].status) == ("EXPIRED", "FAILED")
        assert (await stage.record(sid)).closed_at == asked_at + 1_060 * SECOND
        assert expired.runs[0].run_id == run_id

    async def test_nobody_comes_for_a_year_and_each_end_is_dated_right(self, stage: Stage) -> None:
        sid = await stage.session(policy=lasting(idle=60, retention=10 * DAY))
        asked_at = stage.clock.now
        await waiting_run(stage, sid, expires_in=1_000)
        stage.clock.pass_time(9 * DAY)
        assert (await stage.sessions().list_sessions()).items[0].status == "EXPIRED"
        shown = await stage.sessions().get_session(sid)
        assert shown.status == "EXPIRED"
        error = shown.runs[0].error
        assert error is not None
        assert error.code == "question_expired"
        kept = await stage.record(sid)
        assert kept.closed_at == asked_at + 1_060 * SECOND
        assert [event.kind for event in (await stage.log(sid))[-2:]] == ["run_ended", "session_expired"]

    async def test_a_lifetime_that_ends_before_the_question_ends_the_run(self, stage: Stage) -> None:
        sid = await stage.session(policy=lasting(max_lifetime=100))
        run_id, _ = await waiting_run(stage, sid, expires_in=200)
        stage.clock.pass_time(300)
        shown = await stage.sessions().get_session(sid)
        (run,) = shown.runs
        assert (shown.status, run.run_id, run.status, run.stop_reason) == (
            "EXPIRED",
            run_id,
            "CANCELLED",
            "session_expired",
        )

    async def test_cancelling_a_waiting_run_ends_it_at_once(self, stage: Stage) -> None:
        sid = await stage.session()
        run_id, _ = await waiting_run(stage, sid)
        behind = await stage.runs().add_run(sid, on_busy="queue")
        ended = await stage.runs(ADA).cancel_run(sid, run_id, reason="never mind")
        assert (ended.status, ended.stop_reason, ended.question) == ("CANCELLED", "never mind", None)
        record = await stage.record(sid)
        assert record.turn is not None
        assert (record.turn.run_id, record.turn.expires_at) == (behind.run_id, None)

    async def test_a_run_that_cannot_wait_goes_in_the_place_of_one_that_asks(self, stage: Stage) -> None:
        sid = await stage.session()
        run_id, _ = await waiting_run(stage, sid)
        async with refused(stage, sid, RunActive, run_id=run_id):
            await stage.runs().add_run(sid)
        urgent = await stage.runs().add_run(sid, on_busy="cancel")
        assert (await stage.runs().get_run(sid, run_id)).stop_reason == "replaced"
        assert (await stage.sessions().get_session(sid)).active_run_id == urgent.run_id

    async def test_leaving_active_ends_a_waiting_run(self, stage: Stage) -> None:
        sid = await stage.session()
        run_id, _ = await waiting_run(stage, sid, expires_in=60)
        await stage.sessions().close_session(sid)
        stage.clock.pass_time(100)
        ended = await stage.runs(ADA).get_run(sid, run_id)
        assert (ended.status, ended.stop_reason, ended.question) == ("CANCELLED", "session_closed", None)
        restored = await stage.sessions().restore_session(sid)
        assert restored.active_run_id is None

    # -- attempts

    async def test_going_on_after_an_answer_is_no_lost_attempt(self, stage: Stage) -> None:
        sid = await stage.session()
        runs = stage.runs()
        run_id, _ = await waiting_run(stage, sid, name="q0", max_attempts=2)
        for number in (1, 2):
            await stage.runs(ADA).answer_run(sid, run_id, number)
            again = await runs.start_run(sid, run_id, lease=30)
            await runs.ask_question(sid, Attempt(run_id, again.attempt), f"q{number}", "?")
        await stage.runs(ADA).answer_run(sid, run_id, 3)
        assert (await runs.start_run(sid, run_id, lease=30)).attempt == 4
        stage.clock.pass_time(30)
        lost = await runs.get_run(sid, run_id)
        assert (lost.status, lost.attempt) == ("READY", 4)  # lost once, of two
        assert (await runs.start_run(sid, run_id, lease=30)).attempt == 5
        stage.clock.pass_time(30)
        ended = await runs.get_run(sid, run_id)
        assert ended.error is not None
        assert (ended.status, ended.error.code) == ("FAILED", "worker_lost")

    # -- a caller's own loop

    async def test_a_run_of_ones_own_waits_in_place_and_goes_on(self, stage: Stage) -> None:
        sid = await stage.session()
        sessions = stage.sessions(ADAS_AGENT)

        async def answer() -> None:
            for number in (1, 2):
                waits = await waiting_now(stage, sid)
                record = await stage.record(sid)
                assert record.ready_agent is None
                assert record.lease_until is not None
                await stage.runs(ADA).answer_run(sid, waits.run_id, number)
                assert (await stage.record(sid)).ready_agent is None  # no worker is offered it

        answering = asyncio.create_task(answer())
        async with sessions.run(sid, agent="shop") as ctx:
            first = ctx.attempt
            assert await ctx.ask("one", "?", schema={"type": "integer"}) == 1
            assert (ctx.attempt.run_id, ctx.attempt.attempt, ctx.run.status) == (first.run_id, 2, "RUNNING")
            given = await asyncio.gather(ctx.ask("one", "?"), ctx.ask("two", "?"), ctx.ask("two", "?"))
            assert tuple(given) == (1, 2, 2)
            await ctx.append_message({"role": "assistant", "content": "done"})
        await answering
        (run,) = (await sessions.get_session(sid)).runs
        assert (run.status, run.attempt) == ("COMPLETED", 3)
        assert (await stage.kinds(sid)).count("question_asked") == 2

    async def test_a_client_that_waits_in_place_and_dies_ends_its_run(self, stage: Stage) -> None:
        sid = await stage.session()
        runs = stage.runs()
        _, attempt = await stage.started_run(sid, lease=30)
        await runs.ask_question(sid, attempt, "size", "?", here=True)
        behind = await runs.add_run(sid, on_busy="queue")
        for _ in range(3):
            stage.clock.pass_time(20)
            assert (await runs.keep_waiting(sid, attempt.run_id)).status == "WAITING"
        stage.clock.pass_time(30)
        ended = await runs.get_run(sid, attempt.run_id)
        assert (ended.status, ended.stop_reason) == ("CANCELLED", "client_lost")
        assert (await stage.sessions().get_session(sid)).active_run_id == behind.run_id

    async def test_what_ends_a_run_that_waits_in_place_is_heard_there(self, stage: Stage) -> None:
        for end in ("cancelled", "expired", "closed"):
            sid = await stage.session()

            async def ending(sid: str = sid, end: str = end) -> None:
                waits = await waiting_now(stage, sid)
                if end == "cancelled":
                    await stage.runs(ADA).cancel_run(sid, waits.run_id)
                elif end == "closed":
                    await stage.sessions().close_session(sid)
                else:
                    stage.clock.step_wall(60)
                    await stage.sweep()

            task = asyncio.create_task(ending())
            with pytest.raises(RunFenced, match=end):
                async with stage.sessions(ADAS_AGENT).run(sid) as ctx:
                    await ctx.ask("size", "?", expires_in=60)
            await task

    async def test_leaving_the_wait_for_an_answer_ends_the_run(self, stage: Stage) -> None:
        sid = await stage.session()

        async def wait() -> None:
            async with stage.sessions(ADAS_AGENT).run(sid) as ctx:
                await ctx.ask("size", "?")

        waiting = asyncio.create_task(wait())
        await waiting_now(stage, sid)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        (run,) = (await stage.sessions().get_session(sid)).runs
        assert (run.status, run.question) == ("CANCELLED", None)

    async def test_a_run_of_ones_own_that_is_to_stop_asks_nothing_and_is_cancelled(self, stage: Stage) -> None:
        sid = await stage.session()
        with pytest.raises(CancelRequested):
            async with stage.sessions(ADAS_AGENT).run(sid) as ctx:
                await stage.runs(ADA).cancel_run(sid, ctx.run.run_id)
                await ctx.ask("size", "?")
        assert (await stage.sessions().get_session(sid)).runs[0].status == "CANCELLED"

    @pytest.mark.parametrize(
        ("answer", "arguments"),
        [
            ({"decision": "approve"}, {"amount": 5}),
            ({"decision": "deny", "reason": "too much"}, {"amount": 5}),
            ({"decision": "edit", "arguments": {"amount": 3}}, {"amount": 3}),
        ],
    )
    async def test_a_human_approves_denies_or_edits_a_tool_call(
        self, stage: Stage, answer: dict[str, Any], arguments: Any
    ) -> None:
        sid = await stage.session()

        async def decide() -> str:
            waits = await waiting_now(stage, sid)
            for wrong in ({}, {"decision": "maybe"}, {"decision": "edit"}, {"decision": "approve", "arguments": 1}):
                async with refused(stage, sid, InvalidInput, field="answer"):
                    await stage.runs(ADA).answer_run(sid, waits.run_id, wrong)
            await stage.runs(ADA).answer_run(sid, waits.run_id, answer)
            assert waits.question is not None
            return waits.question.question

        deciding = asyncio.create_task(decide())
        async with stage.sessions(ADAS_AGENT).run(sid) as ctx:
            approval = await ctx.approve("pay", "pay", {"amount": 5})
        assert await deciding == 'May pay be called with {"amount":5}?'
        assert (approval.decision, approval.arguments) == (answer["decision"], arguments)
        assert approval.is_granted == (answer["decision"] != "deny")
        assert approval.reason == answer.get("reason", "")

    # -- on the move

    async def test_questions_move_with_their_session(self, stage: Stage) -> None:
        sid = await stage.session()
        run_id, _ = await waiting_run(stage, sid, schema=SIZE)
        await stage.runs(ADA).answer_run(sid, run_id, {"size": 3})
        again = await stage.runs().start_run(sid, run_id)
        await stage.runs().complete_run(sid, Attempt(run_id, again.attempt))
        open_id, _ = await waiting_run(stage, sid, name="colour", expires_in=2 * 365 * DAY)
        line = await exported(stage, ADA, sid)
        (report,) = await imported(stage, ELSEWHERE, [line])
        here, there = await stage.log(sid), await stage.log(report.session_id, "umbrella")
        assert there[: len(here)] == here
        copied = stage.runs(ELSEWHERE)
        ended, moved = sorted((await copied.list_runs(report.session_id)).items, key=lambda run: run.number)
        assert (ended.status, ended.attempt, moved.run_id, moved.status) == ("COMPLETED", 2, open_id, "FAILED")
        assert (moved.stop_reason, moved.question) == ("moved", None)
        fork = await stage.sessions().fork_session(sid)
        assert [run.status for run in fork.runs] == ["COMPLETED", "FAILED"]
        asked = next(event.seq for event in here if event.kind == "question_asked")
        cut = await stage.sessions().fork_session(sid, up_to=asked)
        assert (cut.runs[0].status, cut.runs[0].stop_reason) == ("FAILED", "moved")
        for row, copy in zip(
            (await stage.store.runs((await stage.record(sid)).ref, run_id=run_id, limit=1)).runs,
            (
                await stage.store.runs((await stage.record(report.session_id, "umbrella")).ref, run_id=run_id, limit=1)
            ).runs,
            strict=True,
        ):
            assert copy == row
