"""A batch of changes is one statement. What is certain is answered; what nobody can know is UNKNOWN."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from satchel.domain.ids import SessionRef
from satchel.domain.state import Clock, SessionState, Want
from satchel.errors import StoreError
from satchel.store import Change, Loaded, Outcome
from satchel.stores.postgres.applying import NO_BASIS, Basis, statement_of
from satchel.stores.postgres.connection import (
    DRIVER_ERRORS,
    Row,
    is_bad_change,
    is_lost,
    is_read_only,
    is_worth_another_try,
    meaning_of,
)
from satchel.stores.postgres.loading import ReadClock, load
from satchel.stores.postgres.pool import Again, Pool
from satchel.stores.postgres.queries import SQL

_log = logging.getLogger("satchel.stores.postgres")

TRIES = 8
STALE_IN_A_ROW = 2  # of one session, until it is locked first
LOCKED_FOR = 0.25  # seconds after the last of them


class BadChange(Exception):
    """One of the changes cannot be stored; none of them was."""


class Contention:
    """Sessions that others keep changing between our load and our commit. To try again would favour whoever is nearer to the
    server: who was too late twice locks the session before loading it, and locks are given in the order of asking."""

    def __init__(self) -> None:
        self._stale: dict[SessionRef, tuple[int, float]] = {}

    def is_met(self, refs: Iterable[SessionRef]) -> bool:
        if not self._stale:
            return False
        now = time.monotonic()
        for ref in refs:
            count, until = self._stale.get(ref, (0, 0.0))
            if count >= STALE_IN_A_ROW and now < until:
                return True
        return False

    def note(self, changes: Sequence[Change], outcomes: Sequence[Outcome]) -> None:
        """What became of changes that were decided without a lock."""
        if not self._stale and Outcome.STALE not in outcomes:
            return
        now = time.monotonic()
        for change, outcome in zip(changes, outcomes, strict=True):
            if outcome is Outcome.STALE:
                count, until = self._stale.get(change.ref, (0, 0.0))
                self._stale[change.ref] = (count + 1 if now < until else 1, now + LOCKED_FOR)
            else:
                self._stale.pop(change.ref, None)
        if len(self._stale) > 1_000:
            self._stale = {ref: met for ref, met in self._stale.items() if now < met[1]}


class Written(NamedTuple):
    """``now``: the server's clock, where it answered with it."""

    outcomes: list[Outcome]
    now: int | None


async def write(pool: Pool, changes: Sequence[Change], clock: Clock | None, basis: Basis = NO_BASIS) -> Written:
    """``clock`` where it is not the server's. Raises StoreUnavailable and StoreBusy: nothing was stored."""
    try:
        return await _write_together(pool, changes, clock, basis)
    except BadChange:
        return Written([await _write_alone(pool, change, clock, basis) for change in changes], None)


async def _write_together(pool: Pool, changes: Sequence[Change], clock: Clock | None, basis: Basis) -> Written:
    statement, values = _statement_of(changes, clock, basis)
    again = Again(TRIES)
    while True:
        try:
            async with pool.use() as line:
                rows = await line.fetch(statement, *values)
        except DRIVER_ERRORS as error:
            if is_worth_another_try(error) and await again.pause():
                continue
            return _what_is_known(pool, error, changes)
        return _read(changes, rows)


async def _write_alone(pool: Pool, change: Change, clock: Clock | None, basis: Basis) -> Outcome:
    """Once a batch failed: what happens here is this change's own, and no error of it may hide the others' outcomes."""
    try:
        written = await _write_together(pool, [change], clock, basis)
    except BadChange:
        _log.exception("a change of session %s cannot be stored", change.ref.session_id)
        return Outcome.REJECTED
    except StoreError:  # away or busy: nothing was stored, and whoever asks again will hear it
        return Outcome.STALE
    return written.outcomes[0]


async def write_locked(
    pool: Pool,
    read_clock: ReadClock,
    wanted: Mapping[SessionRef, Want],
    decide: Callable[[Loaded], Sequence[Change]],
    own_clock: Callable[[], Clock] | None,
) -> tuple[Sequence[Change], Written]:
    """Lock, load, decide and write in one transaction: nobody comes between; also what was decided.

    Raises StoreUnavailable, StoreBusy, InvalidInput (of one of several sessions), and what ``decide`` raises: nothing was
    stored.
    """
    changes: Sequence[Change] = ()
    rows: list[Row] = []
    refs = list(wanted)
    names = [ref.tenant_id for ref in refs], [ref.session_id for ref in refs]
    clock = None if own_clock is None else own_clock()
    try:
        async with pool.use() as line, line.transaction():
            await line.fetch_inside(SQL["lock"], *names)
            loaded = await load(line.fetch_inside, read_clock, wanted)
            basis = basis_of(loaded)
            changes = decide(loaded)
            if changes:
                statement, values = _statement_of(changes, clock, basis)
                rows = await line.fetch_inside(statement, *values)
    except BadChange:
        return changes, await write(pool, changes, clock)
    except DRIVER_ERRORS as error:
        if not changes:
            raise meaning_of(error) from error
        if is_bad_change(error):
            return changes, await write(pool, changes, clock)
        return changes, _what_is_known(pool, error, changes)
    return changes, _read(changes, rows)


def basis_of(loaded: Loaded) -> Basis:
    """To be taken before deciding, which lays effects over the states."""
    records = {ref: state.record for ref, state in loaded.sessions.items() if isinstance(state, SessionState)}
    return Basis(records, {})


def _statement_of(changes: Sequence[Change], clock: Clock | None, basis: Basis) -> tuple[str, list[object]]:
    try:
        return statement_of(changes, clock, basis)
    except (ValueError, TypeError, AttributeError) as error:
        raise BadChange from error


def _read(changes: Sequence[Change], rows: Sequence[Row]) -> Written:
    outcomes = [Outcome.STALE] * len(changes)
    for row in rows:
        outcomes[row[0] - 1] = Outcome.APPLIED
    return Written(outcomes, rows[0][1] if rows else None)


def _what_is_known(pool: Pool, error: BaseException, changes: Sequence[Change]) -> Written:
    """Of a statement that failed. Raises BadChange, StoreUnavailable, StoreBusy: then nothing was stored."""
    if is_lost(error):
        return Written([Outcome.UNKNOWN] * len(changes), None)
    if is_read_only(error):
        pool.forget_idle()  # the next connection leads to whoever is the first now
    if is_bad_change(error):
        raise BadChange from error
    raise meaning_of(error) from error
