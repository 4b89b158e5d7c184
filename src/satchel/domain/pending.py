"""The tool calls that a model asked for, and that nobody has answered yet."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

import msgspec

from satchel.domain.json_text import admit
from satchel.errors import InvalidInput, LimitExceeded

_PLAIN = re.compile(r"[A-Za-z0-9_.-]{1,64}")


class PendingCall(msgspec.Struct, frozen=True, kw_only=True):
    """A tool call in a model's newest answer that has no result.

    ``arguments``: the JSON value that the model wrote; its text, where that is no JSON. ``name`` names the call within its
    run, in every attempt alike: for ``ask``, ``approve`` and ``step``. ``message_seq`` is that of the answer.
    ``may_have_happened``: it was begun before and left in the middle (its worker died or was stopped).
    """

    tool_call_id: str
    tool: str
    arguments: Any
    name: str
    message_seq: int
    may_have_happened: bool = False


class AskedCall(NamedTuple):
    """``arguments`` is the model's text, or a value where a provider gives one."""

    label: str
    tool: str
    arguments: Any


def asked_calls(message: Mapping[str, Any]) -> list[AskedCall]:
    """The calls of an assistant's chat message that have a label, in order."""
    asked = []
    calls = message.get("tool_calls")
    for call in calls if isinstance(calls, list) else ():
        if not isinstance(call, Mapping) or not isinstance(call.get("id"), str):
            continue
        kind = "custom" if call.get("type") == "custom" else "function"
        given = call.get(kind)
        given = given if isinstance(given, Mapping) else {}
        arguments = given.get("input" if kind == "custom" else "arguments")
        asked.append(AskedCall(call["id"], str(given.get("name") or ""), "" if arguments is None else arguments))
    return asked


def pending_calls(
    message: Mapping[str, Any], seq: int, answered: Collection[str], lost: Collection[str]
) -> tuple[PendingCall, ...]:
    """Those of the answer at ``seq`` whose label is not ``answered``. ``lost``: labels of calls that were left in the middle."""
    return tuple(
        PendingCall(
            tool_call_id=call.label,
            tool=call.tool,
            arguments=_read(call.arguments),
            name=f"{call.tool if _PLAIN.fullmatch(call.tool) else 'call'}-{seq}.{place}",
            message_seq=seq,
            may_have_happened=call.label in lost,
        )
        for place, call in enumerate(asked_calls(message))
        if call.label not in answered
    )


def _read(arguments: Any) -> Any:
    """Nothing at all counts as an empty object, as models write it."""
    if not isinstance(arguments, str):
        return arguments
    if not arguments.strip():
        return {}
    try:
        return admit(arguments, field="arguments")[1]
    except (InvalidInput, LimitExceeded):
        return arguments
