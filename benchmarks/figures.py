"""What a figure is, and how two things are timed so that the machine's mood does not matter."""

from __future__ import annotations

import statistics
from collections.abc import Awaitable, Callable

import msgspec


class Figure(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """``satchel`` and ``limit`` in ``unit``; ``ratio`` says how near to the limit (1 is the limit, lower is worse) and
    should reach ``reach``. Where a ratio makes no sense there is a ``bound`` instead, and whether it was ``passed``."""

    name: str
    unit: str
    satchel: float
    limit: float | None = None
    ratio: float | None = None
    reach: float | None = None
    bound: float | None = None
    passed: bool | None = None

    @property
    def is_reached(self) -> bool:
        if self.ratio is not None and self.reach is not None:
            return self.ratio >= self.reach
        return bool(self.passed)


def compared(name: str, unit: str, ours: list[float], limits: list[float], *, reach: float) -> Figure:
    """Figures where less is better, taken in turn: medians, and the median of the ratios pair by pair."""
    return Figure(
        name=name,
        unit=unit,
        satchel=statistics.median(ours),
        limit=statistics.median(limits),
        ratio=statistics.median(limit / our for our, limit in zip(ours, limits, strict=True)),
        reach=reach,
    )


def bounded(name: str, unit: str, value: float, *, bound: float) -> Figure:
    """A figure that may be at most ``bound``."""
    return Figure(name=name, unit=unit, satchel=value, bound=bound, passed=value <= bound)


async def in_turn(
    ours: Callable[[], Awaitable[float]], limit: Callable[[], Awaitable[float]], *, rounds: int
) -> tuple[list[float], list[float]]:
    """A B B A A B …: each pair shares the machine's mood, and neither always comes first."""
    mine: list[float] = []
    theirs: list[float] = []
    for number in range(rounds):
        for measure, kept in ((ours, mine), (limit, theirs)) if number % 2 == 0 else ((limit, theirs), (ours, mine)):
            kept.append(await measure())
    return mine, theirs
