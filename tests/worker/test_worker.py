"""A worker in this process: what it takes, what agents are given, how runs end."""

from __future__ import annotations

import asyncio
import collections
import inspect
import logging
import sys
import threading
import time
from typing import ClassVar, Literal

import pytest

from satchel import InvalidInput, OpenStore, Principal, RunContext, RunError, RunFailed, RunFenced, Worker
from satchel.domain.ids import SessionRef
from satchel.errors import StoreCorrupt
from satchel.store import Snapshot
from satchel.testing.wrappers import StoreWrapper, UnknownStore
from satchel.worker.carried import CarriedContext
from tests.worker.stage import TENANT, Stage, until, working


async def greet(ctx: RunContext) -> None:
    async with ctx.tool("look", {"at": "the door"}) as call:
        call.result = {"who": "ada"}
    await ctx.step("model", input_tokens=3, output_tokens=4)
    await ctx.update_working_memory({"set": {"next_action": "wait"}})
    await ctx.append_message({"role": "assistant", "content": f"hello, {ctx.run.input['content']}"})


# -- what is executed


async def test_a_run_is_executed_and_its_writes_name_the_agent(stage: Stage) -> None:
    async with working(stage.store, {"shop": greet}):
        run = await stage.ended(await stage.added("shop", input="ada"))
    assert (run.status, run.stop_reason, run.attempt, run.usage.total_tokens) == ("COMPLETED", "end_turn", 1, 7)
    said = await stage.sessions.messages(run.session_id)
    assert [message.content for message in said] == ["ada", "hello, ada"]
    assert (await stage.sessions.get_working_memory(run.session_id)).next_action == "wait"
    log = await stage.log(run.session_id)
    assert [(event.kind, event.actor) for event in log] == [
        ("run_added", "user:ada"),
        ("message", "user:ada"),  # who added the run said it
        ("run_started", "operator"),  # the claim is the machine's own
        *[
            (kind, "agent:shop")
            for kind in ("tool_call_started", "tool_call_finished", "run_step", "working_memory_changed", "message")
        ],
        ("run_ended", "agent:shop"),
    ]


async def test_runs_of_every_tenant_user_and_agent_served_are_taken(stage: Stage) -> None:
    seen: list[tuple[str, str]] = []

    def agent(name: str) -> object:
        async def note(ctx: RunContext) -> None:
            session = await ctx.session()
            seen.append((name, session.user_id))

        return note

    people = [Principal.user(user, tenant_id=tenant) for tenant in ("acme", "umbrella") for user in ("ada", "bob")]
    async with working(stage.store, {"one": agent("one"), "two": agent("two")}):  # type: ignore[dict-item]  # async functions
        for who in people:
            theirs = Stage(stage.store, who)
            for name in ("one", "two"):
                await theirs.ended(await theirs.added(name))
    assert collections.Counter(seen) == {(name, user): 2 for name in ("one", "two") for user in ("ada", "bob")}


async def test_runs_that_nobody_here_serves_hide_nothing(stage: Stage) -> None:
    for _ in range(80):
        await stage.added("nobodys")
        await stage.added("")
    mine = [await stage.added("shop", input="ada") for _ in range(40)]  # more than one look finds
    async with working(stage.store, {"shop": greet}, concurrency=2):
        assert {(await stage.ended(run)).status for run in mine} == {"COMPLETED"}
    assert len(await stage.store.store.due("ready", agent="nobodys", limit=1000)) == 80


async def test_a_run_that_its_own_client_starts_is_not_taken(stage: Stage) -> None:
    agent = Stage(stage.store, Principal.agent("shop", tenant_id="acme", acting_for="ada"))
    sid = await stage.session()
    async with working(stage.store, {"shop": greet}):
        async with agent.sessions.run(sid, agent="shop") as first:
            waiting = await agent.runs.add_run(sid, agent="shop", on_busy="queue", start=True)
            await first.append_message({"role": "assistant", "content": "mine"})
        await asyncio.sleep(0.15)
        assert (await stage.now(waiting)).status == "READY"


