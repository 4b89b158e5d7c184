"""Messages, tool calls and events as a person reads them. What is stored is still unsafe here; `visible` makes it safe."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from satchel import Event, Message, ToolCall
from satchel.cli.chat.answers import hint


def moment(at: datetime) -> str:
    """``2026-01-31 08:30:05``, UTC."""
    return at.strftime("%Y-%m-%d %H:%M:%S")


def short_moment(at: datetime, *, now: datetime | None = None) -> str:
    """``01-31 08:30``, UTC; ``2025-01-31`` when that is not this year."""
    this_year = (datetime.now(UTC) if now is None else now).year
    return at.strftime("%m-%d %H:%M" if at.year == this_year else "%Y-%m-%d")


def shortest_moment(at: datetime, *, now: datetime | None = None) -> str:
    """``08:30`` today, ``01-31`` this year, ``2025`` before; UTC."""
    today = datetime.now(UTC) if now is None else now
    if at.date() == today.date():
        return at.strftime("%H:%M")
    return at.strftime("%m-%d" if at.year == today.year else "%Y")


def took(milliseconds: int | None) -> str:
    if milliseconds is None:
        return ""
    return f"{milliseconds} ms" if milliseconds < 1000 else f"{milliseconds / 1000:,.1f} s"


def count(number: int, one: str, more: str | None = None) -> str:
    """``1 message``, ``1,200 messages``."""
    return f"{number:,} {one if number == 1 else more or one + 's'}"


def as_text(value: Any) -> str:
    """A JSON value: text as it is, nothing for null, anything else as JSON."""
    if value is None:
        return ""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def called(tool: str, arguments: Any) -> str:
    """``run_shell(command=ls -l, timeout=3)``."""
    if isinstance(arguments, Mapping):
        return f"{tool}({', '.join(f'{name}={as_text(value)}' for name, value in arguments.items())})"
    return f"{tool}({as_text(arguments)})"


def said(body: Any) -> str:
    """What a chat message says: its text, its parts, the tools it asks for."""
    if not isinstance(body, Mapping):
        return as_text(body)
    content = body.get("content")
    parts = content if isinstance(content, list) else [content]
    lines = [_part(part) for part in parts if part is not None]
    calls = body.get("tool_calls")
    lines += [f"→ {_asked(call)}" for call in (calls if isinstance(calls, list) else ())]
    return "\n".join(lines)


def _part(part: Any) -> str:
    if isinstance(part, Mapping) and isinstance(part.get("text"), str):
        return str(part["text"])
    return as_text(part)


def _asked(call: Any) -> str:
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping):
        return as_text(call)
    return f"{as_text(function.get('name'))}({as_text(function.get('arguments'))})"


def message_text(message: Message) -> str:
    return said(message.data) if message.role is not None else message.body.decode()


def outcome(call: ToolCall) -> str:
    return as_text(call.error) if call.error is not None else as_text(call.result)


def happened(event: Event) -> str:
    """An event's body in a few words."""
    body = event.data
    if event.kind == "message":
        is_chat = isinstance(body, Mapping) and "role" in body
        return f"{as_text(body['role'])}: {said(body)}" if is_chat else f"{event.format}: {as_text(body)}"
    if not isinstance(body, Mapping):
        return as_text(body)
    match event.kind:
        case "tool_call_started" | "tool_call_recorded":
            ended = f" {body['status']}: {_ended(body)}" if "status" in body else ""
            return called(as_text(body.get("tool")), body.get("arguments")) + ended
        case "tool_call_finished":
            return f"of {event.refers_to}: {as_text(body.get('status'))} {_ended(body)}".rstrip()
        case "question_asked":
            typed = hint(body.get("schema"))
            asked = f"{as_text(body.get('name'))}: {as_text(body.get('question'))}"
            return asked + (f" answer: {typed}" if typed else "")
        case "run_ended":
            return _run_ended(body)
        case "message_retracted":
            return f"of {event.refers_to} {as_text(body.get('reason'))}".rstrip()
        case _:
            return ", ".join(f"{name}={as_text(value)}" for name, value in body.items())


def _run_ended(body: Mapping[str, Any]) -> str:
    error, reason, steps = body.get("error"), body.get("stop_reason"), body.get("steps")
    code, message = (error.get("code"), error.get("message")) if isinstance(error, Mapping) else (None, error)
    parts = (
        as_text(body.get("status")),
        f"{as_text(code)}: {as_text(message)}".strip(": "),
        f"stop reason {as_text(reason)}" if reason and reason != code else "",
        count(steps, "step") if isinstance(steps, int) else "",
        f"tokens {tokens(body['usage'])}" if "usage" in body else "",
        f"not merged {as_text(body['not_merged'])}" if "not_merged" in body else "",
    )
    return ", ".join(part for part in parts if part)


def tokens(usage: Any) -> str:
    """``120 (100 in, 20 out)``."""
    if not isinstance(usage, Mapping):
        return as_text(usage)
    total, given, said = (usage.get(f"{name}_tokens", 0) for name in ("total", "input", "output"))
    return f"{total:,} ({given:,} in, {said:,} out)" if total else "0"


def _ended(body: Mapping[str, Any]) -> str:
    return as_text(body.get("error") if body.get("error") is not None else body.get("result"))
