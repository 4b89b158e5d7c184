"""``/v1/sessions/{id}/tool-history``: what was executed."""

from __future__ import annotations

from typing import Any

import msgspec

from satchel.domain.json_text import NO_JSON
from satchel.domain.tool_call import ToolCall
from satchel.errors import InvalidInput
from satchel.http import given, shapes
from satchel.http.answers import Answer, page_of, texts, written
from satchel.http.asgi import App
from satchel.http.call import Call
from satchel.http.parameters import CURSOR, LIMIT, ORDER, RUN_ID, Parameter
from satchel.http.resources.sessions import ONE, WRITE
from satchel.http.route import Route

PATH = ONE + "/tool-history"


class NewCall(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    tool: str
    arguments: msgspec.Raw = NO_JSON
    ok: bool | None = None
    result: msgspec.Raw = NO_JSON
    error: msgspec.Raw = NO_JSON
    tool_call_id: str | None = None
    step: str | None = None
    expected_version: int | None = None


class Outcome(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    result: msgspec.Raw = NO_JSON
    error: msgspec.Raw = NO_JSON
    cancelled: bool = False
    expected_version: int | None = None


async def append(call: Call) -> App:
    """With an outcome (``ok``, ``result`` or ``error``) the call is recorded in one stroke; without one it is started."""
    given = await call.fields(NewCall)
    options: dict[str, Any] = call.write(given.expected_version) | {"attempt": call.attempt}
    arguments = _value(given.arguments)
    if given.ok is None and not bytes(given.result) and _value(given.error) is None:
        started = await call.sessions.start_tool_call(
            call.session_id, given.tool, arguments, tool_call_id=given.tool_call_id, step=given.step, **options
        )
        return _call(started, 201)
    whole: dict[str, Any] = {"tool": given.tool, "arguments": arguments, "tool_call_id": given.tool_call_id}
    if given.ok is not None:
        whole["ok"] = given.ok
    if bytes(given.result):
        whole["result"] = given.result
    whole["error"] = _value(given.error)
    if given.step is not None:
        whole["step"] = given.step
    call.is_whole("call")
    return _call(await call.sessions.append_tool_history(call.session_id, whole, **options), 201)


async def finish(call: Call) -> App:
    given = await call.fields(Outcome)
    error = _value(given.error)
    if bytes(given.result) and error is not None:
        raise InvalidInput("must not stand beside error", field="result")
    finished = await call.sessions.finish_tool_call(
        call.session_id,
        int(call.path["seq"]),
        result=_value(given.result),
        error=error,
        cancelled=given.cancelled,
        attempt=call.attempt,
        **call.write(given.expected_version),
    )
    return _call(finished, 200)


def _value(raw: msgspec.Raw) -> msgspec.Raw | None:
    """JSON text that is kept as received; null and what is left out are None."""
    return None if bytes(raw) in (b"", b"null") else raw


def _call(call: ToolCall, status: int) -> Answer:
    return written(call.to_json(), call.version, replayed=call.replayed, status=status)


async def read(call: Call) -> App:
    page = await call.sessions.tool_history(call.session_id, **call.query)
    return page_of(texts(page), page.next, "" if page.next is None else call.url(cursor=page.next))


ROUTES = (
    Route(
        method="GET",
        path=PATH,
        name="tool_history",
        about="Tool calls in the order of their starts.",
        handler=read,
        query=(
            RUN_ID,
            Parameter(name="tool", kind="text", about="Only calls of this tool.", least=1),
            Parameter(name="tool_call_id", kind="text", about="Only calls under this label.", least=1),
            Parameter(name="is_open", kind="flag", about="Only open ones, or only ended ones."),
            ORDER,
            LIMIT,
            CURSOR,
        ),
        answers={200: shapes.ToolCallPage},
        errors=(400, 404, 410),
    ),
    Route(
        method="POST",
        path=PATH,
        name="append_tool_history",
        about="A call with its outcome, in one stroke; without ok, result and error it is started. `repeat_of` names an"
        " equal call before it.",
        handler=append,
        body=given.NewToolCall,
        answers={201: shapes.ToolCall},
        errors=(403, 404, 410, *WRITE),
        is_write=True,
        attempt="may",
    ),
    Route(
        method="POST",
        path=PATH + "/{seq}/result",
        name="finish_tool_call",
        about="The outcome of a started call.",
        handler=finish,
        body=given.ToolOutcome,
        body_required=False,
        answers={200: shapes.ToolCall},
        errors=(403, 404, 410, *WRITE),
        is_write=True,
        attempt="may",
    ),
)
