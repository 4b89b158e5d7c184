"""The blocking managers are the async ones without await: written by a tool, current, and truly typed."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import AbstractContextManager
from itertools import islice
from typing import Any, assert_type

import pytest

import satchel
import satchel.sync
from satchel import Context, Event, Imported, Message, Page, Run, Session, SweepReport, ToolCall, ToolUse, WorkingMemory
from satchel.sync import Iteration, RunContext, RunManager, SessionManager, Sweeper
from satchel.working import RunInProgress
from tools.make_sync import MIRRORS, Mirror, is_current

PAIRS = [
    (satchel.SessionManager, SessionManager),
    (satchel.RunManager, RunManager),
    (satchel.Sweeper, Sweeper),
    (satchel.RunContext, RunContext),
]


@pytest.mark.parametrize("mirror", MIRRORS, ids=lambda mirror: mirror.name)
def test_the_blocking_modules_are_current(mirror: Mirror) -> None:
    assert is_current(mirror), "run `python -m tools.make_sync`"


def public(owner: type) -> dict[str, object]:
    """Also what it has from the parts that it is composed of."""
    found = {name: value for part in reversed(owner.mro()) for name, value in vars(part).items()}
    return {name: value for name, value in found.items() if not name.startswith("_")}


@pytest.mark.parametrize(("asynchronous", "blocking"), PAIRS, ids=lambda owner: owner.__name__)
def test_every_public_method_is_there_with_its_parameters_and_its_docstring(asynchronous: type, blocking: type) -> None:
    assert public(asynchronous).keys() == public(blocking).keys()
    for name, there in public(asynchronous).items():
        here = getattr(blocking, name)
        assert isinstance(there, property) == isinstance(here, property)
        if callable(there) and callable(here):
            assert shape(here) == shape(there), name
        if asynchronous is not satchel.RunContext:  # a contract: the class behind it may say more
            assert (here.__doc__ or "") == (there.__doc__ or "").replace("async with", "with"), name


def test_the_context_of_a_run_documents_what_its_contract_does() -> None:
    for name, there in public(satchel.RunContext).items():
        said = vars(RunInProgress)[name].__doc__ or getattr(there, "__doc__", None)
        words = said and said.replace("async with", "with").replace("await ", "")
        assert getattr(RunContext, name).__doc__ == words, name


def shape(function: Callable[..., Any]) -> list[tuple[str, object, object]]:
    parameters = inspect.signature(function).parameters.values()
    return [(parameter.name, parameter.kind, parameter.default) for parameter in parameters]


def test_types_are_those_that_the_caller_holds() -> None:
    """Checked by mypy as much as by running it."""
    with satchel.sync.open("memory:") as store:
        manager, runs = SessionManager(store), RunManager(store)
        session = assert_type(manager.create_session(), Session)
        session_id = session.session_id
        message = manager.append_message(session_id, {"role": "user", "content": "hello"})
        assert_type(message, Message)
        assert_type(manager.append_messages(session_id, [message.body]), tuple[Message, ...])
        assert_type(manager.messages(session_id), Page[Message])
        assert_type(manager.append_tool_history(session_id, {"tool": "read_file"}), ToolCall)
        assert_type(manager.get_working_memory(session_id), WorkingMemory)
        assert_type(manager.context(session_id), Context)
        assert_type(runs.list_runs(session_id), Page[Run])
        assert_type(manager.follow(session_id, after=0), Iteration[Event])
        assert_type(manager.export_sessions([session_id]), Iteration[bytes])
        assert_type(manager.import_sessions([]), Iteration[Imported])
        assert_type(manager.run(session_id), AbstractContextManager[RunContext])
        with manager.run(session_id) as run:
            assert_type(run, RunContext)
            with run.tool("read_file") as call:
                assert_type(call, ToolUse)
        assert_type(Sweeper(store).sweep_once(), SweepReport)
        with manager.follow(session_id, after=0) as events:
            assert [event.seq for event in islice(events, 2)] == [1, 2]
