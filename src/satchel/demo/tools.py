"""What every demo tool shares: a plain result that is JSON, or one kind of failure."""

from __future__ import annotations

from typing import Any

from satchel.engines.tools import ToolFailed

__all__ = ["ToolFailed", "ToolResult", "require_text"]

ToolResult = dict[str, Any]
"""What a tool answers: str, int, float, bool, None, lists and dicts of them. No NaN, Infinity or lone surrogate."""


def require_text(name: str, value: str, limit: int) -> bytes:
    """The UTF-8 bytes of a text argument, checked before a system call or a database sees it."""
    if not isinstance(value, str):
        raise ToolFailed(f"{name} must be a string, not {type(value).__name__}")
    try:
        encoded = value.encode()
    except UnicodeEncodeError as error:
        raise ToolFailed(f"{name} is not valid Unicode: lone surrogate at character {error.start}") from error
    if len(encoded) > limit:
        raise ToolFailed(f"{name} has {len(encoded)} bytes, the limit is {limit}")
    return encoded
