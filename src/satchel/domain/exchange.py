"""Messages as a chat API takes them: each assistant's calls with their results, whole, whatever was stored.

What is mended here is not stored: a session that came in a broken state is read by a model all the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from satchel.domain.event import CHAT_FORMAT, Event
from satchel.domain.message import INSTRUCTION_ROLES, tokens_of
from satchel.domain.spelling import as_written, json_as_written
from satchel.domain.tokens import TokenCounter, message_tokens

RUNNING = "(still running: there is no result yet)"
UNKNOWN = "(unknown: nothing says what came of this call; it may or may not have happened)"
UNNAMED = "unnamed_tool"
INTERRUPTED = " [interrupted here]"

_Place = tuple[int, int]  # of a call: the index of its message, and its place in it


class Exchange:
    """Messages that may not be parted: an assistant's calls with their results; else one message. Their numbers are as they
    were written. ``seqs``: of those that are stored."""

    __slots__ = ("labels", "messages", "seqs", "tokens")

    def __init__(self, messages: list[dict[str, Any]], seqs: list[int], tokens: int, labels: frozenset[str]) -> None:
        self.messages = messages
        self.seqs = seqs
        self.tokens = tokens
        self.labels = labels

    @property
    def seq(self) -> int:
        """Where it begins."""
        return self.seqs[0]

    @property
    def role(self) -> Any:
        return self.messages[0].get("role")

    @property
    def instructs(self) -> bool:
        return self.role in INSTRUCTION_ROLES


def exchanges(events: Sequence[Event], open_labels: frozenset[str], count: TokenCounter) -> list[Exchange]:
    """The chat messages of ``events`` in an order that an API takes: results directly behind the message that asked, in the
    order of its calls. A result without its call is left out; a call without a result gets a synthetic one."""
    chat = [(event, as_written(event.body)) for event in events if event.format == CHAT_FORMAT]
    results = _results_by_call([message for _, message in chat])
    found: list[Exchange] = []
    for index, (event, message) in enumerate(chat):
        if message.get("role") == "tool":
            continue  # it stands behind its call, or its call is not here
        calls = _calls(message)
        shown = _Shown(count)
        if not calls:
            shown.add(event, message, _marked(event, _mended(message)))
        else:
            fixed = _mended_calls(calls, event.seq)
            shown.add(event, message, _marked(event, _mended(message)) | {"tool_calls": fixed})
            for place, call in enumerate(fixed):
                at = results.get((index, place))
                if at is None:
                    shown.add_synthetic(call["id"], is_running=calls[place].get("id") in open_labels)
                else:
                    result_event, result = chat[at]
                    shown.add(result_event, result, _mended(result) | {"tool_call_id": call["id"]})
        labels = frozenset(call["id"] for call in calls if isinstance(call.get("id"), str))
        found.append(Exchange(shown.messages, shown.seqs, shown.tokens, labels))
    return found


def _marked(event: Event, message: dict[str, Any]) -> dict[str, Any]:
    """An answer that broke off says so, else the model takes it for all it had to say."""
    if event.status != "interrupted" or message.get("role") != "assistant":
        return message
    content = message.get("content")
    if isinstance(content, str):
        return message | {"content": content + INTERRUPTED}
    if isinstance(content, list):
        return message | {"content": [*content, {"type": "text", "text": INTERRUPTED}]}
    return message


class _Shown:
    def __init__(self, count: TokenCounter) -> None:
        self._count = count
        self.messages: list[dict[str, Any]] = []
        self.seqs: list[int] = []
        self.tokens = 0

    def add(self, event: Event, stored: dict[str, Any], message: dict[str, Any]) -> None:
        self.messages.append(message)
        self.seqs.append(event.seq)
        self.tokens += tokens_of(event) if message == stored else message_tokens(message, self._count)

    def add_synthetic(self, label: str, *, is_running: bool) -> None:
        message = {"role": "tool", "tool_call_id": label, "content": RUNNING if is_running else UNKNOWN}
        self.messages.append(message)
        self.tokens += message_tokens(message, self._count)


def _calls(message: Mapping[str, Any]) -> list[dict[str, Any]]:
    calls = message.get("tool_calls") if message.get("role") == "assistant" else None
    return [call for call in calls if isinstance(call, dict)] if isinstance(calls, list) else []


def _results_by_call(messages: Sequence[dict[str, Any]]) -> dict[_Place, int]:
    """For each call the index of its result: the first with its label, before that label is used again."""
    waiting: dict[Any, list[_Place]] = {}
    results: dict[_Place, int] = {}
    for index, message in enumerate(messages):
        if message.get("role") == "tool":
            places = waiting.get(message.get("tool_call_id"))
            if places:
                results[places.pop(0)] = index
        else:
            asked: dict[Any, list[_Place]] = {}
            for place, call in enumerate(_calls(message)):
                if isinstance(call.get("id"), str):
                    asked.setdefault(call["id"], []).append((index, place))
            waiting.update(asked)
    return results


def _mended(message: dict[str, Any]) -> dict[str, Any]:
    """Without what an API refuses: no list of calls that is empty, and no content that is nothing where there must be some."""
    calls = _calls(message)
    if message.get("content") or (calls and message.get("content") is None):
        has_content = True
    else:
        has_content = message.get("content") == ""
    if has_content and ("tool_calls" not in message or calls):
        return message
    mended = {name: value for name, value in message.items() if name != "tool_calls" or calls}
    if not has_content:
        mended["content"] = ""
    return mended


def _mended_calls(calls: Sequence[dict[str, Any]], seq: int) -> list[dict[str, Any]]:
    """Each with a label that no other call of this message has, a name, and arguments that are text."""
    taken: set[str] = set()
    fixed = []
    for place, call in enumerate(calls):
        label = call.get("id")
        if not isinstance(label, str) or not label:
            label = f"call_{seq}_{place}"
        first, number = label, 2
        while label in taken:
            label, number = f"{first}_{number}", number + 1
        taken.add(label)
        fixed.append(call | {"id": label} | _mended_function(call))
    return fixed


def _mended_function(call: dict[str, Any]) -> dict[str, Any]:
    if call.get("type") == "custom" and isinstance(call.get("custom"), dict):
        return {}
    given = call.get("function")
    function: dict[str, Any] = dict(given) if isinstance(given, dict) else {}
    if not isinstance(function.get("name"), str) or not function["name"]:
        function["name"] = UNNAMED
    arguments = function.get("arguments")
    if not isinstance(arguments, str):
        function["arguments"] = "{}" if arguments is None else json_as_written(arguments).decode()
    return {"type": "function", "function": function}


def shortened(exchange: Exchange, most: int, count: TokenCounter, *, results_only: bool) -> tuple[Exchange, int]:
    """The exchange with every text that weighs more than ``most`` tokens cut in its middle, and how many were cut."""
    messages = []
    cut = spared = 0
    for message in exchange.messages:
        weight = message_tokens(message, count)
        content = message.get("content")
        if weight <= most or not isinstance(content, str) or (results_only and message["role"] != "tool"):
            messages.append(message)
            continue
        shorter, now = _cut(message, content, weight, most, count)
        messages.append(shorter)
        cut += now < weight
        spared += weight - now
    return Exchange(messages, exchange.seqs, exchange.tokens - spared, exchange.labels), cut


def _cut(
    message: dict[str, Any], content: str, weight: int, most: int, count: TokenCounter
) -> tuple[dict[str, Any], int]:
    keep = len(content) * most // weight
    while keep > 20:
        left_out = len(content) - keep
        begin, end = keep * 2 // 3, keep // 3
        text = f"{content[:begin]}\n[… {left_out} characters left out here …]\n{content[len(content) - end :]}"
        shorter = message | {"content": text}
        now = message_tokens(shorter, count)
        if now <= most and now < weight:
            return shorter, now
        keep = keep * 3 // 4
    return message, weight
