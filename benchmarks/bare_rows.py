"""What the bare writers of all servers share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

Row = tuple[Any, ...]
A = TypeVar("A")


def in_rounds(appends: Sequence[A], size: int, *, turn: Callable[[A], int]) -> list[list[A]]:
    """Batches in which no session stands twice. ``turn``: the seq that an append writes."""
    by_turn: dict[int, list[A]] = {}
    for append in appends:
        by_turn.setdefault(turn(append), []).append(append)
    return [one[start : start + size] for one in by_turn.values() for start in range(0, len(one), size)]
