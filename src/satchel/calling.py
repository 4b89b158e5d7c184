"""What a run's context builds on tool calls and questions: a block that is entered or leaves nothing open, a function as a
tool call, and a tool call that a human approves."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol, TypeVar

from satchel.domain.json_text import admit_value, decode
from satchel.domain.question import APPROVAL, Approval
from satchel.edited import EditedCalls
from satchel.engine import ToolUse
from satchel.errors import SatchelError, ToolCallFailed
from satchel.failing import readable

T = TypeVar("T")


class OpensTool(Protocol):
    def __call__(
        self, tool: str, arguments: object = None, *, tool_call_id: str | None = None, step: str | None = None
    ) -> AbstractAsyncContextManager[ToolUse]: ...


class Asks(Protocol):
    def __call__(
        self, name: str, question: str, *, schema: dict[str, Any] | None = None, expires_in: float = ...
    ) -> Awaitable[Any]: ...


async def to_its_end(work: Coroutine[Any, Any, T]) -> T:
    """What was done is written as done, also when its caller is cancelled at that moment: that is heard behind it."""
    doing = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(doing)
    except asyncio.CancelledError:
        doing.add_done_callback(_heard)
        if not doing.done():
            await asyncio.wait({doing})
        raise


def _heard(done: asyncio.Future[Any]) -> None:
    """What it raised is nobody's any more: its caller hears that it was cancelled."""
    if not done.cancelled():
        done.exception()


async def begun(work: Coroutine[Any, Any, T], undo: Callable[[T], Awaitable[object]]) -> T:
    """What ``work`` begins, for a block that is about to be entered. Who is cancelled meanwhile does not know whether it is
    there: it is waited for, and undone."""
    beginning = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(beginning)
    except asyncio.CancelledError:
        await to_its_end(_undone(beginning, undo))
        raise


async def _undone(beginning: Awaitable[T], undo: Callable[[T], Awaitable[object]]) -> None:
    with contextlib.suppress(SatchelError):  # whatever refused it: the cancellation is to be heard
        await undo(await beginning)


async def call_tool(
    open_tool: OpensTool,
    tool: str,
    arguments: object,
    function: Callable[[Any], Any],
    *,
    step: str | None,
    tool_call_id: str | None,
) -> Any:
    """See satchel.engine.RunContext.call."""
    failure: Exception | None = None
    try:
        async with open_tool(tool, arguments, tool_call_id=tool_call_id, step=step) as call:
            if not call.is_replayed:
                try:
                    result = function(arguments)
                    call.result = await result if inspect.isawaitable(result) else result
                except Exception as raised:
                    failure = raised
                    raise
    except Exception as raised:
        if raised is not failure:
            raise
        raise ToolCallFailed(tool=tool, step=step, error=readable(raised)) from raised
    if call.error is not None:
        raise ToolCallFailed(tool=tool, step=step, error=call.error)
    return call.result if call.is_replayed or step is None else as_kept(call.result)


def as_kept(result: Any) -> Any:
    """As every later attempt will be given it."""
    return decode(admit_value(result, field="result"))


async def approve(
    ask: Asks,
    edited: EditedCalls,
    name: str,
    tool: str,
    arguments: object,
    *,
    question: str | None,
    expires_in: float,
) -> Approval:
    """See satchel.engine.RunContext.approve."""
    if question is None:
        question = f"May {tool} be called with {admit_value(arguments, field='arguments').decode()}?"
    answer = await ask(name, question, schema=APPROVAL, expires_in=expires_in)
    if answer["decision"] != "edit":
        return Approval(decision=answer["decision"], arguments=arguments, reason=answer.get("reason", ""))
    edited.note(tool, arguments, answer["arguments"])
    return Approval(decision="edit", arguments=answer["arguments"], reason=answer.get("reason", ""))
