"""What an engine of ours calls: tools as plain coroutines, and the one way in which they fail."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

Tool = Callable[..., Awaitable[Any]]
"""Takes its arguments by name, answers JSON values."""


class ToolFailed(Exception):
    """The tool could not do what was asked. `message` is written for the model: what happened, with which value.

    An engine goes on after it, with the message as the outcome of the call. Any other exception is a fault of the
    program, and fails the run.
    """

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message
