"""A run asks a human: it waits, outlives the process that asked, and goes on with the answer when its turn comes."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from satchel.domain.clock import SECOND, rfc3339
from satchel.domain.run import Attempt
from satchel.errors import RunFenced
from satchel.testing.stage import ADA, ADAS_AGENT, Stage, refused, unchanged
from satchel.testing.suite import StoreSuite
from satchel.testing.transfer import ELSEWHERE, exported, imported

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
