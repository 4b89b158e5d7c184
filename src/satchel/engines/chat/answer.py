"""One streamed answer of a chat model, put together from its pieces.

Providers that speak this protocol differ in what they leave out and repeat; what is read here is read defensively, and what
is made of it is the one form that every provider accepts back.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

import msgspec

from satchel.domain.limits import DEFAULT_LIMITS
from satchel.domain.run import Usage
from satchel.domain.tokens import estimate_tokens


class CallAsked(msgspec.Struct, frozen=True, kw_only=True):
    """A tool call that the model asks for. ``arguments`` is the model's text, which need not be JSON."""

    label: str
    tool: str
    arguments: str

    def to_dict(self) -> dict[str, Any]:
        """As it stands in ``tool_calls`` of a chat message."""
        return {"id": self.label, "type": "function", "function": {"name": self.tool, "arguments": self.arguments}}

    def parsed(self) -> dict[str, Any] | None:
        """None: not a JSON object."""
        return parsed_object(self.arguments)


def parsed_object(text: str) -> dict[str, Any] | None:
    """The JSON object that ``text`` is; nothing at all counts as an empty one, as models write it. None for any other."""
    try:
        value = msgspec.json.decode(text) if text.strip() else {}
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


class Characters:
    """Joins what was cut in the middle of a character: JSON escapes may give half of an emoji in one piece and half in the
    next. What stays half becomes U+FFFD."""

    def __init__(self) -> None:
        self._half = ""

    def add(self, piece: str) -> str:
        text = self._half + piece
        self._half = text[-1:] if "\ud800" <= text[-1:] <= "\udbff" else ""
        return whole_characters(text[: len(text) - len(self._half)])

    def end(self) -> str:
        half, self._half = self._half, ""
        return whole_characters(half)


def whole_characters(text: str) -> str:
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


class _Call:
    """A tool call of which pieces still come."""

    def __init__(self) -> None:
        self.id = ""
        self.name = ""
        self.arguments: list[str] = []

    def add(self, piece: Mapping[str, Any]) -> None:
        self.id = self.id or _text(piece.get("id"))
        function = piece.get("function")
        if not isinstance(function, Mapping):
            return
        name = _text(function.get("name"))
        if name != self.name:  # some providers repeat the whole name with each piece
            self.name += name
        arguments = function.get("arguments")
        self.arguments.append(json.dumps(arguments) if isinstance(arguments, Mapping) else _text(arguments))


class Answer:
    """What has come so far. ``finish_reason`` is None until the model said why it stopped."""

    def __init__(self) -> None:
        self.finish_reason: str | None = None
        self.usage: Usage | None = None
        self.text = ""
        self._reasoning: list[str] = []
        self._calls: list[_Call] = []
        self._by_index: dict[object, _Call] = {}
        self._characters = Characters()

    def add(self, chunk: Mapping[str, Any]) -> str:
        """The text that this chunk adds to the answer. Of several choices only the first is heard."""
        usage = chunk.get("usage")
        if isinstance(usage, Mapping):
            self.usage = _usage(usage) or self.usage  # some count with every chunk: the last one holds
        choices = chunk.get("choices")
        text = ""
        for choice in choices if isinstance(choices, list) else ():
            if isinstance(choice, Mapping) and choice.get("index", 0) in (0, None):
                text += self._add_choice(choice)
        text = self._characters.add(text)
        self.text += text
        return text

    def end(self) -> str:
        text = self._characters.end()
        self.text += text
        return text

    def estimated(self) -> int:
        """Tokens of what came, where nobody counted them."""
        said = self.reasoning + self.text + "".join(call.tool + call.arguments for call in self.calls)
        return estimate_tokens(said)

    def _add_choice(self, choice: Mapping[str, Any]) -> str:
        reason = choice.get("finish_reason")
        if isinstance(reason, str) and reason:
            self.finish_reason = reason
        delta = choice.get("delta")
        if not isinstance(delta, Mapping):
            return ""
        for key in ("reasoning_content", "reasoning"):
            if thought := _text(delta.get(key)):
                self._reasoning.append(thought)
                break
        calls = delta.get("tool_calls")
        for piece in calls if isinstance(calls, list) else ():
            if isinstance(piece, Mapping):
                self._call_of(piece).add(piece)
        return self._content(delta.get("content")) + _text(delta.get("refusal"))

    def _content(self, content: object) -> str:
        """Text, or a list of parts among which some are thoughts."""
        if not isinstance(content, list):
            return _text(content)
        text = ""
        for part in content:
            if isinstance(part, Mapping) and part.get("type") == "text":
                text += _text(part.get("text"))
        return text

    def _call_of(self, piece: Mapping[str, Any]) -> _Call:
        """By its index; without one, or when an index comes with another id, a new id begins a new call."""
        index = piece.get("index")
        label = _text(piece.get("id"))
        last = self._by_index.get(index) if index is not None else (self._calls[-1] if self._calls else None)
        if last is None or (label and last.id and label != last.id):
            last = _Call()
            self._calls.append(last)
            if index is not None:
                self._by_index[index] = last
        return last

    @property
    def reasoning(self) -> str:
        """What the model thought aloud beside its answer, if its provider shows it."""
        return whole_characters("".join(self._reasoning))

    @property
    def calls(self) -> list[CallAsked]:
        """Each with a label of its own: what a provider left out, made too long, or gave twice is replaced."""
        found: list[CallAsked] = []
        used: set[str] = set()
        for call in self._calls:
            label = whole_characters(call.id)
            if not is_label(label) or label in used:
                label = f"call_{os.urandom(12).hex()}"
            used.add(label)
            arguments = whole_characters("".join(call.arguments))
            found.append(CallAsked(label=label, tool=whole_characters(call.name), arguments=arguments))
        return found


def is_label(text: str) -> bool:
    return 0 < len(text.encode("utf-8", "replace")) <= DEFAULT_LIMITS.id and text.isprintable()


def _usage(found: Mapping[str, Any]) -> Usage | None:
    counts = [found.get(name) for name in ("prompt_tokens", "completion_tokens", "total_tokens")]
    known = [count if type(count) is int and 0 <= count < 1 << 53 else 0 for count in counts]
    return Usage(*known) if any(known) else None


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
