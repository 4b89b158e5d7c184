"""What the demo claims, each claim beside what was found."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """One claim. ``expected`` and ``found`` are JSON values; ``found`` comes from the store or the file system."""

    scene: int
    name: str
    ok: bool
    expected: Any
    found: Any

    def to_dict(self) -> dict[str, Any]:
        return msgspec.structs.asdict(self)


def parts_found(text: str, parts: Sequence[str]) -> list[str]:
    """Those of ``parts`` that stand in the text."""
    return [part for part in parts if part and part in text]


def shown(value: Any) -> str:
    """A JSON value as a reader likes it: text bare, the items of a list with dots between."""
    if isinstance(value, str):
        return value or '""'
    if isinstance(value, list):
        return " · ".join(shown(item) for item in value) if value else "none"
    if isinstance(value, dict):
        return ", ".join(f"{name}: {shown(item)}" for name, item in value.items())
    return msgspec.json.encode(value).decode()
