"""An answer that is said by blocking code."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from satchel.domain.message import Message
from satchel.streaming import StreamedAnswer
from satchel.sync.background import BackgroundLoop


class TextStream:
    """An assistant's message that is being said. Before the block is left, ``tool_calls`` may be set, a list as a chat API
    gives it, and in ``members`` whatever else the message has."""

    __slots__ = ("_async", "_loop")  # a misspelt name is an error, not a lost member

    def __init__(self, answer: StreamedAnswer, loop: BackgroundLoop) -> None:
        self._async = answer
        self._loop = loop

    @property
    def tool_calls(self) -> list[Mapping[str, Any]] | None:
        return self._async.tool_calls

    @tool_calls.setter
    def tool_calls(self, calls: list[Mapping[str, Any]] | None) -> None:
        self._async.tool_calls = calls

    @property
    def members(self) -> dict[str, Any]:
        return self._async.members

    @members.setter
    def members(self, members: dict[str, Any]) -> None:
        self._async.members = members

    def write(self, text: str) -> None:
        """Say ``text``. Followers see it once it is stored, moments later; this waits only while more than 64 KiB are
        still to be stored. Raises LimitExceeded when the message becomes too long, RunFenced when the run is lost."""
        self._async.accept(text)
        if self._async.is_full:
            self._loop.call(self._async.room())

    @property
    def text(self) -> str:
        """All that was said."""
        return self._async.text

    @property
    def message(self) -> Message | None:
        """What it became, once the block is left; None if nothing was said."""
        return self._async.message
