"""``sessions.run``: a caller's own loop waits for its turn, holds its run, and leaves none behind."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from satchel.errors import RunFenced, ServiceRefused, StoreUnavailable
from satchel.opened import OpenStore
from satchel.sessions import SessionManager
from satchel.store import Change, Outcome, Store
from satchel.testing.stage import ADAS_AGENT, AGENT, Stage, said
from satchel.testing.suite import StoreSuite
from satchel.testing.wrappers import StoreWrapper


class FailingRenewals(StoreWrapper):
    """The first renewal of a lease raises ``error``."""

    def __init__(self, inner: Store, error: Exception) -> None:
        super().__init__(inner)
        self.error = error
        self.renewed = 0

    async def commit(self, changes: Sequence[Change]) -> list[Outcome]:
        if changes and not any(change.events for change in changes):
            self.renewed += 1
            if self.renewed == 1:
                raise self.error
        return await self.inner.commit(changes)


class RefusingEnds(StoreWrapper):
    """As a service in front of which a proxy has a bad day."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.refused = 0

    async def commit(self, changes: Sequence[Change]) -> list[Outcome]:
        kinds = {event.kind for change in changes for event in change.events}
        if kinds & {"run_ended", "tool_call_finished", "message"}:
            self.refused += 1
            raise ServiceRefused(status=403, problem="http", detail="not now")
        return await self.inner.commit(changes)


