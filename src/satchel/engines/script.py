"""A small language for scripted agents: what a user may say, in Chinese or English, and what is done then.

A script is data. Its texts may hold `{names}`: values that the user's words, a tool's result or working memory gave.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal

import msgspec

Language = Literal["zh", "en"]
_HAN = re.compile(r"[\u3400-\u9fff]")


def language_of(text: str) -> Language:
    """The language in which to answer: Chinese if there is one Chinese character."""
    return "zh" if _HAN.search(text) else "en"


class Text(msgspec.Struct, frozen=True):
    """One text in both languages."""

    zh: str
    en: str

    def fill(self, language: Language, values: Mapping[str, str]) -> str:
        return (self.zh if language == "zh" else self.en).format_map(values)

    def is_among(self, texts: tuple[str, ...], values: Mapping[str, str]) -> bool:
        """Whether one of the texts is this one, in either language. No text is one whose values are not known."""
        try:
            return self.fill("zh", values) in texts or self.fill("en", values) in texts
        except KeyError:
            return False


def same(text: str) -> Text:
    """A text that is not translated."""
    return Text(text, text)


class Keep(msgspec.Struct, frozen=True):
    """A value of a result: what stands at ``path`` (``rows.0.1``), or there the first group of ``pattern``."""

    path: str
    pattern: str | None = None

    def take(self, result: Any) -> str | None:
        found = value_at(result, self.path)
        if found is None:
            return None
        if self.pattern is None:
            return str(found)
        match = re.search(self.pattern, str(found))
        return None if match is None else match[1]


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """Call a tool.

    ``because`` is what the agent says with it. Texts among the ``arguments`` may hold names. ``keep`` names values of the result. ``expect`` says what the result must
    hold, by path. ``known_by`` is the entry of ``completed`` that says that this was done: then the result is taken from
    the tool history and the tool is not called.
    """

    tool: str
    because: Text
    arguments: Mapping[str, Any] = {}
    keep: Mapping[str, Keep] = {}
    expect: Mapping[str, Any] = {}
    known_by: Text | None = None


class Recall(msgspec.Struct, frozen=True, kw_only=True):
    """Take a value from working memory: the first group of ``pattern`` in the newest entry of ``field`` that has it.
    ``what`` says what is missing when none has; without it the script goes on."""

    name: str
    field: Literal["goal", "plan", "completed", "errors", "important_files", "next_action"]
    pattern: str
    what: Text | None = None


class Remember(msgspec.Struct, frozen=True, kw_only=True):
    """Patch working memory. ``append`` leaves out what is there; ``default`` sets a field only where it is empty."""

    default: Mapping[str, Text] = {}
    remove: Mapping[str, tuple[Text, ...]] = {}
    append: Mapping[str, tuple[Text, ...]] = {}
    set: Mapping[str, Text] = {}


class Say(msgspec.Struct, frozen=True):
    """A part of the answer."""

    text: Text


Step = Call | Recall | Remember | Say


class Intent(msgspec.Struct, frozen=True, kw_only=True):
    """What is done when the user's words match one of ``says`` (regular expressions; their named groups are values).

    ``begins`` is the goal of a task that starts here: memory is begun anew with it, and when it is the goal already, the
    task goes on instead. ``follows`` is the next action, in memory, that this intent carries out.
    """

    name: str
    example: Text
    says: tuple[str, ...]
    steps: tuple[Step, ...]
    begins: Text | None = None
    follows: Text | None = None

    def match(self, said: str) -> dict[str, str] | None:
        """The values in the user's words, or None when they mean something else."""
        for pattern in self.says:
            found = re.search(pattern, said, re.IGNORECASE | re.DOTALL)
            if found is not None:
                return {name: value for name, value in found.groupdict().items() if value is not None}
        return None


class Script(msgspec.Struct, frozen=True, kw_only=True):
    """An agent, in the order in which its intents are tried."""

    name: str
    intents: tuple[Intent, ...]

    @property
    def tools(self) -> frozenset[str]:
        return frozenset(step.tool for intent in self.intents for step in intent.steps if isinstance(step, Call))

    def intent_of(self, said: str) -> tuple[Intent, dict[str, str]] | None:
        for intent in self.intents:
            values = intent.match(said)
            if values is not None:
                return intent, values
        return None

    def next_intent(self, next_action: str) -> Intent | None:
        """The intent that carries out this next action, which may be of either language."""
        for intent in self.intents:
            if intent.follows is not None and next_action in (intent.follows.zh, intent.follows.en):
                return intent
        return None


def value_at(result: Any, path: str) -> Any:
    """What stands at ``a.0.b``; None if nothing does."""
    for part in path.split("."):
        if isinstance(result, Mapping):
            result = result.get(part)
        elif isinstance(result, (list, tuple)) and part.isdecimal() and int(part) < len(result):
            result = result[int(part)]
        else:
            return None
    return result
