"""The turn, the queue, leases and attempts."""

from __future__ import annotations

import asyncio

import pytest

from satchel.domain.run import Attempt, Run
from satchel.errors import IllegalTransition, InvalidInput, QueueFull, RunActive, RunFenced, RunNotFound
from satchel.testing.stage import ADA, ADAS_AGENT, ADMIN, AGENT, Stage, refused, said, unchanged
from satchel.testing.suite import StoreSuite

MICROSECOND = 0.000001


class RunSuite(StoreSuite):
    async def test_a_run_is_added_started_and_completed(self, stage: Stage) -> None:
        sid = await stage.session()
        runs = stage.runs()
        added = await runs.add_run(sid, goal="find out why", input="修复启动失败", agent="coding", metadata={"k": 1})
        assert (added.status, added.number, added.attempt, added.version) == ("READY", 1, 0, 1)
        assert (added.goal, added.agent, added.metadata) == ("find out why", "coding", {"k": 1})
        assert added.run_id.startswith("run_")
        assert added.input == said("修复启动失败")
        stage.clock.pass_time(2)
        started = await runs.start_run(sid, added.run_id)
        assert (started.status, started.attempt) == ("RUNNING", 1)
        stage.clock.pass_time(1.25)
        attempt = Attempt(added.run_id, 1)
        await runs.add_step(sid, attempt, "gpt", input_tokens=10, output_tokens=5)
        await runs.add_step(sid, attempt, "gpt", total_tokens=7)
        ended = await runs.complete_run(sid, attempt)
        assert (ended.status, ended.stop_reason, ended.duration_ms, ended.steps) == ("COMPLETED", "end_turn", 1_250, 2)
        assert (ended.usage.input_tokens, ended.usage.output_tokens, ended.usage.total_tokens) == (10, 5, 22)
        shown = await stage.sessions().get_session(sid)
        assert (shown.status, shown.run_count, shown.usage.total_tokens) == ("ACTIVE", 1, 22)
        assert await stage.kinds(sid) == ["run_added", "message", "run_started", "run_step", "run_step", "run_ended"]

    async def test_a_steps_total_is_the_sum_where_nobody_gave_one(self, stage: Stage) -> None:
        sid = await stage.session()
        _, attempt = await stage.started_run(sid)
        await stage.runs().add_step(sid, attempt, "gpt", input_tokens=54, output_tokens=114)
        await stage.runs().add_step(sid, attempt, "gpt", input_tokens=54, output_tokens=114, total_tokens=200)
        steps = [event.data for event in await stage.log(sid) if event.kind == "run_step"]
        assert [step["total_tokens"] for step in steps] == [168, 200]

    async def test_a_runs_input_is_said_by_whoever_added_the_run(self, stage: Stage) -> None:
        sid = await stage.session()
        for name in ("starts", "is cancelled", "waits on"):
            await stage.runs(ADA).add_run(sid, input=name, agent="shop", on_busy="queue")
        first, second, _ = (await stage.sessions().get_session(sid)).runs
        await stage.runs(AGENT).start_run(sid, first.run_id)
        await stage.runs(ADMIN).cancel_run(sid, second.run_id)
        await stage.sessions(ADMIN).close_session(sid)
        said_by = {event.data["content"]: event.actor for event in await stage.log(sid) if event.kind == "message"}
        assert said_by == dict.fromkeys(("starts", "is cancelled", "waits on"), "user:ada")

    async def test_a_step_takes_no_longer_than_every_copy_can_say(self, stage: Stage) -> None:
        sid = await stage.session()
        _, attempt = await stage.started_run(sid)
        for duration in (-1, 1 << 53, 1.5, True):
            with pytest.raises(InvalidInput, match="duration_ms"):
                await stage.runs().add_step(sid, attempt, "gpt", duration_ms=duration)  # type: ignore[arg-type]  # wrong on purpose
        await stage.runs().add_step(sid, attempt, "gpt", duration_ms=(1 << 53) - 1)
        await stage.runs().complete_run(sid, attempt)
        copy = await stage.sessions().fork_session(sid)
        assert [run.steps for run in copy.runs] == [1]

    async def test_message_and_run_are_one_commit_for_a_run_that_starts_at_once(self, stage: Stage) -> None:
        sid = await stage.session()
        run, _ = await stage.started_run(sid, input="go")
        assert {event.version for event in await stage.log(sid)} == {1}
        assert (run.status, run.input_seq, run.version) == ("RUNNING", 2, 1)

    # -- the turn

    async def test_one_run_has_the_turn(self, stage: Stage, second: Stage) -> None:
        sid = await stage.session()
        told = await asyncio.gather(
            *(door.runs().add_run(sid, start=True) for door in (stage, second, stage, second)), return_exceptions=True
        )
        (won,) = [one for one in told if isinstance(one, Run)]
        assert [one.run_id for one in told if isinstance(one, RunActive)] == [won.run_id] * 3
        assert (await stage.record(sid)).runs == 1

    async def test_a_run_is_claimed_by_one_worker(self, stage: Stage, second: Stage) -> None:
        sid = await stage.session()
        run = await stage.runs().add_run(sid)
        told = await asyncio.gather(
            *(door.runs().start_run(sid, run.run_id) for door in (stage, second, stage)), return_exceptions=True
        )
        assert sum(isinstance(one, Run) for one in told) == 1
        assert sum(isinstance(one, IllegalTransition) for one in told) == 2

    async def test_a_queued_run_goes_when_its_turn_comes_in_order(self, stage: Stage) -> None:
        sid = await stage.session()
        runs = stage.runs()
        _, attempt = await stage.started_run(sid, input="one")
        two = await runs.add_run(sid, input="two", on_busy="queue")
        three = await runs.add_run(sid, input="three", on_busy="queue", start=True)
        assert (two.status, three.status) == ("READY", "READY")
        shown = await stage.sessions().get_session(sid)
        assert (shown.active_run_id, shown.queued_run_ids) == (attempt.run_id, (two.run_id, three.run_id))
        async with refused(stage, sid, RunActive, run_id=attempt.run_id):
            await runs.start_run(sid, two.run_id)
        before = await stage.record(sid)
        await runs.complete_run(sid, attempt)
        after = await stage.record(sid)
        assert after.version == before.version + 1
        assert after.turn is not None
        assert (after.turn.run_id, after.turn.status) == (two.run_id, "READY")
        async with refused(stage, sid, RunActive, run_id=two.run_id):
            await runs.start_run(sid, three.run_id)
        await runs.start_run(sid, two.run_id)

    async def test_a_queued_users_message_is_told_when_its_run_starts_and_once(self, stage: Stage) -> None:
        sid = await stage.session()
        runs = stage.runs()
        _, attempt = await stage.started_run(sid, input="one")
        two = await runs.add_run(sid, input=said("two", extra=[1.50]), on_busy="queue")
        assert [message.content for message in await stage.sessions().messages(sid)] == ["one"]
        assert (await runs.get_run(sid, two.run_id)).input == said("two", extra=[1.5])
        await runs.complete_run(sid, attempt)
        await runs.start_run(sid, two.run_id)
        await runs.complete_run(sid, Attempt(two.run_id, 1))
        told = [(message.content, message.run_id, message.status) for message in await stage.sessions().messages(sid)]
        assert told == [("one", attempt.run_id, "complete"), ("two", two.run_id, "complete")]
        assert (await runs.get_run(sid, two.run_id)).input == said("two", extra=[1.5])

    async def test_a_cancelled_waiting_runs_message_is_marked_unanswered(self, stage: Stage) -> None:
        sid = await stage.session()
        runs = stage.runs()
        _, attempt = await stage.started_run(sid, input="one")
        two = await runs.add_run(sid, input="two", on_busy="queue")
        three = await runs.add_run(sid, input="three", on_busy="queue")
        cancelled = await stage.runs(ADA).cancel_run(sid, two.run_id, reason="never mind")
        assert (cancelled.status, cancelled.stop_reason) == ("CANCELLED", "never mind")
        told = [(message.content, message.status) for message in await stage.sessions().messages(sid)]
        assert told == [("one", "complete"), ("two", "unanswered")]
        await runs.complete_run(sid, attempt)
        assert (await stage.sessions().get_session(sid)).active_run_id == three.run_id
        async with unchanged(stage, sid):
            assert (await runs.cancel_run(sid, two.run_id)).status == "CANCELLED"

    async def test_on_busy_cancel_asks_the_holder_to_stop_and_goes_next(self, stage: Stage) -> None:
        sid = await stage.session()
        runs = stage.runs()
        holder, attempt = await stage.started_run(sid)
        queued = await runs.add_run(sid, on_busy="queue")
        urgent = await runs.add_run(sid, on_busy="cancel")
        assert (await runs.get_run(sid, holder.run_id)).cancel_requested
        assert await runs.renew_run(sid, attempt) is True
        shown = await stage.sessions().get_session(sid)
        assert shown.queued_run_ids == (urgent.run_id, queued.run_id)
        ended = await runs.end_cancelled_run(sid, attempt)
        assert ended.status == "CANCELLED"
        shown = await stage.sessions().get_session(sid)
        assert (shown.active_run_id, shown.queued_run_ids) == (urgent.run_id, (queued.run_id,))

    async def test_on_busy_cancel_ends_a_holder_that_has_not_started(self, stage: Stage) -> None:
        sid = await stage.session()
        runs = stage.runs()
        first = await runs.add_run(sid, input="one")
        second = await runs.add_run(sid, input="two", on_busy="cancel")
        ended = await runs.get_run(sid, first.run_id)
        assert (ended.status, ended.stop_reason) == ("CANCELLED", "replaced")
        assert (await stage.sessions().get_session(sid)).active_run_id == second.run_id
        assert [(m.content, m.status) for m in await stage.sessions().messages(sid)] == [("one", "unanswered")]

    async def test_at_most_16_runs_and_2_mib_of_input_wait(self, stage: Stage) -> None:
        sid = await stage.session()
        runs = stage.runs()
        await stage.started_run(sid)
        for n in range(16):
            await runs.add_run(sid, input=str(n), on_busy="queue")
        for on_busy in ("queue", "cancel"):
            async with refused(stage, sid, QueueFull, size=17, limit=16, setting="limits.queued_runs"):
                await runs.add_run(sid, on_busy=on_busy)
        heavy = await stage.session()
        await stage.started_run(heavy)
        await runs.add_run(heavy, input="x" * (1024 * 1024 - 100), on_busy="queue")
        await runs.add_run(heavy, input="x" * (1024 * 1024 - 100), on_busy="queue")
        async with refused(stage, heavy, QueueFull, limit=2 * 1024 * 1024, setting="limits.queued_input"):
            await runs.add_run(heavy, input="x" * 200, on_busy="queue")

    # -- ends

    async def test_a_terminal_run_stays_as_it_ended(self, stage: Stage) -> None:
        sid = await stage.session()
        runs = stage.runs()
        for end in (runs.complete_run, runs.end_cancelled_run):
            run, attempt = await stage.started_run(sid)
            await end(sid, attempt)
            for late in (
                runs.complete_run(sid, attempt),
                runs.fail_run(sid, attempt, code="x"),
                runs.end_cancelled_run(sid, attempt),
                runs.add_step(sid, attempt, "gpt"),
            ):
                async with refused(stage, sid, RunFenced, run_id=run.run_id):
                    await late
            async with refused(stage, sid, IllegalTransition):
                await runs.start_run(sid, run.run_id)
        (cancelled, completed) = (await runs.list_runs(sid)).items
        async with refused(stage, sid, IllegalTransition, current="COMPLETED", wanted="CANCELLED"):
            await runs.cancel_run(sid, completed.run_id)
        assert cancelled.status == "CANCELLED"

    async def test_the_first_terminal_commit_wins(self, stage: Stage, second: Stage) -> None:
        sid = await stage.session()
        run, attempt = await stage.started_run(sid)
        told = await asyncio.gather(
            stage.runs().complete_run(sid, attempt),
            second.runs().fail_run(sid, attempt, code="broken"),
            stage.runs().end_cancelled_run(sid, attempt),
            return_exceptions=True,
        )
        (won,) = [one for one in told if isinstance(one, Run)]
        assert (await stage.runs().get_run(sid, run.run_id)).status == won.status
        assert (await stage.kinds(sid)).count("run_ended") == 1

    async def test_a_failure_has_a_code_and_a_sentence(self, stage: Stage) -> None:
        sid = await stage.session()
        run, attempt = await stage.started_run(sid)
        await stage.runs().fail_run(sid, attempt, code="agent_error", message="it broke")
        kept = await stage.runs().get_run(sid, run.run_id)
        assert kept.error is not None
        assert (kept.status, kept.error.code, kept.error.message) == ("FAILED", "agent_error", "it broke")

    async def test_open_calls_of_a_run_end_with_it(self, stage: Stage) -> None:
        sid = await stage.session()
        agent, runs = stage.sessions(ADAS_AGENT), stage.runs()
        for end, status in ((runs.complete_run, "unknown"), (runs.end_cancelled_run, "cancelled")):
            _, attempt = await stage.started_run(sid)
            call = await agent.start_tool_call(sid, "t", attempt=attempt)
            loose = await agent.start_tool_call(sid, "t")
            await end(sid, attempt)
            held = {one.seq: one.status for one in await agent.tool_history(sid)}
            assert (held[call.seq], held[loose.seq]) == (status, "started")

    async def test_cancelling_keeps_what_was_written(self, stage: Stage) -> None:
        sid = await stage.session()
        agent, runs = stage.sessions(ADAS_AGENT), stage.runs()
        _, attempt = await stage.started_run(sid, input="go")
        asked = await runs.cancel_run(sid, attempt.run_id)
        assert (asked.status, asked.cancel_requested) == ("RUNNING", True)
        await agent.append_message(sid, said("half an ans", "assistant"), status="interrupted", attempt=attempt)
        await runs.end_cancelled_run(sid, attempt)
        told = [(message.content, message.status) for message in await agent.messages(sid)]
        assert told == [("go", "complete"), ("half an ans", "interrupted")]

    # -- claimable runs

    async def test_ready_runs_are_found_by_agent_and_hide_nobody_elses(self, stage: Stage) -> None:
        runs = stage.runs()
        of: dict[str, list[str]] = {"coding": [], "data": [], "Coding": []}
        for n in range(9):
            name = list(of)[n % 3]
            sid = await stage.session()
            await runs.add_run(sid, agent=name)
            await runs.add_run(sid, agent="data", on_busy="queue")
            of[name].append(sid)
        for name, sids in of.items():
            due = await stage.store.due("ready", agent=name, limit=100)
            assert [ref.session_id for ref in due] == sorted(sids)
        every = await stage.store.due("ready", limit=100)
        assert len(every) == 9
        paged = [await stage.store.due("ready", limit=4)]
        while paged[-1]:
            paged.append(await stage.store.due("ready", after=paged[-1][-1], limit=4))
        assert [ref for page in paged for ref in page] == every

    # -- lists and input

    async def test_runs_are_listed_newest_first_by_status_in_pages(self, stage: Stage) -> None:
        sid = await stage.session()
        runs = stage.runs()
        ids: list[str] = []
        for n in range(5):
            run, attempt = await stage.started_run(sid)
            await (runs.complete_run(sid, attempt) if n % 2 else runs.fail_run(sid, attempt, code="x"))
            ids.append(run.run_id)
        assert [run.run_id for run in await runs.list_runs(sid)] == ids[::-1]
        assert [run.run_id for run in await runs.list_runs(sid, status="COMPLETED")] == [ids[3], ids[1]]
        first = await runs.list_runs(sid, limit=3)
        rest = await runs.list_runs(sid, limit=3, cursor=first.next)
        assert [run.run_id for run in (*first, *rest)] == ids[::-1]
        assert rest.next is None

    async def test_a_wrong_run_is_refused_by_name(self, stage: Stage) -> None:
        sid = await stage.session()
        runs = stage.runs()
        for options, field in (
            ({"on_busy": "wait"}, "on_busy"),
            ({"max_attempts": 0}, "max_attempts"),
            ({"max_attempts": True}, "max_attempts"),
            ({"lease": 0}, "lease"),
            ({"lease": float("nan")}, "lease"),
            ({"goal": 5}, "goal"),
            ({"goal": "a\0b"}, "goal"),
            ({"agent": "a\nb"}, "agent"),
            ({"input": {"role": "robot"}}, "input"),
            ({"metadata": []}, "metadata"),
        ):
            async with refused(stage, sid, InvalidInput, field=field):
                await runs.add_run(sid, **options)
        for verb in (runs.get_run, runs.start_run, runs.cancel_run):
            async with refused(stage, sid, RunNotFound, run_id="run_x"):
                await verb(sid, "run_x")
        async with refused(stage, sid, RunFenced):
            await runs.complete_run(sid, Attempt("run_x", 1))
