"""A function as a tool call, for blocking code: it runs in the calling thread."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Protocol

from satchel.calling import as_kept
from satchel.engine import ToolUse
from satchel.errors import ToolCallFailed
from satchel.failing import readable


class HasTools(Protocol):
    def tool(
        self, tool: str, arguments: object = None, *, tool_call_id: str | None = None, step: str | None = None
    ) -> AbstractContextManager[ToolUse]: ...


def call_tool(
    ctx: HasTools,
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
        with ctx.tool(tool, arguments, tool_call_id=tool_call_id, step=step) as call:
            if not call.is_replayed:
                try:
                    call.result = function(arguments)
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
