"""JSON documents: what the Python and HTTP doors answer too, texts byte for byte."""

from __future__ import annotations

from typing import Any

import msgspec

from satchel import Event, Message, Session

# Of one session among many, or after a change of its status: not what it holds.
CONTENTS = ("messages", "tool_history", "runs", "working_memory")


def brief(session: Session) -> dict[str, Any]:
    return {name: value for name, value in session.to_dict().items() if name not in CONTENTS}


def whole(session: Session, messages: tuple[Message, ...]) -> dict[str, Any]:
    return session.to_dict() | {"messages": [msgspec.Raw(message.to_json()) for message in messages]}


def event_line(event: Event) -> dict[str, Any]:
    line = event.to_dict() | {"body": msgspec.Raw(event.body)}
    if event.kind == "message" and event.metadata is not None:
        line["metadata"] = msgspec.Raw(event.metadata)
    return line