async def test_a_run_of_another_agent_that_got_the_turn_meanwhile_is_not_taken(stage: Stage) -> None:
    class Late(StoreWrapper):
        """Its look at what is ready is as old as can be."""

        async def due(
            self,
            queue: Literal["ready", "sweep"],
            *,
            agent: str | None = None,
            after: SessionRef | None = None,
            limit: int,
        ) -> list[SessionRef]:
            return await self.inner.due(queue, agent=None if queue == "ready" else agent, after=after, limit=limit)

    run = await stage.added("other")
    async with working(OpenStore(Late(stage.store.store)), {"shop": greet}):
        await stage.ended(await stage.added("shop", input="ada"))
        assert (await stage.now(run)).status == "READY"


async def test_as_many_at_once_as_asked_for_and_no_more(stage: Stage) -> None:
    most = now = 0
    lock = threading.Lock()

    async def count(ctx: RunContext) -> None:
        nonlocal most, now
        with lock:
            now += 1
            most = max(most, now)
        for _ in range(200):  # until all are there that will come
            if most >= 3:
                break
            await asyncio.sleep(0.02)
        await asyncio.sleep(0.05)
        with lock:
            now -= 1

    runs = [await stage.added("shop") for _ in range(9)]
    async with working(stage.store, {"shop": count}, concurrency=3):
        for run in runs:
            await stage.ended(run)
    assert most == 3


async def test_the_queue_of_a_session_is_worked_off_in_its_order_one_at_a_time(stage: Stage) -> None:
    order: list[tuple[str, int]] = []

    async def note(ctx: RunContext) -> None:
        order.append(("in", ctx.run.number))
        await asyncio.sleep(0.01)
        order.append(("out", ctx.run.number))

    sid = await stage.session()
    runs = [await stage.added("shop", sid, input=str(number)) for number in range(1, 6)]
    async with working(stage.store, {"shop": note}):
        await stage.ended(runs[-1])
    assert order == [(what, number) for number in range(1, 6) for what in ("in", "out")]


async def test_two_workers_never_execute_the_same_run(stage: Stage) -> None:
    executed: list[str] = []

    async def note(ctx: RunContext) -> None:
        executed.append(ctx.run.run_id)

    other = OpenStore(stage.store.store)  # its own committer, as another process would have
    async with working(stage.store, {"shop": note}, concurrency=4), working(other, {"shop": note}, concurrency=4):
        runs = [await stage.added("shop") for _ in range(60)]
        for run in runs:
            await stage.ended(run)
    assert sorted(executed) == sorted(run.run_id for run in runs)


# -- what agents are given


async def test_the_context_of_a_worker_has_every_name_of_the_contract(stage: Stage) -> None:
    for name, promised in vars(RunContext).items():
        if name.startswith("_"):
            continue
        given = getattr(CarriedContext, name)
        assert isinstance(given, property) == isinstance(promised, property), name
        if not isinstance(promised, property):
            assert inspect.iscoroutinefunction(given) == inspect.iscoroutinefunction(promised), name
            assert inspect.signature(given).parameters.keys() == inspect.signature(promised).parameters.keys(), name


async def test_an_agent_asks_which_tools_ran(stage: Stage) -> None:
    told: list[object] = []

    async def agent(ctx: RunContext) -> None:
        for number in range(3):
            async with ctx.tool("press", number) as call:
                call.result = number
        page = await ctx.tool_history(run_id=ctx.run.run_id, tool="press", is_open=False, order="desc", limit=2)
        told.extend(call.result for call in page)
        told.extend(call.result for call in await ctx.tool_history(run_id=ctx.run.run_id, limit=2, cursor=None))
        told.append((await ctx.tool_history(tool_call_id="nobody's")).items)

    async with working(stage.store, {"shop": agent}):
        for _ in range(2):
            run = await stage.added("shop")
            assert (await stage.ended(run)).status == "COMPLETED"
            assert told == [2, 1, 0, 1, ()]
            told.clear()


