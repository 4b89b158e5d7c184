"""How a question ends that nobody answers: it expires, its session does, or its run is cancelled."""

from __future__ import annotations

import pytest

from satchel.domain.clock import SECOND
from satchel.domain.principal import Principal
from satchel.domain.run import Attempt
from satchel.errors import IllegalTransition, RunActive, SessionNotFound
from satchel.testing.questions import DAY, MICROSECOND, waiting_run
from satchel.testing.stage import ADA, OPERATOR, STRANGERS, Stage, lasting, refused
from satchel.testing.suite import StoreSuite
from satchel.testing.wrappers import RivalStore


class QuestionEndSuite(StoreSuite):
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

    @pytest.mark.parametrize("who", [ADA, OPERATOR], ids=["its user", "the operator"])
    async def test_an_answer_begins_the_idle_time_anew_whoever_gives_it(self, stage: Stage, who: Principal) -> None:
        sid = await stage.session(policy=lasting(idle=60))
        run_id, _ = await waiting_run(stage, sid, expires_in=DAY)
        stage.clock.pass_time(DAY / 2)
        await stage.runs(who).answer_run(sid, run_id, 3)
        stage.clock.pass_time(59)
        assert (await stage.sweep()).expired == 0
        assert (await stage.runs().start_run(sid, run_id)).status == "RUNNING"

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
