"""A batch of changes is one transaction of two round trips: lock and look, then write and commit.

Who commits holds the rows' locks from the first to the second. A server that hears nothing of its client meanwhile lets
them go with the connection, after `wait_timeout` at the latest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from satchel.domain.ids import SessionRef
from satchel.domain.state import Clock, Want
from satchel.errors import InvalidInput
from satchel.store import Change, Loaded, Outcome
from satchel.stores.mysql.applying import Question, Statements, applicable, lock, question
from satchel.stores.mysql.connection import COMMIT, ROLLBACK, START, Line
from satchel.stores.mysql.faults import (
    DRIVER_ERRORS,
    is_duplicate,
    is_lost,
    is_waited_for,
    is_worth_another_try,
    meaning_of,
)
from satchel.stores.mysql.loading import load
from satchel.stores.sql import writing
from satchel.stores.sql.loading import ReadClock
from satchel.stores.sql.pool import Again, Pool
from satchel.stores.sql.writing import NO_BASIS, BadChange, Basis, Written, basis_of, what_is_known

TRIES = 12  # with growing pauses: ten seconds in all, on a cluster whose nodes write to one session
PATIENT_TRIES = 2  # of who waited for a lock as long as the server lets anybody wait
_UNREADABLE = (ValueError, TypeError, AttributeError)  # what a change raises that holds no rows


class CommitFailed(Exception):
    """At the COMMIT itself, in a way that does not say what became of it."""


async def write(pool: Pool[Line], changes: Sequence[Change], clock: Clock | None, basis: Basis = NO_BASIS) -> Written:
    """``clock`` where it is not the server's. Raises StoreUnavailable and StoreBusy: nothing was stored."""
    return await writing.write(partial(_write_together, pool, clock, basis), changes)


async def _write_together(pool: Pool[Line], clock: Clock | None, basis: Basis, changes: Sequence[Change]) -> Written:
    asked = _asked_of(changes, basis)
    again = Again(TRIES)
    has_met = False  # a key that was not there a moment before
    while True:
        try:
            async with pool.use() as line:
                return await _apply(line, changes, asked, clock)
        except CommitFailed:
            return _unknown(changes)
        except DRIVER_ERRORS as error:
            # The second time the key is the change's own fault, and no other process's.
            is_met = is_duplicate(error) and not has_met
            if (is_met or is_worth_another_try(error)) and await _pause(again, error):
                has_met = has_met or is_met
                continue
            return what_is_known(pool, error, changes)


async def _apply(
    line: Line, changes: Sequence[Change], asked: Question, clock: Clock | None, *, begun: bool = False
) -> Written:
    """In a transaction of its own, or, ``begun``, in the one that is open, which it ends. Raises BadChange and CommitFailed, and
    the driver's errors of anything before the COMMIT."""
    try:
        found = await line.fetch_inside(*(() if begun else (START,)), *asked.statements)
        may, now = applicable(changes, asked, found[0 if begun else 1 :], None if clock is None else clock.now)
        statements = _statements_of(line, [change for change, is_due in zip(changes, may, strict=True) if is_due])
    except BaseException as error:
        await line.rest_after(error)
        raise
    if True in may:
        await _write_and_commit(line, statements)
    else:
        await line.run(ROLLBACK)
    return Written([Outcome.APPLIED if is_applied else Outcome.STALE for is_applied in may], now)


async def _write_and_commit(line: Line, statements: Sequence[bytes]) -> None:
    try:
        await line.run_inside(*statements, COMMIT)
    except BaseException as error:
        is_at_commit = line.answered == len(statements)
        await line.rest_after(error)
        # That it was a deadlock (a cluster certifies at the COMMIT) says that nothing was stored.
        if is_at_commit and isinstance(error, DRIVER_ERRORS) and not is_lost(error) and not is_worth_another_try(error):
            raise CommitFailed from error
        raise


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
    clock = None if own_clock is None else own_clock()
    again = Again(TRIES)
    while True:
        try:
            async with pool.use() as line:
                try:
                    await line.run_inside(START, *_locks_of(wanted))
                    loaded = await load(line.fetch_inside, read_clock, wanted)
                    basis = basis_of(loaded)
                    changes = decide(loaded)
                except BaseException as error:
                    await line.rest_after(error)
                    raise
                if not changes:
                    await line.run(ROLLBACK)
                    return changes, Written([], None)
                return changes, await _apply(line, changes, _asked_of(changes, basis), clock, begun=True)
        except CommitFailed:
            return changes, _unknown(changes)
        except BadChange:
            return changes, await write(pool, changes, clock)
        except DRIVER_ERRORS as error:
            if is_worth_another_try(error) and await _pause(again, error):
                changes = ()
                continue
            if not changes:
                raise meaning_of(error) from error
            try:
                return changes, what_is_known(pool, error, changes)
            except BadChange:
                return changes, await write(pool, changes, clock)


def _locks_of(wanted: Mapping[SessionRef, Want]) -> list[bytes]:
    try:
        return lock(wanted)
    except UnicodeEncodeError as error:
        raise InvalidInput("holds a value that this store cannot look for", field="request") from error


def _asked_of(changes: Sequence[Change], basis: Basis) -> Question:
    try:
        return question(changes, basis)
    except _UNREADABLE as error:
        raise BadChange from error


def _statements_of(line: Line, changes: Sequence[Change]) -> list[bytes]:
    statements = Statements()
    try:
        for change in changes:
            statements.add(change)
    except _UNREADABLE as error:
        raise BadChange from error
    all_of_them = statements.all()
    if any(len(one) > line.packet for one in all_of_them):
        raise BadChange from ValueError("a row is larger than the server's max_allowed_packet")
    return all_of_them


def _unknown(changes: Sequence[Change]) -> Written:
    return Written([Outcome.UNKNOWN] * len(changes), None)


async def _pause(again: Again, error: BaseException) -> bool:
    """False: no try is left."""
    if is_waited_for(error):
        again.at_most(PATIENT_TRIES)
    return await again.pause()