async def test_agent_code_has_a_thread_and_a_loop_of_its_own(stage: Stage) -> None:
    places: list[tuple[int, asyncio.AbstractEventLoop]] = []

    async def note(ctx: RunContext) -> None:
        places.append((threading.get_ident(), asyncio.get_running_loop()))

    async with working(stage.store, {"shop": note}, concurrency=1):
        for _ in range(2):
            await stage.ended(await stage.added("shop"))
    assert places[0] == places[1]  # kept from run to run
    assert places[0][0] != threading.get_ident()
    assert places[0][1] is not asyncio.get_running_loop()


async def test_a_factory_is_called_once_in_each_thread_and_on_its_loop(stage: Stage) -> None:
    made: list[int] = []
    used: set[tuple[int, int]] = set()

    class Shop:
        def __init__(self) -> None:
            asyncio.get_running_loop()
            made.append(threading.get_ident())
            self.home = threading.get_ident()

        async def run(self, ctx: RunContext) -> None:
            used.add((self.home, threading.get_ident()))
            await asyncio.sleep(0.02)

    async with working(stage.store, {"shop": Shop}, concurrency=2):
        for run in [await stage.added("shop") for _ in range(8)]:
            await stage.ended(run)
    assert 1 <= len(made) == len(set(made)) <= 2
    assert all(home == here for home, here in used)


async def test_a_factory_that_fails_is_heard_before_a_run_is_claimed(stage: Stage) -> None:
    run = await stage.added("shop")

    def broken() -> None:
        raise RuntimeError("no key for the model")

    with pytest.raises(RuntimeError, match="no key"):
        await Worker(stage.store, {"shop": broken}).run_forever()  # type: ignore[dict-item]  # that is the point
    assert (await stage.now(run)).status == "READY"


# -- how runs end


