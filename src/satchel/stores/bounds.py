"""Bounds of a page as a database can compare them: of 64 bits, and one beyond those is beyond every seq."""

from __future__ import annotations

END = 2**63 - 1  # beyond every seq, number and time


def within(bound: int) -> int:
    return max(-END, min(bound, END))


def between(after: int, before: int | None) -> tuple[int, int]:
    return within(after), END if before is None else within(before)
