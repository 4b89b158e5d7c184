"""A retry is answered as the first call was, whatever happened to the same thing since; only a Session is read now."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from satchel.domain.decisions.lifecycle import DeleteSession
from satchel.domain.ids import SessionRef
from satchel.domain.run import Attempt
from satchel.domain.state import Want
from satchel.errors import SessionDeleted
from satchel.store import Change, Loaded, Outcome, Store
from satchel.testing.stage import ADA, ADAS_AGENT, TENANT, Stage, said, unchanged
from satchel.testing.suite import StoreSuite
from satchel.testing.wrappers import StoreWrapper

Write = Callable[[], Awaitable[Any]]


class ReplaySuite(StoreSuite):
    async def test_a_retry_shows_what_was_first_answered_whatever_came_after(self, stage: Stage) -> None:
        sid = await stage.session()
        done = await _Work(stage, sid).all()
        await stage.sessions(ADAS_AGENT).close_session(sid)
        async with unchanged(stage, sid):
            for name, write, first in done:
                again = await write()
                assert _flags(again) == {True}, name
                assert _shown(again) == _shown(first), name

    async def test_a_call_that_finds_its_own_commit_later_is_answered_as_at_once(self, stage: Stage) -> None:
        """The store could not tell whether it landed, and much came after it before it was looked for."""
        sid = await stage.session()
        work = _HeldWork(stage, sid)
        done = await work.all()
        held = 0
        for (name, _, first), (writing, store) in zip(done, work.held, strict=True):
            held += not writing.done()
            store.go_on.set()
            told = await writing
            assert _shown(told) == _shown(first), name
            tells_a_former_outcome = name.endswith("start_tool_call") and not told.is_open
            if store.landed.is_set():
                assert _flags(told) == {tells_a_former_outcome}, name
        assert held > 0

    async def test_a_retry_in_a_tombstone_is_not_denied(self, stage: Stage) -> None:
        sid = await stage.session()
        runs = stage.runs()

        async def add() -> Any:
            return await runs.add_run(sid, goal="g", start=True, idempotency_key="add")

        first = await add()
        await runs.add_step(sid, Attempt(first.run_id, 1), "m", input_tokens=5)
        await stage.sessions().delete_session(sid)
        try:
            again = await add()
        except SessionDeleted:  # its rows are erased
            return
        assert (again.run_id, again.replayed) == (first.run_id, True)

    async def test_a_retry_while_a_tombstone_is_erased_is_answered_as_before_or_told_that_it_is_gone(
        self, stage: Stage
    ) -> None:
        sid = await stage.session()
        done = await _Work(stage, sid).all()
        ref = SessionRef(TENANT, sid)
        # The tombstone alone, as a process leaves it that dies before the first step of the erasure.
        await stage.opened.committer.submit(DeleteSession(ref=ref, principal=ADA))
        while await stage.store.erase(ref, 15):
            for name, write, first in done:
                try:
                    again = await write()
                except SessionDeleted:
                    continue
                assert _shown(again) == _shown(first), name


class _Work:
    """Each verb of a session's parts with a key, among them much that changes what others showed."""

    def __init__(self, stage: Stage, sid: str) -> None:
        self._clock = stage.clock
        self._sid = sid
        self._agent = stage.sessions(ADAS_AGENT)
        self._runs = stage.runs()
        self._done: list[tuple[str, Write, Any]] = []

    async def do(self, verb: Callable[..., Awaitable[Any]], *arguments: Any, **options: Any) -> Any:
        key = f"{len(self._done)} {verb.__name__}".replace(" ", "-")

        async def write() -> Any:
            return await verb(self._sid, *arguments, idempotency_key=key, **options)

        await self.before(verb.__name__, key, arguments, options)
        first = await write()
        self._done.append((key, write, first))
        self._clock.pass_time(1)
        return first

    async def before(self, verb: str, key: str, arguments: Sequence[Any], options: Mapping[str, Any]) -> None:
        """What comes before the call."""

    async def all(self) -> list[tuple[str, Write, Any]]:
        await self._parts()
        await self._run()
        return self._done

    async def _parts(self) -> None:
        do, agent = self.do, self._agent
        message = await do(agent.append_message, said("a"))
        await do(agent.append_messages, [said("b"), said("c")])
        for outcome in ({"result": 1}, {"error": "x"}, {"cancelled": True}):
            call = await do(agent.start_tool_call, "t", {"a": 1})
            await do(agent.finish_tool_call, call.seq, **outcome)
        await do(agent.append_tool_history, {"tool": "t", "arguments": {}, "result": 1})
        await do(agent.retract_message, message.message_id)
        await do(agent.update_working_memory, {"append": {"plan": "a"}})
        await do(agent.replace_working_memory, {"goal": "g"}, expected_version=await self._version())

    async def _version(self) -> int:
        return (await self._agent.get_session(self._sid, include=())).version

    async def _run(self) -> None:
        do, agent, runs = self.do, self._agent, self._runs
        run = await do(runs.add_run, goal="g", input="x", memory="run", max_attempts=3)
        attempt = await self._started(run.run_id)
        queued = await do(runs.add_run, goal="q", input="later", on_busy="queue")
        await do(agent.update_working_memory, {"append": {"plan": "mine"}}, attempt=attempt)
        late = await do(runs.add_run, goal="l", memory="run", on_busy="queue")  # has none of the layer before it
        call = await do(agent.start_tool_call, "t", {"z": 1}, step="s", attempt=attempt)
        await do(agent.finish_tool_call, call.seq, result=5, attempt=attempt)
        await do(agent.start_tool_call, "t", {"z": 1}, step="s", attempt=attempt)  # is told the outcome
        await do(runs.add_step, attempt, "m", input_tokens=5, output_tokens=6)
        child = await do(runs.add_child_run, attempt, goal="c")
        await do(runs.add_step, Attempt(child.run_id, 1), "m", input_tokens=1, output_tokens=1)
        await do(agent.update_working_memory, {"append": {"plan": "b"}}, attempt=Attempt(child.run_id, 1))
        await do(runs.complete_run, Attempt(child.run_id, 1))
        await do(agent.update_working_memory, {"set": {"goal": "own", "notes": {"n": 1}}}, attempt=attempt)
        await do(runs.add_step, attempt, "m", input_tokens=7, output_tokens=8)
        await do(runs.hand_back_run, attempt)
        attempt = await self._started(run.run_id)
        await do(agent.update_working_memory, {"append": {"errors": "e"}}, attempt=attempt)
        await do(runs.ask_question, attempt, "how", "?", schema={"type": "integer"})
        await do(runs.answer_run, run.run_id, 5)
        attempt = await self._started(run.run_id)
        await do(runs.ask_question, attempt, "how", "?", schema={"type": "integer"})  # is told the answer
        await do(agent.update_working_memory, {"set": {"goal": "last"}}, attempt=attempt)
        await do(runs.cancel_run, run.run_id)
        await do(runs.complete_run, attempt)
        attempt = await self._started(queued.run_id)
        await do(runs.add_step, attempt, "m", input_tokens=1)
        await do(runs.fail_run, attempt, code="x", message="y")
        attempt = await self._started(late.run_id)
        await do(agent.update_working_memory, {"append": {"plan": "late"}}, attempt=attempt)
        await do(runs.complete_run, attempt)
        waiting = await do(runs.add_run, goal="w", input="never")
        await do(runs.cancel_run, waiting.run_id)

    async def _started(self, run_id: str) -> Attempt:
        return Attempt(run_id, (await self.do(self._runs.start_run, run_id)).attempt)


