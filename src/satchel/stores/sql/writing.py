"""What became of a batch of changes. What is certain is answered; what nobody can know is UNKNOWN."""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from satchel.domain.ids import SessionRef
from satchel.domain.record import SessionRecord
from satchel.domain.state import SessionState, Want
from satchel.errors import StoreError
from satchel.store import Change, Loaded, Outcome
from satchel.stores.sql.pool import Pool

_log = logging.getLogger("satchel.stores.sql")

TRIES = 8
STALE_IN_A_ROW = 2  # of one session, until it is locked first
LOCKED_FOR = 0.25  # seconds after the last of them


class Basis(NamedTuple):
    """What changes were decided on: the records as they were, and the keys of which nobody has looked whether they exist."""

    records: Mapping[SessionRef, SessionRecord | None]
    unseen: Mapping[SessionRef, Want]


NO_BASIS = Basis({}, {})


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


class BadChange(Exception):
    """One of the changes cannot be stored; none of them was."""


class Written(NamedTuple):
    """``now``: the server's clock, where it answered with it."""

    outcomes: list[Outcome]
    now: int | None


# All in one transaction. Raises BadChange, StoreUnavailable, StoreBusy: nothing was stored.
Together = Callable[[Sequence[Change]], Awaitable[Written]]


async def write(together: Together, changes: Sequence[Change]) -> Written:
    """Raises StoreUnavailable and StoreBusy: nothing was stored."""
    try:
        return await together(changes)
    except BadChange:
        return Written([await _write_alone(together, change) for change in changes], None)


async def _write_alone(together: Together, change: Change) -> Outcome:
    """Once a batch failed: what happens here is this change's own, and no error of it may hide the others' outcomes."""
    try:
        written = await together([change])
    except BadChange:
        _log.exception("a change of session %s cannot be stored", change.ref.session_id)
        return Outcome.REJECTED
    except StoreError:  # away or busy: nothing was stored, and whoever asks again will hear it
        return Outcome.STALE
    return written.outcomes[0]


def basis_of(loaded: Loaded) -> Basis:
    """To be taken before deciding, which lays effects over the states."""
    records = {ref: state.record for ref, state in loaded.sessions.items() if isinstance(state, SessionState)}
    return Basis(records, {})


def what_is_known(pool: Pool[Any], error: BaseException, changes: Sequence[Change]) -> Written:
    """Of a statement that failed. Raises BadChange, StoreUnavailable, StoreBusy: then nothing was stored."""
    if pool.faults.is_lost(error):
        return Written([Outcome.UNKNOWN] * len(changes), None)
    if pool.faults.is_read_only(error):
        pool.forget_idle()  # the next connection leads to whoever is the first now
    if pool.faults.is_bad_change(error):
        raise BadChange from error
    raise pool.faults.meaning_of(error) from error
