"""The decisions of one batch on one session: decided one after another, folded into one change."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from satchel.commit.waiting import Committed, Waiting
from satchel.domain.decisions.decision import Decision
from satchel.domain.event import Event
from satchel.domain.idempotency import Answer, IdempotencyRecord
from satchel.domain.ids import SessionRef
from satchel.domain.rights import may_see
from satchel.domain.run import RunRow, stored_run
from satchel.domain.state import Clock, Effect, SessionState
from satchel.domain.stream import Piece, StreamKey
from satchel.domain.tool_call import CallRow
from satchel.domain.upkeep import is_past, settle
from satchel.errors import NotFound
from satchel.store import Change


class Fold:
    """The decisions of one batch on one session, folded into one change."""

    __slots__ = (
        "base",
        "calls",
        "ended_streams",
        "events",
        "idempotency",
        "metadata",
        "not_after",
        "partials",
        "results",
        "runs",
        "state",
        "waiting",
        "working_memory",
        "written",
    )

    def __init__(self, waiting: list[Waiting], state: SessionState) -> None:
        self.waiting = waiting
        self.state = state
        self.base = None if state.record is None else state.record.revision
        self.not_after: int | None = None
        self.events: list[Event] = []
        self.runs: dict[str, RunRow] = {}
        self.calls: dict[int, CallRow] = {}
        self.partials: list[Piece] = []
        self.ended_streams: list[StreamKey] = []
        self.working_memory: bytes | None = None
        self.metadata: bytes | None = None
        self.idempotency: list[IdempotencyRecord] = []
        self.written = False
        self.results: list[Committed[Any] | BaseException] = []

    def decide_all(self, clock: Clock) -> None:
        for waiting in self.waiting:
            try:
                self.results.append(self._decide(waiting.decision, waiting.unsettled, clock))
            except Exception as refusal:  # noqa: BLE001  # also a fault of ours: it is this caller's alone
                self.results.append(refusal)

    def _decide(self, decision: Decision[Any], unsettled: Sequence[Answer], clock: Clock) -> Committed[Any]:
        state = self.state
        record = state.record
        if record is not None and not record.hidden and may_see(decision.principal, record):
            due = record.due_at
            while is_past(record, due, clock):
                settled = settle(state, clock, writer=decision.attempt)
                if settled is None:
                    break
                self._lay(settled)
                record = settled.record
                due = record.due_at
            # The instant at which a decision on this record would turn out otherwise.
            if due is not None and (self.not_after is None or due < self.not_after):
                self.not_after = due
        if unsettled and (landed := self._landed(decision, unsettled)) is not None:
            return landed
        decided = decision.decide(state, clock)
        if isinstance(decided, Effect):
            self._lay(decided)
            self._remember(decision, decided.answer)
            return Committed(decision.view(state, decided.answer, replayed=False), decided.answer)
        if not decided.replayed and decision.caller_key and state.existing.status != "DELETED":
            self._remember(decision, decided.answer)
        replayed = decided.replayed and decided.answer not in unsettled  # or this very call finds itself
        view = decision.view(state, decided.answer, replayed=replayed)
        return Committed(view, decided.answer, replayed=replayed, found=decided.replayed)

    def _landed(self, decision: Decision[Any], unsettled: Sequence[Answer]) -> Committed[Any] | None:
        """What the store could not tell of: the former attempt is there. Nothing that came after it, a deletion in the same
        batch say, makes that a refusal."""
        kept = None if decision.key is None else self.state.keys.get(decision.key)
        if kept is None or kept.answer not in unsettled:
            return None
        try:
            return Committed(decision.view(self.state, kept.answer, replayed=False), kept.answer, found=True)
        except NotFound:  # its rows are erased by now
            return None

    def _lay(self, effect: Effect) -> None:
        self.state.lay(effect)
        self.events.extend(effect.events)
        for run in effect.runs:
            self.runs[run.run_id] = run
        for call in effect.calls:
            self.calls[call.seq] = call
        if effect.partials or effect.ended_streams:
            self._lay_streams(effect)
        if effect.working_memory is not None:
            self.working_memory = effect.working_memory
        if effect.metadata is not None:
            self.metadata = effect.metadata
        self.written = True

    def _lay_streams(self, effect: Effect) -> None:
        ended = effect.ended_streams
        self.partials = [piece for piece in (*self.partials, *effect.partials) if piece.key not in ended]
        self.ended_streams.extend(ended)

    def _remember(self, decision: Decision[Any], answer: Answer) -> None:
        if decision.key is None:
            return
        record = IdempotencyRecord(decision.key, decision.fingerprint, answer)
        self.state.keys[decision.key] = record
        self.idempotency.append(record)
        self.written = True

    def note_unsettled(self) -> None:
        """The store could not tell whether the change was applied: its answers may be found again as replays."""
        for waiting, result in zip(self.waiting, self.results, strict=False):  # fewer, if deciding broke off
            if isinstance(result, Committed) and not result.replayed:
                waiting.unsettled.append(result.answer)

    def change(self, ref: SessionRef) -> Change:
        record = self.state.existing
        if self.base is not None and record.revision != self.base + 1:
            record = msgspec.structs.replace(record, revision=self.base + 1)
        return Change(
            ref=ref,
            base=self.base,
            record=record,
            not_after=self.not_after,
            events=tuple(self.events),
            runs=tuple([stored_run(run) for run in self.runs.values()]) if self.runs else (),
            calls=tuple(self.calls.values()) if self.calls else (),
            partials=tuple(self.partials) if self.partials else (),
            ended_streams=tuple(self.ended_streams) if self.ended_streams else (),
            working_memory=self.working_memory,
            metadata=self.metadata,
            idempotency=tuple(self.idempotency),
        )
