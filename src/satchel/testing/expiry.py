"""What time does to a session, exactly at its instant; and the sweeper, for sessions that nobody meets."""

from __future__ import annotations

import pytest

from satchel.domain.clock import rfc3339
from satchel.domain.decisions.lifecycle import DeleteSession
from satchel.domain.ids import SessionRef
from satchel.errors import (
    InvalidInput,
    NotAllowed,
    SessionDeleted,
    SessionExpired,
    SessionNotFound,
)
from satchel.testing.stage import (
    ADA,
    ADAS_AGENT,
    ADMIN,
    AGENT,
    STRANGERS,
    Stage,
    lasting,
    refused,
    said,
    unchanged,
)
from satchel.testing.suite import StoreSuite
from satchel.testing.wrappers import RivalStore

MICROSECOND = 0.000001


class ExpirySuite(StoreSuite):
    async def test_expiry_is_true_at_its_instant_and_not_a_microsecond_before(self, stage: Stage) -> None:
        sid = await stage.session(policy=lasting(idle=60))
        stage.clock.step_wall(60 - MICROSECOND)
        assert (await stage.sessions().get_session(sid)).status == "ACTIVE"
        stage.clock.step_wall(MICROSECOND)
        assert (await stage.sessions().get_session(sid)).status == "EXPIRED"

    async def test_a_write_a_microsecond_before_its_expiry_is_taken_and_at_it_refused(self, stage: Stage) -> None:
        sid = await stage.session(policy=lasting(idle=60))
        stage.clock.step_wall(60 - MICROSECOND)
        await stage.sessions().append_message(sid, said("in time"))
        stage.clock.step_wall(60)
        with pytest.raises(SessionExpired):
            await stage.sessions().append_message(sid, said("late"))
        assert await stage.kinds(sid) == ["message", "session_expired"]

    async def test_a_short_life_is_not_over_at_once(self, stage: Stage) -> None:
        sid = await stage.session(policy=lasting(idle=0.5))
        assert (await stage.sessions().get_session(sid)).status == "ACTIVE"
        with pytest.raises(InvalidInput, match="longer than nothing"):
            await stage.session(policy=lasting(idle=0))
        with pytest.raises(InvalidInput):
            await stage.session(policy=lasting(max_lifetime=-1))

    async def test_the_reader_who_first_meets_it_commits_the_expiry(self, stage: Stage) -> None:
        sid = await stage.session(policy=lasting(idle=60))
        stage.clock.pass_time(61)
        assert (await stage.record(sid)).status == "ACTIVE"
        await stage.sessions().get_session(sid, include=())
        kept = await stage.record(sid)
        assert (kept.status, kept.version) == ("EXPIRED", 1)
        (event,) = await stage.log(sid)
        assert (event.kind, event.actor) == ("session_expired", "operator")
        assert event.data == {"reason": "idle", "expired_at": rfc3339(kept.created_at + 60_000_000)}
        assert kept.closed_at == kept.created_at + 60_000_000
        async with unchanged(stage, sid):
            await stage.sessions().get_session(sid)

    async def test_a_stranger_changes_nothing_not_even_an_expiry(self, stage: Stage) -> None:
        sid = await stage.session(policy=lasting(idle=60, retention=60))
        stage.clock.pass_time(61)
        for stranger in STRANGERS:
            for call in (
                stage.sessions(stranger).get_session(sid),
                stage.sessions(stranger).append_message(sid, said("mine?")),
                stage.sessions(stranger).close_session(sid),
                stage.sessions(stranger).delete_session(sid),
                stage.runs(stranger).add_run(sid),
            ):
                async with refused(stage, sid, SessionNotFound, session_id=sid):
                    await call

    async def test_accepted_writes_are_activity_and_reads_are_not(self, stage: Stage) -> None:
        sid = await stage.session(policy=lasting(idle=60))
        for _ in range(3):
            stage.clock.pass_time(50)
            await stage.sessions().append_message(sid, said("still here"))
        for _ in range(5):
            stage.clock.pass_time(10)
            await stage.sessions().get_session(sid)
        stage.clock.pass_time(10)
        assert (await stage.sessions().get_session(sid)).status == "EXPIRED"

    async def test_a_running_run_keeps_its_session_from_idling(self, stage: Stage) -> None:
        sid = await stage.session(policy=lasting(idle=60))
        _, attempt = await stage.started_run(sid, lease=3_600)
        stage.clock.step_wall(600)
        assert (await stage.sessions().get_session(sid)).status == "ACTIVE"
        await stage.runs().complete_run(sid, attempt)
        stage.clock.step_wall(60 - MICROSECOND)
        assert (await stage.sessions().get_session(sid)).status == "ACTIVE"
        stage.clock.step_wall(MICROSECOND)
        assert (await stage.sessions().get_session(sid)).status == "EXPIRED"

    async def test_a_lost_workers_end_counts_as_the_end_of_the_last_run(self, stage: Stage) -> None:
        sid = await stage.session(policy=lasting(idle=60))
        await stage.started_run(sid, lease=30)
        stage.clock.pass_time(600)
        assert (await stage.sessions().get_session(sid)).status == "ACTIVE"
        assert "run_ended" in await stage.kinds(sid)
        stage.clock.pass_time(60)
        assert (await stage.sessions().get_session(sid)).status == "EXPIRED"

    async def test_max_lifetime_counts_through_work_and_from_the_last_restore(self, stage: Stage) -> None:
        sid = await stage.session(policy=lasting(max_lifetime=100))
        stage.clock.pass_time(60)
        await stage.started_run(sid, lease=3_600)
        stage.clock.pass_time(40)
        shown = await stage.sessions().get_session(sid)
        assert (shown.status, shown.lifecycle[-1].reason) == ("EXPIRED", "max_lifetime")
        await stage.sessions().restore_session(sid)
        stage.clock.pass_time(100 - MICROSECOND)
        assert (await stage.sessions().get_session(sid)).status == "ACTIVE"
        stage.clock.pass_time(MICROSECOND)
        assert (await stage.sessions().get_session(sid)).status == "EXPIRED"

    async def test_a_clock_that_steps_back_expires_nothing_and_moves_no_time_backwards(self, stage: Stage) -> None:
        sid = await stage.session(policy=lasting(idle=60))
        first = await stage.sessions().rename_session(sid, "one")
        stage.clock.step_wall(-3_600)
        second = await stage.sessions().rename_session(sid, "two")
        assert (second.status, second.version) == ("ACTIVE", 2)
        assert second.updated_at == first.updated_at
        assert second.expires_at == first.expires_at

    async def test_a_write_decided_before_the_expiry_does_not_commit_after_it(self, stage: Stage) -> None:
        """``not_after``: the clock passes the instant between load and commit."""
        sid = await stage.session(policy=lasting(idle=60))
        racing = RivalStore(stage.store)
        slow = Stage(racing, stage.clock)

        async def the_hour_strikes() -> None:
            stage.clock.step_wall(60)

        racing.rival = the_hour_strikes
        with pytest.raises(SessionExpired):
            await slow.sessions().append_message(sid, said("too late"))
        assert await stage.kinds(sid) == ["session_expired"]

    async def test_expire_is_for_those_who_govern(self, stage: Stage) -> None:
        sid = await stage.session()
        for who in (ADA, ADAS_AGENT, AGENT):
            async with refused(stage, sid, NotAllowed):
                await stage.sessions(who).expire_session(sid)
        assert (await stage.sessions(ADMIN).expire_session(sid)).status == "EXPIRED"
        async with refused(stage, sid, SessionExpired):
            await stage.sessions().append_message(sid, said("late"))
        async with refused(stage, sid, SessionExpired):
            await stage.sessions().close_session(sid)

    # -- retention

    async def test_retention_counts_from_the_close_and_is_exact(self, stage: Stage) -> None:
        sid = await stage.session(policy=lasting(retention=60))
        await stage.sessions().close_session(sid)
        stage.clock.step_wall(60 - MICROSECOND)
        assert (await stage.sessions().get_session(sid)).status == "CLOSED"
        stage.clock.step_wall(MICROSECOND)
        with pytest.raises(SessionDeleted):
            await stage.sessions().get_session(sid)
        assert (await stage.record(sid)).lifecycle[-1].reason == "retention"
        await stage.sweep()
        assert await stage.log(sid) == ()

    async def test_nothing_is_erased_unless_somebody_asks(self, stage: Stage) -> None:
        sid = await stage.session()
        await stage.sessions().append_message(sid, said("kept"))
        await stage.sessions().close_session(sid)
        stage.clock.pass_time(20 * 365 * 86_400)
        await stage.sweep()
        assert (await stage.sessions().restore_session(sid)).messages[0].content == "kept"

    # -- the sweeper

    async def test_the_sweeper_does_what_nobody_met(self, stage: Stage) -> None:
        idle = await stage.session(policy=lasting(idle=60))
        kept = await stage.session(policy=lasting(retention=30))
        lost = await stage.session()
        untouched = await stage.session()
        await stage.sessions().close_session(kept)
        await stage.started_run(lost, lease=10)
        stage.clock.pass_time(61)
        async with unchanged(stage, untouched):
            report = await stage.sweep()
        assert (report.expired, report.deleted, report.runs_settled) == (1, 1, 1)
        assert (await stage.record(idle)).status == "EXPIRED"
        assert (await stage.record(kept)).status == "DELETED"
        assert (await stage.record(lost)).turn is None
        assert (await stage.sweep()).visited == 0

    async def test_the_sweeper_comes_again_to_a_session_that_was_busy(self, stage: Stage) -> None:
        sid = await stage.session(policy=lasting(idle=60))
        _, attempt = await stage.started_run(sid, lease=3_600)
        stage.clock.pass_time(100)
        await stage.sweep()
        assert (await stage.record(sid)).status == "ACTIVE"
        await stage.runs().complete_run(sid, attempt)
        stage.clock.pass_time(60)
        assert (await stage.sweep()).expired == 1

    async def test_an_interrupted_erasure_is_finished_by_the_sweeper(self, stage: Stage) -> None:
        sid = await stage.session()
        for batch in range(6):
            await stage.sessions().append_messages(sid, [said(f"{batch}/{n}") for n in range(100)])
        ref = SessionRef("acme", sid)
        # The tombstone alone, as a process leaves it that dies before the first step of the erasure.
        await stage.opened.committer.submit(DeleteSession(ref=ref, principal=ADA))
        assert await stage.store.erase(ref, 10) == 10
        report = await stage.sweep()
        assert report.rows_erased > 500
        assert await stage.log(sid) == ()
        assert (await stage.sweep()).visited == 0
