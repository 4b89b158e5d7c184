"""Waiting for a store that is away: the same decision again, until it is answered or too late."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterator
from typing import TypeVar

from satchel.commit import Committed, Committer
from satchel.domain.decisions.decision import Decision
from satchel.errors import OutcomeUnknown, StoreBusy, StoreUnavailable
from satchel.opened import OpenStore

V = TypeVar("V")

AWAY = (StoreUnavailable, StoreBusy, OutcomeUnknown)  # what may pass
FIRST_PAUSE = 0.05
LONGEST_PAUSE = 5.0


def pauses(longest: float = LONGEST_PAUSE) -> Iterator[float]:
    """Seconds: each about twice the one before, and no two workers alike."""
    pause = FIRST_PAUSE
    while True:
        yield pause * random.uniform(0.5, 1.0)  # noqa: S311  # spreads load, keeps no secret
        pause = min(2 * pause, longest)


async def patiently(call: Callable[[], Awaitable[V]], *, is_over: Callable[[], bool], longest: float = 1.0) -> V:
    """``call`` again and again while the store is away; once ``is_over`` says so, the store's error is raised."""
    pause = pauses(longest)
    while True:
        try:
            return await call()
        except AWAY:
            if is_over():
                raise
            await asyncio.sleep(next(pause))


class PatientCommitter(Committer):
    """Hands decisions to the committer of ``opened``. The very same decision may be handed in again: it carries its key, so
    that one whose outcome is unknown finds itself."""

    def __init__(self, opened: OpenStore, is_over: Callable[[], bool]) -> None:
        super().__init__(opened.store)
        self._opened = opened
        self._is_over = is_over

    def submit(self, decision: Decision[V]) -> Awaitable[Committed[V]]:
        return patiently(lambda: self._opened.committer.submit(decision), is_over=self._is_over)


def patient_store(opened: OpenStore, *, is_over: Callable[[], bool]) -> OpenStore:
    """``opened`` itself, not to be opened or closed by this name; what is written through it waits for a store that is
    away."""
    patient = OpenStore(opened.store, limits=opened.limits, policy=opened.policy)
    patient.committer = PatientCommitter(opened, is_over)
    return patient