class OwnRunSuite(StoreSuite):
    async def test_sessions_run_waits_for_its_turn_and_completes(self, stage: Stage) -> None:
        sid = await stage.session()
        sessions = stage.sessions(ADAS_AGENT)
        order: list[str] = []

        async def work(name: str) -> None:
            async with sessions.run(sid, goal=name, input=name) as run:
                order.append(name)
                async with run.tool("t", {"of": name}) as call:
                    call.result = name
                await run.append_message(said(f"answer to {name}", "assistant"))

        await asyncio.wait_for(asyncio.gather(work("one"), work("two"), work("three")), 30)
        shown = await sessions.get_session(sid)
        assert [run.status for run in shown.runs] == ["COMPLETED"] * 3
        told = [message.content for message in shown.messages]
        assert told == [text for name in order for text in (name, f"answer to {name}")]

    async def test_sessions_run_fails_its_run_when_the_block_raises(self, stage: Stage) -> None:
        sid = await stage.session()
        with pytest.raises(ZeroDivisionError):
            async with stage.sessions(AGENT).run(sid) as run, run.tool("divide"):
                _ = 1 / 0
        shown = await stage.sessions().get_session(sid)
        assert shown.runs[0].error is not None
        assert (shown.runs[0].status, shown.runs[0].error.code) == ("FAILED", "agent_error")
        assert "ZeroDivisionError" in shown.runs[0].error.message
        assert shown.tool_history[0].status == "failed"

    @pytest.mark.parametrize("whose", ["a child run", "another run"])
    async def test_a_block_that_another_runs_fence_ends_leaves_no_run_behind(self, stage: Stage, whose: str) -> None:
        sid, elsewhere = await stage.session(), await stage.session()
        sessions, runs = stage.sessions(ADAS_AGENT), stage.runs()
        _, lost = await stage.started_run(elsewhere)
        await runs.fail_run(elsewhere, lost, code="lost")
        with pytest.raises(RunFenced):
            async with sessions.run(sid) as run:
                if whose == "another run":
                    await sessions.append_message(elsewhere, said("late", "assistant"), attempt=lost)
                async with run.child("part") as child:
                    await runs.end_cancelled_run(sid, child.attempt)
                    await child.append_message(said("late", "assistant"))
        ended = await runs.get_run(sid, run.run.run_id)
        assert (ended.status, ended.error and ended.error.code) == ("FAILED", "agent_error")

    @pytest.mark.parametrize(
        "error",
        [
            StoreUnavailable("gone"),
            ServiceRefused(status=500, problem="internal_error", detail=""),
            RuntimeError("odd"),
        ],
        ids=["away", "refused", "odd"],
    )
    async def test_a_renewal_that_fails_once_loses_no_run(self, stage: Stage, error: Exception) -> None:
        sid = await stage.session()
        failing = FailingRenewals(stage.store, error)
        async with SessionManager(OpenStore(failing), ADAS_AGENT).run(sid, lease=0.15) as run:
            for _ in range(1_000):
                if failing.renewed > 1:
                    break
                await asyncio.sleep(0.01)
        assert failing.renewed > 1
        assert (await stage.runs().get_run(sid, run.run.run_id)).status == "COMPLETED"

    @pytest.mark.parametrize("leaving", [ValueError, asyncio.CancelledError])
    async def test_what_a_block_is_left_by_is_heard_whatever_refuses_its_end(
        self, stage: Stage, leaving: type[BaseException]
    ) -> None:
        refusing = RefusingEnds(stage.store)
        sessions = SessionManager(OpenStore(refusing), ADAS_AGENT)

        async def leave(*blocks: str) -> None:
            async with sessions.run(await stage.session()) as run, contextlib.AsyncExitStack() as stack:
                opens: dict[str, Callable[[], Any]] = {
                    "child": lambda: run.child("part"),
                    "tool": lambda: run.tool("t"),
                    "stream": run.stream,
                }
                entered = [await stack.enter_async_context(opens[name]()) for name in blocks]
                if blocks == ("stream",):
                    await entered[0].write("half")
                raise leaving

        for blocks in ((), ("child",), ("tool",), ("stream",), ("child", "tool")):
            refusing.refused = 0
            with pytest.raises(leaving):
                await leave(*blocks)
            assert refusing.refused > len(blocks)

    async def test_a_repeated_call_of_sessions_run_does_not_execute_the_run_twice(self, stage: Stage) -> None:
        sid = await stage.session()
        sessions = stage.sessions(ADAS_AGENT)
        executed = 0
        async with sessions.run(sid, input="go", idempotency_key="key-1") as run:
            executed += 1
            with pytest.raises(RunFenced) as met:
                async with sessions.run(sid, input="go", idempotency_key="key-1"):
                    executed += 1
            assert met.value.run_id == run.run.run_id
        with pytest.raises(RunFenced):
            async with sessions.run(sid, input="go", idempotency_key="key-1"):
                executed += 1
        shown = await sessions.get_session(sid)
        assert (executed, shown.run_count, shown.message_count) == (1, 1, 1)

    @pytest.mark.parametrize("turn", ["free", "taken"])
    async def test_a_caller_that_leaves_while_its_run_is_added_leaves_no_run_behind(
        self, stage: Stage, turn: str
    ) -> None:
        sid = await stage.session()
        if turn == "taken":
            await stage.started_run(sid)

        async def start() -> None:
            async with stage.sessions(ADAS_AGENT).run(sid, input="impatient"):
                await asyncio.sleep(60)

        for turns in range(12):
            starting = asyncio.create_task(start())
            for _ in range(turns):
                await asyncio.sleep(0)
            starting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await starting
        kept = await stage.record(sid)
        assert kept.queue == ()
        assert (kept.turn is not None) == (turn == "taken")

    async def test_leaving_the_wait_for_the_turn_cancels_the_run(self, stage: Stage) -> None:
        sid = await stage.session()
        await stage.started_run(sid)

        async def wait_for_ever() -> None:
            async with stage.sessions(ADAS_AGENT).run(sid, input="impatient"):
                raise AssertionError("it never had the turn")

        waiting = asyncio.create_task(wait_for_ever())
        for _ in range(1_000):
            if (await stage.record(sid)).queue:
                break
            await asyncio.sleep(0.001)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert (await stage.record(sid)).queue == ()
        assert [m.status for m in await stage.sessions().messages(sid)] == ["unanswered"]

    async def test_what_a_model_asked_for_and_nobody_did_is_pending(self, stage: Stage) -> None:
        sid = await stage.session()

        def asked(label: str | None, name: str, arguments: object) -> dict[str, object]:
            labelled = {} if label is None else {"id": label}
            return labelled | {"type": "function", "function": {"name": name, "arguments": arguments}}

        async with stage.sessions(ADAS_AGENT).run(sid, input="go") as run:
            assert await run.pending_calls() == ()
            first = [asked("a", "look", "{}"), asked("b", "look", "{}")]
            await run.append_message({"role": "assistant", "content": None, "tool_calls": first})
            async with run.tool("look", {}, tool_call_id="a"):
                assert [call.tool_call_id for call in await run.pending_calls()] == [
                    "b"
                ]  # nobody does one twice at once
            async with run.tool("look", {}, tool_call_id="b"):
                pass
            assert await run.pending_calls() == ()
            second = [  # whose provider counts its labels anew each time
                asked("a", "pay", '{"amount": 6.20}'),
                asked(None, "pay", "{}"),
                asked("b", "支付", "not JSON"),
                asked("c", "pay", ""),
            ]
            answer = await run.append_message({"role": "assistant", "content": None, "tool_calls": second})
            await run.append_message(said("one mom", "assistant"), interrupted=True)
            pending = await run.pending_calls()
            assert [(call.tool_call_id, call.tool, call.arguments) for call in pending] == [
                ("a", "pay", {"amount": 6.2}),
                ("b", "支付", "not JSON"),
                ("c", "pay", {}),
            ]
            names = [f"pay-{answer.seq}.0", f"call-{answer.seq}.1", f"pay-{answer.seq}.2"]
            assert [call.name for call in pending] == names
            assert {call.message_seq for call in pending} == {answer.seq}
            await run.append_message({"role": "tool", "tool_call_id": "b", "content": "no such tool"})
            assert [call.tool_call_id for call in await run.pending_calls()] == ["a", "c"]
            await run.append_message(said("I give up.", "assistant"))
            assert await run.pending_calls() == ()
        async with stage.sessions(ADAS_AGENT).run(sid, input="again") as run:
            assert await run.pending_calls() == ()  # what an earlier run's model asked for is not this one's to do