async def test_an_agent_that_raises_fails_its_run_with_a_sentence_and_the_log_has_the_rest(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(ctx: RunContext) -> None:
        async with ctx.tool("pay", {"cents": 5}):
            raise ValueError("the card\x00 was refused")

    async with working(stage.store, {"shop": fail}):
        run = await stage.ended(await stage.added("shop", max_attempts=3))
        await stage.ended(await stage.added("shop"))  # the worker goes on
    assert run.error is not None
    assert (run.status, run.attempt, run.error.code) == ("FAILED", 1, "agent_error")
    assert run.error.message == "ValueError: the card\ufffd was refused"
    assert await stage.calls(run.session_id) == ["failed"]
    assert b"Traceback" not in b"".join(event.body for event in await stage.log(run.session_id))
    logged = [record for record in caplog.records if record.levelno == logging.ERROR and record.exc_info]
    assert any(run.run_id in record.getMessage() for record in logged)


async def test_an_agent_may_fail_its_run_with_a_code_of_its_own(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    async def fail(ctx: RunContext) -> None:
        raise RunFailed("out_of_stock", "no lamps\x00 left")

    async with working(stage.store, {"shop": fail}):
        run = await stage.ended(await stage.added("shop"))
    assert run.error == RunError(code="out_of_stock", message="no lamps\ufffd left")
    assert "Traceback" not in caplog.text
    own = Stage(stage.store, Principal.agent("shop", tenant_id=TENANT, acting_for="ada"))
    sid = await own.session()
    with pytest.raises(RunFailed):
        async with own.sessions.run(sid) as ctx, ctx.child("look") as child:
            await fail(child)
    ended = (await own.runs.list_runs(sid)).items
    assert [one.error and one.error.code for one in ended] == ["out_of_stock", "out_of_stock"]


async def test_a_worker_for_one_session_takes_no_other_runs(stage: Stage) -> None:
    async def quick(ctx: RunContext) -> None: ...

    mine = await stage.sessions.create_session()
    others = await stage.added("quick")
    async with working(stage.store, {"other": quick, "quick": quick}, session=mine):
        runs = [await stage.added("quick", mine.session_id) for _ in range(3)]
        for run in runs:
            assert (await stage.ended(run)).status == "COMPLETED"
    assert (await stage.now(others)).status == "READY"


@pytest.mark.parametrize("how", ["exit", "interrupt", "cancel itself"])
async def test_an_agent_ends_its_run_and_not_its_worker(stage: Stage, how: str) -> None:
    async def leave(ctx: RunContext) -> None:
        if how == "exit":
            sys.exit(3)
        raise KeyboardInterrupt if how == "interrupt" else asyncio.CancelledError

    async with working(stage.store, {"shop": leave, "greet": greet}, concurrency=1):
        run = await stage.ended(await stage.added("shop"))
        assert (await stage.ended(await stage.added("greet", input="ada"))).status == "COMPLETED"
    assert run.error is not None
    assert (run.status, run.error.code) == ("FAILED", "agent_error")


async def test_sessions_that_cannot_be_read_keep_no_other_from_its_worker(stage: Stage) -> None:
    bad = {(await stage.added("shop")).session_id for _ in range(40)}  # more than one look finds

    class PartlyCorrupt(StoreWrapper):
        asked: ClassVar[collections.Counter[str]] = collections.Counter()

        async def snapshot(self, ref: SessionRef, **what: object) -> Snapshot:
            if ref.session_id in bad:
                self.asked[ref.session_id] += 1
                raise StoreCorrupt(f"session {ref.session_id}", trouble="cannot be read")
            return await self.inner.snapshot(ref, **what)  # type: ignore[arg-type]  # handed on

    store = PartlyCorrupt(stage.store.store)
    async with working(OpenStore(store), {"shop": greet}, concurrency=1):
        for _ in range(10):
            assert (await stage.ended(await stage.added("shop", input="ada"))).status == "COMPLETED"
        await until(lambda: store.asked.keys() == bad)
        await asyncio.sleep(0.3)
    assert max(store.asked.values()) <= 3


async def test_commits_of_unknown_outcome_execute_no_run_twice(stage: Stage) -> None:
    executed: list[str] = []

    async def note(ctx: RunContext) -> None:
        executed.append(ctx.run.run_id)
        await greet(ctx)

    store = UnknownStore(stage.store.store, seed=3)
    async with working(OpenStore(store), {"shop": note}):
        runs = [await stage.added("shop", input="ada") for _ in range(20)]
        assert {(await stage.ended(run)).status for run in runs} == {"COMPLETED"}
    assert store.unknown_applied > 10
    assert sorted(executed) == sorted(run.run_id for run in runs)
    for run in runs:
        assert await stage.calls(run.session_id) == ["succeeded"]
        assert len((await stage.sessions.messages(run.session_id)).items) == 2


# -- stopped from outside


async def test_a_cancelled_run_is_told_at_once_and_keeps_what_it_wrote(stage: Stage) -> None:
    heard: list[tuple[bool, float]] = []
    inside = threading.Event()

    async def wait(ctx: RunContext) -> None:
        await ctx.append_message({"role": "assistant", "content": "half an"}, interrupted=True)
        try:
            async with ctx.tool("wait"):
                inside.set()
                await asyncio.sleep(60)
        except asyncio.CancelledError:
            heard.append((ctx.is_cancelled, time.monotonic()))
            raise

    async with working(stage.store, {"shop": wait}):
        run = await stage.added("shop", input="go")
        after = await stage.added("shop", run.session_id)
        await until(inside.is_set)
        asked = time.monotonic()
        await stage.runs.cancel_run(run.session_id, run.run_id)
        ended = await stage.ended(run)
        assert (ended.status, ended.stop_reason) == ("CANCELLED", "cancelled")
        assert [flag for flag, _ in heard] == [True]
        assert heard[0][1] - asked < 2  # the lease is 30 s
        assert (await stage.calls(run.session_id))[0] == "cancelled"
        said = await stage.sessions.messages(run.session_id)
        assert [(message.content, message.status) for message in said][:2] == [
            ("go", "complete"),
            ("half an", "interrupted"),
        ]
        await stage.reached(after, "RUNNING")  # the queue goes on
        await stage.runs.cancel_run(after.session_id, after.run_id)


async def test_an_agent_that_returns_when_it_is_told_is_cancelled_and_not_completed(stage: Stage) -> None:
    inside = threading.Event()

    async def poll(ctx: RunContext) -> None:
        inside.set()
        while not ctx.is_cancelled:
            time.sleep(0.01)  # noqa: ASYNC251  # an agent that blocks still sees the flag

    async with working(stage.store, {"shop": poll}):
        run = await stage.added("shop")
        await until(inside.is_set)
        await stage.runs.cancel_run(run.session_id, run.run_id)
        assert (await stage.ended(run, within=4)).status == "CANCELLED"  # by itself: the grace time is longer


async def test_an_agent_that_does_not_let_go_is_fenced_after_the_grace_time(stage: Stage) -> None:
    refusals: list[type[BaseException]] = []
    release = threading.Event()
    inside = threading.Event()

    async def stuck(ctx: RunContext) -> None:
        try:
            async with ctx.tool("block"):
                inside.set()
                release.wait(20)
                await asyncio.sleep(0)
        except asyncio.CancelledError:
            pass
        for late in (ctx.append_message({"role": "assistant", "content": "late"}), ctx.session()):
            try:
                await late
            except RunFenced as refused:
                refusals.append(type(refused))

    async with working(stage.store, {"shop": stuck, "greet": greet}, concurrency=1, grace=0.3):
        run = await stage.added("shop")
        after = await stage.added("greet", run.session_id, input="ada")
        await until(inside.is_set)
        asked = time.monotonic()
        await stage.runs.cancel_run(run.session_id, run.run_id)
        ended = await stage.ended(run)
        assert 0.25 < time.monotonic() - asked < 5
        assert (ended.status, ended.error) == ("CANCELLED", None)
        # Its slot is free although its code still blocks.
        assert (await stage.ended(after)).status == "COMPLETED"
        release.set()
        await until(lambda: len(refusals) == 2)
    assert await stage.calls(run.session_id) == ["cancelled", "succeeded"]
    assert [message.content for message in await stage.sessions.messages(run.session_id)] == ["ada", "hello, ada"]


async def test_the_first_terminal_commit_wins(stage: Stage) -> None:
    """Completion against cancellation: one of them, said once in the log, and its caller was told so."""

    async def short(ctx: RunContext) -> None:
        await ctx.append_message({"role": "assistant", "content": "done"})

    won: collections.Counter[str] = collections.Counter()
    async with working(stage.store, {"shop": short}):
        for turn in range(40):
            run = await stage.added("shop")
            await asyncio.sleep(turn % 20 / 400)
            asked = await asyncio.gather(stage.runs.cancel_run(run.session_id, run.run_id), return_exceptions=True)
            ended = await stage.ended(run)
            won[ended.status] += 1
            kinds = [event.kind for event in await stage.log(run.session_id)]
            assert kinds.count("run_ended") == 1
            if isinstance(asked[0], BaseException):
                assert ended.status == "COMPLETED"
    assert won.keys() == {"COMPLETED", "CANCELLED"}, "they hardly met: this shows nothing"


async def test_closing_the_session_stops_its_agent(stage: Stage) -> None:
    heard = threading.Event()
    inside = threading.Event()

    async def wait(ctx: RunContext) -> None:
        inside.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            heard.set()
            raise

    async with working(stage.store, {"shop": wait}):
        run = await stage.added("shop")
        await until(inside.is_set)
        await stage.sessions.close_session(run.session_id)
        await until(heard.is_set)
        ended = await stage.now(run)
    assert (ended.status, ended.stop_reason) == ("CANCELLED", "session_closed")


# -- construction


@pytest.mark.parametrize(
    "options", [{"concurrency": 0}, {"concurrency": True}, {"lease": 0.01}, {"lease": "1"}, {"grace": -1}]
)
async def test_options_that_make_no_sense_are_refused(stage: Stage, options: dict[str, object]) -> None:
    with pytest.raises(InvalidInput):
        Worker(stage.store, {"shop": greet}, **options)  # type: ignore[arg-type]  # that is the point


async def test_what_is_no_agent_is_refused(stage: Stage) -> None:
    async def nothing() -> None: ...

    def blocking(ctx: RunContext) -> None: ...

    for wrong in (nothing, blocking, 3, "agents:shop"):
        with pytest.raises(InvalidInput):
            Worker(stage.store, {"shop": wrong})  # type: ignore[dict-item]  # that is the point
    for agents in ({}, {"": greet}, {"a\nb": greet}):
        with pytest.raises(InvalidInput):
            Worker(stage.store, agents)
