"""Whatever an argument is, the answer is one of ours: accepted with a meaning that can be read back, or a SatchelError.

The methods are found by inspection: a new one without an entry in PLAIN fails. Each argument of each is given every odd
value in turn, many callers at once and a stranger's write among them, so that they share a batch of the store.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from satchel.domain.event import Event
from satchel.domain.message import Message
from satchel.domain.page import Page
from satchel.domain.policy import Policy
from satchel.domain.principal import Principal
from satchel.domain.run import Attempt, Run
from satchel.domain.stream import TextPosition
from satchel.errors import SatchelError
from satchel.runs import RunManager
from satchel.sessions import SessionManager
from satchel.store import Store
from satchel.stores.memory import MemoryStore
from satchel.stores.sqlite import SqliteStore
from satchel.testing.clock import SettableClock
from satchel.testing.stage import ADA_ELSEWHERE, ADMIN, Stage, said

MANAGERS: tuple[type[Any], ...] = (SessionManager, RunManager)
PATIENCE = 0.05  # seconds for what waits by nature
LINE = b'{"session_id":"their-name","messages":[{"role":"user","content":"hello"}]}'


class Text(str):
    """Equal to a text, and none."""

    __slots__ = ()


ODD: tuple[Any, ...] = (
    None,
    0,
    -1,
    True,
    [],
    {},
    object(),
    b"",
    "",
    "\ud800",
    "a\0b",
    "x" * 100_000,
    2**64,
    float("nan"),
    Text("x"),
)


class World:
    """One session with something of everything in it, and who may do everything with it."""

    def __init__(self, stage: Stage, session_id: str) -> None:
        self.stage = stage
        self.session_id = session_id
        self.sessions = stage.sessions(ADMIN)
        self.runs = stage.runs(ADMIN)
        self.run = ""
        self.waiting = ""
        self.attempt = Attempt("", 0)
        self.message = 0
        self.call = 0

    @classmethod
    async def make(cls, stage: Stage, *, work: str) -> World:
        """``work``: ``none``; ``ready``, a run that has the turn; ``busy``, one that is RUNNING and one that waits;
        ``asking``, one that waits for an answer; ``answered``, one that has it."""
        created = await stage.sessions(ADMIN).create_session(user_id="ada")
        world = cls(stage, created.session_id)
        world.message = (await world.sessions.append_message(created.session_id, said("hello"))).seq
        world.call = (await world.sessions.start_tool_call(created.session_id, "ls", {"path": "."})).seq
        if work != "none":
            run = await world.runs.add_run(created.session_id, start=work != "ready", input="do it")
            world.run, world.attempt = run.run_id, Attempt(run.run_id, run.attempt)
        if work in ("asking", "answered"):
            await world.runs.ask_question(created.session_id, world.attempt, "size", "How big?", here=True)
        if work == "answered":
            await world.runs.answer_run(created.session_id, world.run, "yes")
        if work == "busy":
            world.waiting = (
                await world.runs.add_run(created.session_id, input="and then", on_busy="queue", start=True)
            ).run_id
        return world

    async def read_back(self) -> None:
        """Nothing in the session, or beside it, became unreadable."""
        ref = self.session_id
        session = await self.sessions.get_session(ref)
        shown: list[Any] = [session, await self.sessions.get_working_memory(ref)]
        for page in (
            await self.sessions.messages(ref, include_retracted=True),
            await self.sessions.tool_history(ref),
            await self.sessions.events(ref),
            await self.runs.list_runs(ref),
        ):
            shown.extend(page.items)
        for one in shown:
            msgspec.json.encode(one.to_dict())
        assert len((await self.sessions.events(ref)).items) == session.last_seq
        await self.sessions.context(ref)
        assert b"".join([piece async for piece in self.sessions.export_sessions([ref])])


# A call of each method that is accepted as it stands; and what it needs: see World.make.
PLAIN: dict[str, tuple[str, Callable[[World], dict[str, Any]]]] = {
    "add_child_run": ("busy", lambda w: {"session_id": w.session_id, "parent": w.attempt}),
    "add_run": ("none", lambda w: {"session_id": w.session_id}),
    "add_step": ("busy", lambda w: {"session_id": w.session_id, "attempt": w.attempt, "name": "a model"}),
    "add_text": (
        "busy",
        lambda w: {"session_id": w.session_id, "attempt": w.attempt, "text": "x", "message": 1, "offset": 0},
    ),
    "answer_run": ("asking", lambda w: {"session_id": w.session_id, "run_id": w.run, "answer": "yes"}),
    "append_message": ("none", lambda w: {"session_id": w.session_id, "message": said("hello")}),
    "append_messages": ("none", lambda w: {"session_id": w.session_id, "messages": [said("hello"), said("again")]}),
    "append_tool_history": ("none", lambda w: {"session_id": w.session_id, "call": {"tool": "ls"}}),
    "ask_question": (
        "busy",
        lambda w: {"session_id": w.session_id, "attempt": w.attempt, "name": "size", "question": "How big?"},
    ),
    "cancel_run": ("busy", lambda w: {"session_id": w.session_id, "run_id": w.waiting}),
    "close_session": ("busy", lambda w: {"session_id": w.session_id}),
    "complete_run": ("busy", lambda w: {"session_id": w.session_id, "attempt": w.attempt}),
    "context": ("busy", lambda w: {"session_id": w.session_id}),
    "create_session": ("none", lambda _: {"user_id": "ada"}),
    "delete_session": ("busy", lambda w: {"session_id": w.session_id}),
    "end_cancelled_run": ("busy", lambda w: {"session_id": w.session_id, "attempt": w.attempt}),
    "end_text": (
        "busy",
        lambda w: {
            "session_id": w.session_id,
            "attempt": w.attempt,
            "answer": said("x", "assistant"),
            "message": 1,
        },
    ),
    "events": ("busy", lambda w: {"session_id": w.session_id}),
    "expire_session": ("busy", lambda w: {"session_id": w.session_id}),
    "export_sessions": ("none", lambda w: {"session_ids": [w.session_id]}),
    "fail_run": ("busy", lambda w: {"session_id": w.session_id, "attempt": w.attempt, "code": "agent_error"}),
    "finish_tool_call": ("none", lambda w: {"session_id": w.session_id, "seq": w.call}),
    "follow": ("none", lambda w: {"session_id": w.session_id, "after": 0}),
    "fork_session": ("busy", lambda w: {"session_id": w.session_id}),
    "get_run": ("busy", lambda w: {"session_id": w.session_id, "run_id": w.run}),
    "get_session": ("busy", lambda w: {"session_id": w.session_id}),
    "get_working_memory": ("none", lambda w: {"session_id": w.session_id}),
    "hand_back_run": ("busy", lambda w: {"session_id": w.session_id, "attempt": w.attempt}),
    "import_sessions": ("none", lambda _: {"lines": [LINE], "user_id": "ada"}),
    "keep_waiting": ("busy", lambda w: {"session_id": w.session_id, "run_id": w.waiting}),
    "list_runs": ("busy", lambda w: {"session_id": w.session_id}),
    "list_sessions": ("none", lambda _: {}),
    "messages": ("busy", lambda w: {"session_id": w.session_id}),
    "rename_session": ("none", lambda w: {"session_id": w.session_id, "title": "another"}),
    "renew_run": ("busy", lambda w: {"session_id": w.session_id, "attempt": w.attempt}),
    "replace_working_memory": (
        "none",
        lambda w: {"session_id": w.session_id, "memory": {"goal": "x"}, "expected_version": w.call},
    ),
    "restore_session": ("none", lambda w: {"session_id": w.session_id}),
    "retract_message": ("none", lambda w: {"session_id": w.session_id, "message_id": w.message}),
    "run": ("none", lambda w: {"session_id": w.session_id}),
    "start_run": ("ready", lambda w: {"session_id": w.session_id, "run_id": w.run}),
    "start_tool_call": ("none", lambda w: {"session_id": w.session_id, "tool": "ls"}),
    "tool_history": ("none", lambda w: {"session_id": w.session_id}),
    "transfer_session": ("none", lambda w: {"session_id": w.session_id, "user_id": "bob"}),
    "update_session": ("none", lambda w: {"session_id": w.session_id, "title": "another"}),
    "update_working_memory": (
        "none",
        lambda w: {"session_id": w.session_id, "patch": {"append": {"completed": "a step"}}},
    ),
    "wait_for_answer": ("answered", lambda w: {"session_id": w.session_id, "run_id": w.run}),
}

# An odd value can also stand inside: in the place of one thing, or of one field.
INSIDE: dict[str, tuple[Callable[[Any], Any], ...]] = {
    "answer": (
        lambda odd: said(odd, "assistant"),
        lambda odd: {"role": odd, "content": "x"},
        lambda odd: said("x", "assistant", tool_calls=[{"id": odd}]),
        lambda odd: {"x": odd},
    ),
    "attempt": (lambda odd: Attempt(odd, 1), lambda odd: Attempt("run_x", odd)),
    "call": (
        lambda odd: {"tool": odd},
        lambda odd: {"tool": "ls", "arguments": odd},
        lambda odd: {"tool": "ls", "tool_call_id": odd},
        lambda odd: {"tool": "ls", "ok": odd},
        lambda odd: {"tool": "ls", "step": odd},
        lambda odd: {"tool": "ls", "result": odd, "error": odd},
    ),
    "include": (lambda odd: [odd],),
    "input": (said,),
    "lines": (lambda odd: [odd],),
    "memory": (lambda odd: {"goal": odd}, lambda odd: {"plan": [odd]}, lambda odd: {"notes": {"x": odd}}),
    "message": (
        said,
        lambda odd: {"role": odd, "content": "x"},
        lambda odd: said("x", "tool", tool_call_id=odd),
        lambda odd: said("x", "assistant", tool_calls=[{"id": odd}]),
    ),
    "messages": (lambda odd: [odd], lambda odd: [said("x"), odd]),
    "metadata": (lambda odd: {"x": odd},),
    "parent": (lambda odd: Attempt(odd, 1), lambda odd: Attempt("run_x", odd)),
    "patch": (
        lambda odd: {"set": odd},
        lambda odd: {"set": {"goal": odd}},
        lambda odd: {"append": {"plan": odd}},
        lambda odd: {"remove": {"notes": [odd]}},
        lambda odd: {"clear": [odd]},
    ),
    "policy": (
        lambda odd: Policy(idle=odd),
        lambda odd: Policy(restore_closed=odd),
        lambda odd: Policy(context_window=odd),
        lambda odd: Policy(context_share=odd),
        lambda _: Policy(idle=timedelta.max),
        lambda _: Policy(max_lifetime=timedelta(days=3_000_000), retention=timedelta.max),
    ),
    "position": (lambda odd: TextPosition(odd, 1, 1, 0), lambda odd: TextPosition("run_x", 1, 1, odd)),
    "schema": (
        lambda odd: {"type": odd},
        lambda odd: {"$ref": odd},
        lambda odd: {odd: odd} if type(odd) is str else {"const": odd},
    ),
    "session_ids": (lambda odd: [odd],),
}


def methods() -> Iterator[tuple[type[Any], str]]:
    for manager in MANAGERS:
        for name, _ in inspect.getmembers(manager, inspect.isfunction):
            if not name.startswith("_"):
                yield manager, name


def parameters(manager: type[Any], name: str) -> list[str]:
    found = inspect.signature(getattr(manager, name)).parameters
    listed = inspect.signature(SessionManager.list_sessions).parameters if "filters" in found else {}
    # The cursor of an export is its own.
    return [one for one in (*found, *listed) if one not in ("self", "filters") and not (listed and one == "cursor")]


METHODS = list(methods())


def test_every_method_has_an_entry() -> None:
    assert {name for _, name in METHODS} == set(PLAIN)


@pytest.fixture(params=["memory", pytest.param("sqlite", marks=pytest.mark.full)])
async def stage(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Stage]:
    clock = SettableClock()
    store: Store = MemoryStore(clock=clock)
    if request.param == "sqlite":
        store = SqliteStore(tmp_path / "odd.db", clock=clock)
    made = Stage(store, clock)
    async with made.opened:
        yield made


async def call(world: World, manager: type[Any], name: str, arguments: dict[str, Any]) -> Any:
    """Its answer, of whatever kind the method is."""
    started = getattr(world.sessions if manager is SessionManager else world.runs, name)(**arguments)
    if isinstance(started, AbstractAsyncContextManager):
        async with started as run:
            return run.run
    if isinstance(started, AsyncIterator):
        got: list[Any] = []
        try:
            async with asyncio.timeout(PATIENCE if name == "follow" else None):
                async for one in started:
                    got.append(one)  # noqa: PERF401  # what came before the time was over
        except TimeoutError:
            pass
        return got
    return await started


@pytest.mark.parametrize(("manager", "name"), METHODS, ids=lambda value: getattr(value, "__name__", value))
async def test_the_plain_call_is_accepted(stage: Stage, manager: type[Any], name: str) -> None:
    work, plain = PLAIN[name]
    world = await World.make(stage, work=work)
    await call(world, manager, name, plain(world))


@pytest.mark.parametrize(("manager", "name"), METHODS, ids=lambda value: getattr(value, "__name__", value))
async def test_an_odd_argument_is_accepted_or_refused_and_harms_nobody(
    stage: Stage, manager: type[Any], name: str
) -> None:
    work, plain = PLAIN[name]
    theirs = await stage.session(ADA_ELSEWHERE)
    written = 0
    for parameter in parameters(manager, name):
        values = [*ODD, *(wrap(odd) for wrap in INSIDE.get(parameter, ()) for odd in ODD)]
        worlds = await asyncio.gather(*[World.make(stage, work=work) for _ in values])
        calls: list[Awaitable[Any]] = [
            call(world, manager, name, without_filters(parameter, plain(world)) | {parameter: value})
            for world, value in zip(worlds, values, strict=True)
        ]
        neighbour = stage.sessions(ADA_ELSEWHERE).append_message(theirs, said(f"{written}"))
        half = len(calls) // 2
        answers = await asyncio.gather(*calls[:half], neighbour, *calls[half:], return_exceptions=True)
        assert isinstance(answers.pop(half), Message), f"a stranger's write beside {name}({parameter}=…)"
        written += 1
        for value, answer in zip(values, answers, strict=True):
            told = f"{name}({parameter}={value!r:.60})"
            if isinstance(answer, BaseException) and not isinstance(answer, SatchelError):
                pytest.fail(f"{told}: {answer!r}")
            for one in answer if isinstance(answer, (list, tuple, Page)) else [answer]:
                if isinstance(one, (Message, Run, Event)):
                    msgspec.json.encode(one.to_dict())
        if name != "delete_session":
            await asyncio.gather(*[world.read_back() for world in worlds])
    assert len((await stage.sessions(ADA_ELSEWHERE).messages(theirs)).items) == written
    assert (await stage.sessions(ADMIN).list_sessions()).items
    assert (await stage.sweep()).failed == 0


def without_filters(parameter: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """Filters of an export are looked at where no ids are given."""
    if "session_ids" in arguments and parameter in inspect.signature(SessionManager.list_sessions).parameters:
        return {}
    return arguments


@pytest.mark.parametrize("manager", MANAGERS)
async def test_a_manager_is_made_of_a_store_and_a_principal_or_not_at_all(stage: Stage, manager: type[Any]) -> None:
    for odd in ODD:
        for given in ({"store": odd}, {"principal": odd}, {"policy": odd}):
            if manager is RunManager and "policy" in given:
                continue
            try:
                manager(**{"store": stage.opened, "principal": ADMIN} | given)
            except SatchelError:
                continue
            assert odd is None, given
    for odd in ODD[1:]:
        for field in ("tenant_id", "subject", "role", "acting_for"):
            with pytest.raises(SatchelError):
                Principal(**{"tenant_id": "acme", "subject": "shop", "role": "agent"} | {field: odd})
