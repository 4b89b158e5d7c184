"""Leases and attempts: who holds a run, and what becomes of it when its worker is gone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from satchel.domain.run import Attempt
from satchel.errors import (
    RunFenced,
)
from satchel.testing.stage import ADAS_AGENT, Stage, refused, said
from satchel.testing.suite import StoreSuite
from satchel.testing.wrappers import RivalStore

MICROSECOND = 0.000001


class LeaseSuite(StoreSuite):
    async def test_a_lost_workers_run_is_failed_at_the_leases_end_and_not_before(self, stage: Stage) -> None:
        sid = await stage.session()
        agent, runs = stage.sessions(ADAS_AGENT), stage.runs()
        _, attempt = await stage.started_run(sid, lease=30)
        call = await agent.start_tool_call(sid, "run_shell", {}, attempt=attempt)
        waiting = await runs.add_run(sid, on_busy="queue")
        stage.clock.pass_lease_time(30 - MICROSECOND)
        assert (await runs.get_run(sid, attempt.run_id)).status == "RUNNING"
        stage.clock.pass_lease_time(MICROSECOND)
        lost = await runs.get_run(sid, attempt.run_id)
        assert lost.error is not None
        assert (lost.status, lost.error.code, lost.stop_reason) == ("FAILED", "worker_lost", "worker_lost")
        (kept,) = await agent.tool_history(sid)
        assert (kept.seq, kept.status, kept.ok) == (call.seq, "unknown", None)
        assert (await stage.sessions().get_session(sid)).active_run_id == waiting.run_id
        assert (await stage.log(sid))[-1].actor == "operator"

    async def test_a_lease_of_another_boot_is_over(self, stage: Stage) -> None:
        sid = await stage.session()
        _, attempt = await stage.started_run(sid, lease=3_600)
        stage.clock.reboot()
        assert (await stage.runs().get_run(sid, attempt.run_id)).status == "FAILED"

    async def test_a_lease_is_not_touched_by_wall_time(self, stage: Stage) -> None:
        sid = await stage.session()
        _, attempt = await stage.started_run(sid, lease=30)
        stage.clock.step_wall(86_400)
        stage.clock.step_wall(-2 * 86_400)
        assert (await stage.runs().get_run(sid, attempt.run_id)).status == "RUNNING"

    async def test_renewals_keep_a_run_alive_and_are_not_lost_under_appends(self, stage: Stage, second: Stage) -> None:
        sid = await stage.session()
        _, attempt = await stage.started_run(sid, lease=30)
        for _ in range(20):
            stage.clock.pass_lease_time(20)
            await asyncio.gather(
                stage.runs().renew_run(sid, attempt),
                *(door.sessions().append_message(sid, said("x")) for door in (second, stage, second)),
            )
        kept = await stage.record(sid)
        assert kept.lease_until == stage.clock.lease_now + 30_000_000
        assert (await stage.runs().get_run(sid, attempt.run_id)).status == "RUNNING"

    async def test_a_renewal_under_a_rivals_append_is_kept_and_so_is_the_append(self, stage: Stage) -> None:
        """Both ways round: revisions are compared, not versions, which a renewal does not move."""
        sid = await stage.session()
        _, attempt = await stage.started_run(sid, lease=30)
        stage.clock.pass_lease_time(10)
        racing = RivalStore(stage.store)
        slow = Stage(racing, stage.clock)

        async def renew() -> None:
            await stage.runs().renew_run(sid, attempt)

        async def append() -> None:
            await stage.sessions().append_message(sid, said("x"))

        racing.rival = renew
        await slow.sessions().append_message(sid, said("x"))
        assert (await stage.record(sid)).lease_until == stage.clock.lease_now + 30_000_000
        stage.clock.pass_lease_time(10)
        racing.rival = append
        await slow.runs().renew_run(sid, attempt)
        kept = await stage.record(sid)
        assert (kept.lease_until, kept.messages) == (stage.clock.lease_now + 30_000_000, 2)

    async def test_the_attempt_that_still_has_the_run_is_not_taken_for_dead_by_its_own_write(
        self, stage: Stage
    ) -> None:
        sid = await stage.session()
        _, attempt = await stage.started_run(sid, lease=30)
        stage.clock.pass_lease_time(100)
        assert await stage.runs().renew_run(sid, attempt) is False
        assert (await stage.runs().get_run(sid, attempt.run_id)).status == "RUNNING"

    async def test_a_run_with_attempts_left_is_claimed_again_and_its_first_worker_fenced(self, stage: Stage) -> None:
        sid = await stage.session()
        runs, agent = stage.runs(), stage.sessions(ADAS_AGENT)
        run = await runs.add_run(sid, input="go", max_attempts=2)
        await runs.start_run(sid, run.run_id, lease=30)
        old = Attempt(run.run_id, 1)
        call = await agent.start_tool_call(sid, "t", attempt=old)
        stage.clock.pass_time(30)
        returned = await runs.get_run(sid, run.run_id)
        assert (returned.status, returned.attempt) == ("READY", 1)
        again = await runs.start_run(sid, run.run_id, lease=30)
        assert again.attempt == 2
        for late in (
            runs.renew_run(sid, old),
            runs.complete_run(sid, old),
            agent.append_message(sid, said("late", "assistant"), attempt=old),
            agent.update_working_memory(sid, {"append": {"plan": "x"}}, attempt=old),
            agent.start_tool_call(sid, "t", attempt=old),
        ):
            async with refused(stage, sid, RunFenced, run_id=run.run_id, attempt=1):
                await late
        assert {one.seq: one.status for one in await agent.tool_history(sid)} == {call.seq: "unknown"}
        assert [message.content for message in await agent.messages(sid)] == ["go"]
        stage.clock.pass_time(30)
        last = await runs.get_run(sid, run.run_id)
        assert (last.status, last.attempt) == ("FAILED", 2)

    async def test_a_run_asked_to_stop_is_cancelled_when_its_worker_is_lost(self, stage: Stage) -> None:
        sid = await stage.session()
        run, _ = await stage.started_run(sid, lease=30, max_attempts=3)
        await stage.runs().cancel_run(sid, run.run_id)
        stage.clock.pass_time(30)
        assert (await stage.runs().get_run(sid, run.run_id)).status == "CANCELLED"

    # -- clients that wait for the turn

    async def test_a_client_that_died_while_it_waited_does_not_block_the_queue(self, stage: Stage) -> None:
        sid = await stage.session()
        runs = stage.runs()
        _, attempt = await stage.started_run(sid, lease=3_600)
        lost = await runs.add_run(sid, input="mine", on_busy="queue", start=True, lease=30)
        kept = await runs.add_run(sid, input="a worker's", on_busy="queue")
        stage.clock.pass_lease_time(30 - MICROSECOND)
        assert (await runs.get_run(sid, lost.run_id)).status == "READY"
        stage.clock.pass_lease_time(MICROSECOND)
        ended = await runs.get_run(sid, lost.run_id)
        assert (ended.status, ended.stop_reason) == ("CANCELLED", "client_lost")
        assert (await runs.get_run(sid, attempt.run_id)).status == "RUNNING"
        assert [(m.content, m.status) for m in await stage.sessions().messages(sid)] == [("mine", "unanswered")]
        await runs.complete_run(sid, attempt)
        assert (await stage.sessions().get_session(sid)).active_run_id == kept.run_id

    async def test_a_client_that_lives_keeps_its_place_also_when_its_turn_has_come(self, stage: Stage) -> None:
        sid = await stage.session()
        runs = stage.runs()
        _, attempt = await stage.started_run(sid, lease=3_600)
        waiting = await runs.add_run(sid, on_busy="queue", start=True, lease=30)
        for _ in range(3):
            stage.clock.pass_lease_time(20)
            await runs.keep_waiting(sid, waiting.run_id)
        await runs.complete_run(sid, attempt)
        stage.clock.pass_lease_time(20)
        async with unchanged_but_for_its_lease(stage, sid):
            await runs.keep_waiting(sid, waiting.run_id)
        stage.clock.pass_lease_time(20)
        assert (await runs.start_run(sid, waiting.run_id)).status == "RUNNING"

    async def test_a_run_whose_client_waits_is_no_workers_to_claim(self, stage: Stage) -> None:
        sid = await stage.session()
        runs = stage.runs()
        _, attempt = await stage.started_run(sid, lease=3_600)
        await runs.add_run(sid, on_busy="queue", start=True, lease=30)
        await runs.complete_run(sid, attempt)
        assert await stage.store.due("ready", limit=10) == []
        stage.clock.pass_lease_time(30)
        assert [ref.session_id for ref in await stage.store.due("sweep", limit=10)] == [sid]
        assert (await stage.sweep()).runs_settled == 1
        assert (await stage.record(sid)).turn is None

    async def test_the_lease_that_ends_first_brings_the_sweeper(self, stage: Stage) -> None:
        sid = await stage.session()
        await stage.started_run(sid, lease=100)
        for lease in (50, 10, 70):
            await stage.runs().add_run(sid, on_busy="queue", start=True, lease=lease)
        ended: list[int] = []
        for second in range(1, 101):
            stage.clock.pass_lease_time(1)
            if (await stage.sweep()).visited:
                ended.append(second)
        assert ended == [10, 50, 70, 100]
        assert {run.status for run in await stage.runs().list_runs(sid)} == {"CANCELLED", "FAILED"}


@asynccontextmanager
async def unchanged_but_for_its_lease(stage: Stage, session_id: str) -> AsyncIterator[None]:
    before = await stage.record(session_id)
    yield
    after = await stage.record(session_id)
    assert (after.version, after.last_seq, after.updated_at) == (before.version, before.last_seq, before.updated_at)
    assert after.revision == before.revision + 1
