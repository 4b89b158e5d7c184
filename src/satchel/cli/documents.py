"""JSON documents: what the Python and HTTP doors answer too, texts byte for byte."""

from __future__ import annotations

from typing import Any

import msgspec

from satchel import Event, Message, Session

# Of one session among many, or after a change of its status: not what it holds.
CONTENTS = ("messages", "tool_history", "runs", "working_memory")


def brief(session: Session) -> dict[str, Any]:
    return {name: value for name, value in session.own_as_spelled().items() if name not in CONTENTS}


def whole(session: Session, messages: tuple[Message, ...]) -> dict[str, Any]:
    return session.own_as_spelled() | {
        "messages": [msgspec.Raw(message.to_json()) for message in messages],
        "tool_history": [msgspec.Raw(call.to_json()) for call in session.tool_history],
        "runs": [msgspec.Raw(run.to_json()) for run in session.runs],
    }


def event_line(event: Event) -> dict[str, Any]:
    line = event.to_dict() | {"body": msgspec.Raw(event.body)}
    if event.kind == "message" and event.metadata is not None:
        line["metadata"] = msgspec.Raw(event.metadata)
    return line
