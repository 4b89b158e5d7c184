"""What is asked of the arguments of a tool call, by every manager, wherever its store is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from satchel.domain.ids import checked_id
from satchel.domain.json_text import admit_value, kind_of
from satchel.domain.limits import Limits
from satchel.domain.run import Attempt
from satchel.errors import InvalidInput, LimitExceeded

_MEMBERS = ("tool", "arguments", "ok", "result", "error", "tool_call_id", "step")


def is_ok(call: object) -> bool:
    """Of a call that is written in one stroke: as it says, else whether it has no error. Raises InvalidInput."""
    if not isinstance(call, Mapping):
        raise InvalidInput(f"must be an object, not {kind_of(call)}", field="call")
    for name in call:
        if name not in _MEMBERS:
            raise InvalidInput(f"is unknown; one of {', '.join(sorted(_MEMBERS))}", field="call", pointer=f"/{name}")
    ok = call.get("ok", call.get("error") is None)
    if type(ok) is not bool:
        raise InvalidInput("must be true or false", field="call", pointer="/ok")
    return ok


def checked_step(step: object, attempt: Attempt | None, *, field: str, limits: Limits) -> str | None:
    """Raises InvalidInput, LimitExceeded."""
    if step is None:
        return None
    if attempt is None:
        raise InvalidInput("a step belongs to a run: give its attempt", field=field)
    return checked_id(step, field=field, limits=limits)


def admit_outcome(value: Any, *, field: str, limits: Limits) -> bytes:
    """What a tool is given, or gives back, as JSON. Raises InvalidInput, LimitExceeded."""
    body = admit_value(value, field=field, limits=limits)
    if len(body) > limits.agent_message:
        raise LimitExceeded(field=field, size=len(body), limit=limits.agent_message, setting="limits.agent_message")
    return body
