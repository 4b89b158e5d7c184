"""What goes to the store together, and what its outcomes mean for each decision in it."""

from __future__ import annotations

import time
from collections.abc import Sequence

import msgspec

from satchel.commit.fold import Fold
from satchel.commit.waiting import Again, Apart, Waiting, merged_want, refuse, refuse_all, set_apart, still_patient
from satchel.domain.ids import SessionRef
from satchel.domain.run import RunRow
from satchel.domain.state import Want
from satchel.errors import SatchelError, StoreCorrupt, StoreError
from satchel.store import Change, Loaded, Outcome


class Seen(msgspec.Struct, frozen=True):
    """What one commit was, for who measures: decisions, ``seconds`` from handing it in, and what was applied."""

    decisions: int
    seconds: float
    kinds: tuple[str, ...] = ()
    runs: tuple[RunRow, ...] = ()


class Batch:
    """What goes to the store together: decisions by session, in the order in which they came."""

    __slots__ = ("_applied", "_began", "_folds", "_unreadable", "taken")

    def __init__(self, taken: dict[SessionRef, list[Waiting]]) -> None:
        self.taken = taken
        self._began = time.monotonic()
        self._applied: list[Fold] = []
        self._folds: dict[SessionRef, Fold] = {}
        self._unreadable: dict[SessionRef, SatchelError] = {}

    @property
    def is_lone(self) -> bool:
        return len(self.taken) == 1 and len(next(iter(self.taken.values()))) == 1

    def wanted(self) -> dict[SessionRef, Want]:
        return {ref: merged_want(waiting) for ref, waiting in self.taken.items()}

    def decide(self, loaded: Loaded) -> Sequence[Change]:
        self._folds = {}
        self._unreadable = {}
        for ref, waiting in self.taken.items():
            state = loaded.sessions[ref]
            if isinstance(state, SatchelError):
                self._unreadable[ref] = state
                continue
            fold = self._folds[ref] = Fold(waiting, state)
            fold.decide_all(loaded.clock)
        return [fold.change(ref) for ref, fold in self._folds.items() if fold.written]

    def settle(self, outcomes: Sequence[Outcome]) -> Again:
        """Answer what is certain; what is to be decided again is given back."""
        again: Again = []
        written = [ref for ref, fold in self._folds.items() if fold.written]
        told = dict(zip(written, outcomes, strict=True))
        for ref, fold in self._folds.items():
            outcome = told.get(ref, Outcome.APPLIED)
            if outcome is Outcome.APPLIED:
                self._applied.append(fold)
                for waiting, result in zip(fold.waiting, fold.results, strict=True):
                    waiting.answer(result)
            elif outcome is Outcome.REJECTED:
                rejected = StoreCorrupt(
                    f"session {ref.session_id}", trouble="does not take this write; it was not stored"
                )
                again += refuse(ref, fold.waiting, rejected)
            else:
                if outcome is Outcome.UNKNOWN:
                    fold.note_unsettled()
                kept = still_patient(fold.waiting)
                if kept:
                    again.append((ref, kept))
        for ref, error in self._unreadable.items():
            again += refuse(ref, self.taken[ref], error)
        return again

    def seen(self) -> Seen:
        return Seen(
            sum([len(waiting) for waiting in self.taken.values()]),
            time.monotonic() - self._began,
            tuple([event.kind for fold in self._applied for event in fold.events]),
            tuple([run for fold in self._applied for run in fold.runs.values()]),
        )

    def fail(self, error: BaseException) -> Again:
        """The whole of it failed. If the store is not to blame one decision is, and nobody else may hear of it: what was
        taken together is given back, to be tried apart."""
        if not isinstance(error, Exception) or (isinstance(error, StoreError) and not isinstance(error, StoreCorrupt)):
            for waiting in self.taken.values():
                refuse_all(waiting, error)
            return []
        for fold in self._folds.values():
            fold.note_unsettled()
        if len(self.taken) > 1:
            return [(ref, set_apart(waiting, Apart.IN_ITS_SESSION)) for ref, waiting in self.taken.items()]
        return [kept for ref, waiting in self.taken.items() for kept in refuse(ref, waiting, error)]
