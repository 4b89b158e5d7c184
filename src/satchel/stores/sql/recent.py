"""What this process knows without asking: records as it wrote them a moment ago, and the server's clock since its last answer.

A decision may be taken on them, because the commit compares the revision again and looks for the keys. What is answered without
a commit may not: then the session is loaded after all.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from satchel.domain.ids import SessionRef
from satchel.domain.record import SessionRecord
from satchel.domain.state import SessionState, Want
from satchel.domain.upkeep import may_settle
from satchel.store import Change, Loaded, Outcome
from satchel.stores.sql.loading import ReadClock, is_plain

KEPT_RECORDS = 1024
KEPT_FOR = 2.0  # seconds: a session that others write to as well is mostly not what it was
CLOCK_FOR = 2.0  # seconds that the server's clock is carried on by ours


class Recent:
    def __init__(self, read_clock: ReadClock) -> None:
        self._read_clock = read_clock
        self._records: dict[SessionRef, tuple[SessionRecord, float]] = {}
        self._clock: tuple[int, float] | None = None

    def recall(self, wanted: Mapping[SessionRef, Want]) -> Loaded | None:
        """All that is wanted, as far as it is known; None: ask the server."""
        at = time.monotonic()
        if self._clock is None or at - self._clock[1] > CLOCK_FOR:
            return None
        # It was read before it arrived here: this is never ahead of the server's.
        clock = self._read_clock(self._clock[0] + int((at - self._clock[1]) * 1e6))
        states: dict[SessionRef, SessionState] = {}
        for ref, want in wanted.items():
            known = self._records.get(ref)
            if known is None or at - known[1] > KEPT_FOR or want.open_work or not is_plain(want):
                return None
            record = known[0]
            if may_settle(record, clock) or want.layered(record):
                return None
            states[ref] = SessionState(record)
        return Loaded(sessions=states, clock=clock)

    def note(self, changes: Sequence[Change], outcomes: Sequence[Outcome], now: int | None) -> None:
        """``now``: the server's clock as it came with the answer."""
        at = time.monotonic()
        if now is not None:
            self._clock = (now, at)
        for change, outcome in zip(changes, outcomes, strict=True):
            self._records.pop(change.ref, None)
            if outcome is Outcome.APPLIED:
                self._records[change.ref] = (change.record, at)  # it becomes the newest
        while len(self._records) > KEPT_RECORDS:
            del self._records[next(iter(self._records))]

    def forget(self, refs: Mapping[SessionRef, object]) -> None:
        for ref in refs:
            self._records.pop(ref, None)