class _HeldStore(StoreWrapper):
    """Cannot tell of the first changes that landed, and does nothing more until it is to ``go_on``."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.landed = asyncio.Event()
        self.go_on = asyncio.Event()

    async def transact(
        self, wanted: Mapping[SessionRef, Want], decide: Callable[[Loaded], Sequence[Change]]
    ) -> list[Outcome]:
        if self.landed.is_set():
            await self.go_on.wait()
        outcomes = await self.inner.transact(wanted, decide)
        if self.landed.is_set() or Outcome.APPLIED not in outcomes:
            return outcomes
        self.landed.set()
        return [Outcome.UNKNOWN for _ in outcomes]


class _HeldWork(_Work):
    """Each verb through a door of its own that holds it; a retry through the stage's door says what its answer should be."""

    def __init__(self, stage: Stage, sid: str) -> None:
        super().__init__(stage, sid)
        self._stage = stage
        self.held: list[tuple[asyncio.Future[Any], _HeldStore]] = []

    async def before(self, verb: str, key: str, arguments: Sequence[Any], options: Mapping[str, Any]) -> None:
        store = _HeldStore(self._stage.store)
        door = Stage(store, self._stage.clock)
        manager = door.runs() if hasattr(door.runs(), verb) else door.sessions(ADAS_AGENT)
        writing = asyncio.ensure_future(getattr(manager, verb)(self._sid, *arguments, idempotency_key=key, **options))
        landing = asyncio.ensure_future(store.landed.wait())
        await asyncio.wait((writing, landing), return_when=asyncio.FIRST_COMPLETED)
        landing.cancel()
        self.held.append((writing, store))


def _parts_of(answer: Any) -> tuple[Any, ...]:
    if isinstance(answer, tuple):
        return answer
    return (answer.run,) if hasattr(answer, "is_answered") else (answer,)


def _flags(answer: Any) -> set[bool]:
    return {part.replayed for part in _parts_of(answer)}


def _shown(answer: Any) -> list[Any]:
    parts = [(part.version, part.to_dict()) for part in _parts_of(answer)]
    return [*parts, answer.is_answered, answer.answer] if hasattr(answer, "is_answered") else parts
