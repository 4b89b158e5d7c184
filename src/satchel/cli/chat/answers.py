"""What a person types as the answer to a question, by the question's schema."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

import msgspec

from satchel.domain.spelling import spelled

YES = frozenset({"y", "yes", "true", "1", "是", "好", "可以", "同意"})
NO = frozenset({"n", "no", "false", "0", "否", "不", "不行", "拒绝"})
DECISIONS = frozenset({"approve", "deny", "edit"})


def is_approval(schema: Any) -> bool:
    """Whether it is decided about a tool call."""
    decision = _member(_member(schema, "properties"), "decision")
    choices = _member(decision, "enum")
    return isinstance(choices, list) and all(isinstance(choice, str) and choice in DECISIONS for choice in choices)


def hint(schema: Any) -> str:
    """What may be typed; empty where any text will do. (The JSON that other doors take is taken too.)"""
    if is_approval(schema):
        return "y: yes   n [REASON]: no   e JSON: with other arguments"
    choices = _choices(schema)
    if choices:
        return "   ".join(f"{number}: {_shown(choice)}" for number, choice in enumerate(choices, start=1))
    match _member(schema, "type"):
        case "boolean":
            return "y or n"
        case "string" | None:
            return "" if schema is None or _member(schema, "type") else "JSON"
        case "integer" | "number":
            return "a number"
        case _:
            return "JSON"


def read_answer(text: str, schema: Any) -> Any:
    """The JSON value that is meant. Raises ValueError with what may be typed; whether it fits the schema in all else is
    said by the store."""
    text = text.strip()
    if is_approval(schema):
        return _read_decision(text)
    choices = _choices(schema)
    if choices:
        return _read_choice(text, choices)
    kind = _member(schema, "type")
    if schema is None or kind == "string":
        return text
    if kind == "boolean":
        return _read_boolean(text)
    return _as_typed(_read_json(text, hint(schema)), text)


def _as_typed(value: Any, text: str) -> Any:
    """JSON whose numbers Python would spell otherwise is handed on as it was typed."""
    return spelled(text.encode()) or value


def _read_decision(text: str) -> Any:
    if text.startswith("{"):
        return _read_whole_decision(text)
    word, _, rest = text.partition(" ")
    rest = rest.strip()
    if word.lower() in YES and not rest:
        return {"decision": "approve"}
    if word.lower() in NO:
        return {"decision": "deny", "reason": rest} if rest else {"decision": "deny"}
    if word.lower() in ("e", "edit") and rest:
        decision = {"decision": "edit", "arguments": _read_json(rest, 'e {"name": "value"}')}
        typed = spelled(rest.encode())
        return decision if typed is None else msgspec.Raw(msgspec.json.encode(decision | {"arguments": typed}))
    raise ValueError("y, n, n REASON, or e and the arguments as JSON")


def _read_whole_decision(text: str) -> Any:
    """As Python and HTTP are answered."""
    wanted = '{"decision": "approve"}, or y, n, n REASON, or e and the arguments as JSON'
    decision = _read_json(text, wanted)
    if not isinstance(decision, dict) or decision.get("decision") not in DECISIONS:
        raise ValueError(wanted)
    return _as_typed(decision, text)


def _read_choice(text: str, choices: list[Any]) -> Any:
    for choice in choices:
        if text == _shown(choice):
            return choice
    with contextlib.suppress(msgspec.DecodeError, RecursionError):  # as JSON writes it
        written = msgspec.json.decode(text)
        if isinstance(written, str) and written in choices:
            return written
    if text.isdecimal() and 1 <= int(text) <= len(choices):
        return choices[int(text) - 1]
    raise ValueError(f"a number from 1 to {len(choices)}, or one of them as it stands")


def _read_boolean(text: str) -> bool:
    if text.lower() in YES:
        return True
    if text.lower() in NO:
        return False
    raise ValueError("y or n")


def _read_json(text: str, wanted: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        raise ValueError(wanted) from None


def _choices(schema: Any) -> list[Any]:
    choices = _member(schema, "enum")
    return choices if isinstance(choices, list) else []


def _member(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, Mapping) else None


def _shown(choice: Any) -> str:
    return choice if isinstance(choice, str) else msgspec.json.encode(choice).decode()
