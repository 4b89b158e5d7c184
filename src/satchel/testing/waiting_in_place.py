"""A caller's own loop asks a human and waits in place: it goes on where it was, or hears what ended its run."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from satchel.domain.run import Run
from satchel.errors import (
    CancelRequested,
    InvalidInput,
    OutcomeUnknown,
    RunFenced,
    StoreBusy,
    StoreError,
    StoreUnavailable,
)
from satchel.opened import OpenStore
from satchel.sessions import SessionManager
from satchel.store import Change, Outcome, Store
from satchel.testing.stage import ADA, ADAS_AGENT, Stage, refused
from satchel.testing.suite import StoreSuite
from satchel.testing.wrappers import StoreWrapper


async def waiting_now(stage: Stage, sid: str) -> Run:
    """The run that waits for an answer, once there is one."""
    for _ in range(10_000):
        found = (await stage.runs(ADA).list_runs(sid, status="WAITING")).items
        if found:
            return found[0]
        await asyncio.sleep(0.001)
    raise AssertionError("no run asked anything")


class BreakingStore(StoreWrapper):
    """Raises ``trouble`` for the next ``breaks`` writes of a run's start; those of an unknown outcome are there."""

    def __init__(self, inner: Store, trouble: type[StoreError]) -> None:
        super().__init__(inner)
        self.trouble = trouble
        self.breaks = 0

    async def commit(self, changes: Sequence[Change]) -> list[Outcome]:
        if self.breaks and any(event.kind == "run_started" for change in changes for event in change.events):
            self.breaks -= 1
            if self.trouble is OutcomeUnknown:
                await self.inner.commit(changes)
            raise self.trouble("the network is gone")
        return await self.inner.commit(changes)


class WaitingInPlaceSuite(StoreSuite):
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

    @pytest.mark.parametrize("trouble", [StoreUnavailable, StoreBusy, OutcomeUnknown])
    async def test_a_store_that_is_away_when_the_answer_comes_does_not_lose_it(
        self, stage: Stage, trouble: type[StoreError]
    ) -> None:
        sid = await stage.session()
        broken = BreakingStore(stage.store, trouble)
        sessions = SessionManager(OpenStore(broken), ADAS_AGENT)

        async def answer() -> None:
            waits = await waiting_now(stage, sid)
            broken.breaks = 1 if trouble is OutcomeUnknown else 3
            await stage.runs(ADA).answer_run(sid, waits.run_id, "yes")

        answering = asyncio.create_task(answer())
        async with sessions.run(sid, lease=1) as ctx:
            assert await ctx.ask("sure", "?") == "yes"
            assert (ctx.attempt.attempt, broken.breaks) == (2, 0)
        await answering
        assert (await stage.runs().get_run(sid, ctx.run.run_id)).status == "COMPLETED"

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

    async def test_a_run_whose_wait_was_left_ends_with_its_block(self, stage: Stage) -> None:
        sid = await stage.session()
        with pytest.raises(RunFenced):
            async with stage.sessions(ADAS_AGENT).run(sid) as ctx:
                asking = asyncio.create_task(ctx.ask("sure", "?"))
                await waiting_now(stage, sid)
                asking.cancel()  # as a timeout does
                await asyncio.wait({asking})
        run = await stage.runs(ADA).get_run(sid, ctx.run.run_id)
        assert (run.status, run.question) == ("CANCELLED", None)
        assert (await stage.record(sid)).turn is None

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
