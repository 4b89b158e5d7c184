"""One decision on its way: who waits for it, what it is answered with, and what becomes of it when its batch fails."""

from __future__ import annotations

import asyncio
import time
from enum import IntEnum
from typing import Any, Generic, TypeVar

import msgspec

from satchel.domain.decisions.decision import Decision
from satchel.domain.idempotency import Answer
from satchel.domain.ids import SessionRef
from satchel.domain.state import Want, merge_wants
from satchel.errors import OutcomeUnknown, StoreBusy, StoreUnavailable

V = TypeVar("V")

PATIENCE = 10.0  # seconds of STALE before a caller hears StoreBusy


class Committed(msgspec.Struct, Generic[V], frozen=True, gc=False):
    """A decision's answer: what its caller is given, what the commit fixed, and whether it was answered before.

    ``found``: it was found again, as of a replay, or of a call of whose first try the store could not tell. Then what ``value``
    took from the session's rows may be of later.
    """

    value: V
    answer: Answer
    replayed: bool = False
    found: bool = False


class Apart(IntEnum):
    """How far a decision stays away from others, after a batch that it was in could not be decided."""

    NOT = 0
    IN_ITS_SESSION = 1  # with the other decisions on its session
    ALONE = 2


class Waiting:
    """One decision on its way. What it wants and weighs is asked of it once, while a fault is its own caller's."""

    __slots__ = ("apart", "decision", "entered", "future", "size", "unsettled", "want")

    def __init__(self, decision: Decision[Any], future: asyncio.Future[Any]) -> None:
        self.decision = decision
        self.future = future
        self.size = decision.size
        self.want = decision.want()
        self.entered = time.monotonic()
        self.unsettled: list[Answer] = []  # what may have been committed for it: the store could not tell
        self.apart = Apart.NOT

    def answer(self, result: Committed[Any] | BaseException) -> None:
        if self.future.done():  # its caller went away
            return
        if isinstance(result, BaseException):
            self.future.set_exception(result)
        else:
            self.future.set_result(result)


Again = list[tuple[SessionRef, list[Waiting]]]


def set_apart(waiting: list[Waiting], how: Apart) -> list[Waiting]:
    for one in waiting:
        one.apart = max(one.apart, how)
    return waiting


def refuse(ref: SessionRef, waiting: list[Waiting], error: BaseException) -> Again:
    """An error of one session. Among several decisions it is the fault of one: each is given back, to be tried alone."""
    if len(waiting) > 1:
        return [(ref, set_apart(waiting, Apart.ALONE))]
    refuse_all(waiting, error)
    return []


def still_patient(waiting: list[Waiting]) -> list[Waiting]:
    now = time.monotonic()
    kept: list[Waiting] = []
    for one in waiting:
        if now - one.entered > PATIENCE:
            refuse_all([one], StoreBusy())
        else:
            kept.append(one)
    return kept


def merged_want(waiting: list[Waiting]) -> Want:
    return waiting[0].want if len(waiting) == 1 else merge_wants([one.want for one in waiting])


def refuse_all(waiting: list[Waiting], error: BaseException) -> None:
    """Refuse all; those whose earlier attempt may have landed are told so, when the store will not say."""
    for one in waiting:
        unknown = one.unsettled and isinstance(error, (StoreUnavailable, StoreBusy))
        one.answer(OutcomeUnknown(str(error)) if unknown else error)
