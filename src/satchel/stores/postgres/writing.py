"""A batch of changes is one statement."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from satchel.domain.ids import SessionRef
from satchel.domain.state import Clock, Want
from satchel.store import Change, Loaded, Outcome
from satchel.stores.postgres.applying import statement_of
from satchel.stores.postgres.connection import (
    DRIVER_ERRORS,
    Line,
    Row,
    is_bad_change,
    is_worth_another_try,
    meaning_of,
)
from satchel.stores.postgres.loading import load
from satchel.stores.postgres.queries import SQL
from satchel.stores.sql import writing
from satchel.stores.sql.loading import ReadClock
from satchel.stores.sql.pool import Again, Pool
from satchel.stores.sql.writing import NO_BASIS, TRIES, BadChange, Basis, Written, basis_of, what_is_known


async def write(pool: Pool[Line], changes: Sequence[Change], clock: Clock | None, basis: Basis = NO_BASIS) -> Written:
    """``clock`` where it is not the server's. Raises StoreUnavailable and StoreBusy: nothing was stored."""
    return await writing.write(partial(_write_together, pool, clock, basis), changes)


async def _write_together(pool: Pool[Line], clock: Clock | None, basis: Basis, changes: Sequence[Change]) -> Written:
    statement, values = _statement_of(changes, clock, basis)
    again = Again(TRIES)
    while True:
        try:
            async with pool.use() as line:
                rows = await line.fetch(statement, *values)
        except DRIVER_ERRORS as error:
            if is_worth_another_try(error) and await again.pause():
                continue
            return what_is_known(pool, error, changes)
        return _read(changes, rows)


async def write_locked(
    pool: Pool[Line],
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
        return changes, what_is_known(pool, error, changes)
    return changes, _read(changes, rows)


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
