"""What is sent to a model: a session's messages in the form that every provider accepts, and what a run has said so far."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from satchel.domain.event import CHAT_FORMAT
from satchel.domain.exchange import INTERRUPTED
from satchel.domain.message import Message
from satchel.domain.pending import asked_calls
from satchel.engine import RunContext
from satchel.engines.chat.answer import CallAsked, parsed_object

PAGE = 500
SENT_KEYS = ("role", "content", "name", "tool_calls", "tool_call_id")
_NAME = re.compile(r"[^\s<|\\/>]{1,64}")
_NOT_IN_TOOL = re.compile(r"[^a-zA-Z0-9_-]")


class Said(msgspec.Struct, kw_only=True):
    """An assistant message of this run."""

    seq: int
    calls: tuple[CallAsked, ...]
    answered: set[str] = msgspec.field(default_factory=set)

    @property
    def open_calls(self) -> list[tuple[int, CallAsked]]:
        """Those that nobody answered yet, with their places."""
        return [(place, call) for place, call in enumerate(self.calls) if call.label not in self.answered]


class Story(msgspec.Struct, kw_only=True):
    """What this run, in all its attempts, has said."""

    turns: int = 0
    first: dict[str, Any] | None = None
    last: Said | None = None
    pieces: list[dict[str, Any]] = msgspec.field(default_factory=list)  # partial answers that an attempt left behind


async def read_story(ctx: RunContext) -> Story:
    story = Story()
    cursor: str | None = None
    while True:
        page = await ctx.messages(run_id=ctx.run.run_id, limit=PAGE, cursor=cursor)
        for message in page.items:
            if message.format == CHAT_FORMAT and message.seq != ctx.run.input_seq:
                _tell(story, message)
        cursor = page.next
        if cursor is None:
            return story


def _tell(story: Story, message: Message) -> None:
    body = message.data
    if body["role"] == "tool" and story.last is not None:
        story.last.answered.add(body.get("tool_call_id", ""))
    elif body["role"] == "assistant":
        if message.status == "interrupted":
            story.pieces.append(body | {"content": f"{body.get('content')}{INTERRUPTED}"})  # as a context shows it
            return
        if story.first is None:
            story.first = body
        story.turns += 1
        story.last = Said(seq=message.seq, calls=tuple(_calls_of(body)))


def _calls_of(body: Mapping[str, Any]) -> list[CallAsked]:
    return [
        CallAsked(label=call.label, tool=call.tool, arguments=str(call.arguments or "")) for call in asked_calls(body)
    ]


def sent(ctx: RunContext, story: Story, instructions: str, seen: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """``seen`` is what the context holds. ``instructions`` go before it. A run without a message to answer is given its goal
    as one, for whoever may add a run may be a user, whose words never become instructions. What an earlier attempt of this
    run said in part is left out: it is asked anew."""
    messages = [message for message in seen if message not in story.pieces]
    if ctx.run.input is None and ctx.run.goal:
        goal = {"role": "user", "content": ctx.run.goal}
        place = len(messages)
        if story.first is not None:
            place = messages.index(story.first) if story.first in messages else 0
        messages.insert(place, goal)
    last_user = max((index for index, one in enumerate(messages) if one.get("role") == "user"), default=-1)
    shown = [_accepted(message, with_reasoning=index > last_user) for index, message in enumerate(messages)]
    return [{"role": "system", "content": instructions}, *shown] if instructions else shown


def _accepted(message: Mapping[str, Any], *, with_reasoning: bool) -> dict[str, Any]:
    """Without the keys that a provider might refuse. Its own reasoning is sent back while it still works on the same
    question, as models that think between tool calls ask for, and not after it."""
    made = {key: message[key] for key in SENT_KEYS if message.get(key) is not None}
    if not (isinstance(made.get("name"), str) and _NAME.fullmatch(made["name"])):
        made.pop("name", None)
    if made.get("tool_calls"):
        made["tool_calls"] = [_accepted_call(call) for call in made["tool_calls"]]
        made.setdefault("content", None)
    else:
        made.pop("tool_calls", None)
        made.setdefault("content", "")
    if with_reasoning and isinstance(message.get("reasoning_content"), str):
        made["reasoning_content"] = message["reasoning_content"]
    return made


def _accepted_call(call: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments that are no JSON object make some endpoints fail; what was wrong with them stands in the call's result."""
    function = call.get("function")
    function = dict(function) if isinstance(function, Mapping) else {}
    arguments = function.get("arguments")
    if not isinstance(arguments, str) or not arguments.strip() or parsed_object(arguments) is None:
        arguments = "{}"
    name = _NOT_IN_TOOL.sub("_", str(function.get("name") or "unnamed"))[:64]
    label = call.get("id")
    return {
        "id": label if isinstance(label, str) else "",
        "type": "function",
        "function": {"name": name, "arguments": arguments},
    }
