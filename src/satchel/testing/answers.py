"""Who may answer a run, with what, and how often: one answer counts, and repeated it is the first."""

from __future__ import annotations

import asyncio

import pytest

from satchel.domain.principal import Principal
from satchel.domain.run import Attempt, Run
from satchel.errors import (
    IdempotencyMismatch,
    IllegalTransition,
    InvalidInput,
    NotAllowed,
    OtherQuestion,
    RunNotFound,
    SessionClosed,
    SessionNotFound,
    VersionConflict,
)
from satchel.testing.questions import SIZE, waiting_run
from satchel.testing.stage import ADA, ADAS_AGENT, ADMIN, AGENT, STRANGERS, Stage, refused, unchanged
from satchel.testing.suite import StoreSuite
from satchel.testing.wrappers import RivalStore


class AnswerSuite(StoreSuite):
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
