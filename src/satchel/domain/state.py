"""What a decision sees, and what it answers.

A decision is pure: it is given a state and an instant, and gives back an effect. The committer lays the effects of the
decisions before it over the state that was loaded, so that decisions on one session can share one commit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from satchel.domain.event import Event
from satchel.domain.idempotency import Answer, IdempotencyRecord
from satchel.domain.record import SessionRecord
from satchel.domain.run import RunRow
from satchel.domain.stream import Piece, StreamKey
from satchel.domain.tool_call import CallRow


class Clock(NamedTuple):
    """The store's clocks: ``now`` is wall time; leases count on ``lease_now``, which means something only beside
    readings of the same ``lease_clock`` (a boot id, where there is no server). All in microseconds."""

    now: int
    lease_now: int
    lease_clock: str


RunStepName = tuple[str, str]  # of a tool call: its run, and its name there


class Want(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What a decision needs to see beside the record.

    ``arguments_hashes``: the newest call with equal arguments. ``steps``: the newest call of a run under that name.
    ``open_work``: the open runs and calls, and what was streamed and is not final; they are given as well when the record
    ``may_settle``. ``streams``: what was streamed of these messages. ``layer``: the run that has the turn
    and the working memory, if that run has a layer over it.
    """

    keys: tuple[bytes, ...] = ()
    run_ids: tuple[str, ...] = ()
    call_seqs: tuple[int, ...] = ()
    arguments_hashes: tuple[bytes, ...] = ()
    steps: tuple[RunStepName, ...] = ()
    event_seqs: tuple[int, ...] = ()
    streams: tuple[StreamKey, ...] = ()
    open_work: bool = False
    working_memory: bool = False
    metadata: bool = False
    layer: bool = False

    def layered(self, record: SessionRecord) -> bool:
        return self.layer and record.turn is not None and record.turn.has_layer


NOTHING = Want()


def merge_wants(together: Sequence[Want]) -> Want:
    """One want that covers all."""
    return Want(
        keys=tuple(dict.fromkeys(key for want in together for key in want.keys)),
        run_ids=tuple(dict.fromkeys(run_id for want in together for run_id in want.run_ids)),
        call_seqs=tuple(dict.fromkeys(seq for want in together for seq in want.call_seqs)),
        arguments_hashes=tuple(dict.fromkeys(found for want in together for found in want.arguments_hashes)),
        steps=tuple(dict.fromkeys(step for want in together for step in want.steps)),
        event_seqs=tuple(dict.fromkeys(seq for want in together for seq in want.event_seqs)),
        streams=tuple(dict.fromkeys(key for want in together for key in want.streams)),
        open_work=any(want.open_work for want in together),
        working_memory=any(want.working_memory for want in together),
        metadata=any(want.metadata for want in together),
        layer=any(want.layer for want in together),
    )


class Effect(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What one accepted decision changes. ``record`` is the whole new record (the committer counts its revision)."""

    record: SessionRecord
    answer: Answer
    events: tuple[Event, ...] = ()
    runs: tuple[RunRow, ...] = ()
    calls: tuple[CallRow, ...] = ()
    partials: tuple[Piece, ...] = ()
    ended_streams: tuple[StreamKey, ...] = ()
    working_memory: bytes | None = None
    metadata: bytes | None = None


class Unchanged(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The decision holds already (a no-op), or was taken before (``replayed``)."""

    answer: Answer
    replayed: bool = False


class SessionState(msgspec.Struct, eq=False, gc=False):
    """One session as loaded, with the effects of earlier decisions laid over it: then it ``is_laid_over``, and its record still has
    the revision that was loaded."""

    record: SessionRecord | None
    keys: dict[bytes, IdempotencyRecord] = {}  # of its own, as each of these: msgspec copies them
    runs: dict[str, RunRow] = {}
    calls: dict[int, CallRow] = {}
    same_calls: dict[bytes, int] = {}
    steps: dict[RunStepName, CallRow] = {}
    events: dict[int, Event] = {}
    partials: dict[StreamKey, tuple[Piece, ...]] = {}
    working_memory: bytes = b""
    metadata: bytes = b""
    is_laid_over: bool = False

    def is_at(self, revision: int | None) -> bool:
        """Whether the session is as whoever read it at this revision saw it."""
        return self.record is not None and self.record.revision == revision and not self.is_laid_over

    def copy(self) -> SessionState:
        """Independent of this one; what both hold is frozen."""
        return SessionState(
            self.record,
            keys=dict(self.keys),
            runs=dict(self.runs),
            calls=dict(self.calls),
            same_calls=dict(self.same_calls),
            steps=dict(self.steps),
            events=dict(self.events),
            partials=dict(self.partials),
            working_memory=self.working_memory,
            metadata=self.metadata,
            is_laid_over=self.is_laid_over,
        )

    def lay(self, effect: Effect) -> None:
        """Lay ``effect`` over this state."""
        self.record = effect.record
        self.is_laid_over = True
        for run in effect.runs:
            self.runs[run.run_id] = run
        for call in effect.calls:
            if call.seq not in self.calls:
                self.same_calls[call.arguments_hash] = call.seq
            self.calls[call.seq] = call
            if call.step is not None and call.run_id is not None:
                self._lay_step((call.run_id, call.step), call)
        for event in effect.events:
            self.events[event.seq] = event
        for piece in effect.partials:
            self.partials[piece.key] = (*self.partials.get(piece.key, ()), piece)
        for key in effect.ended_streams:
            self.partials.pop(key, None)
        if effect.working_memory is not None:
            self.working_memory = effect.working_memory
        if effect.metadata is not None:
            self.metadata = effect.metadata

    def _lay_step(self, name: RunStepName, call: CallRow) -> None:
        known = self.steps.get(name)
        if known is None or known.seq <= call.seq:
            self.steps[name] = call

    @property
    def existing(self) -> SessionRecord:
        """The record of a session that is known to be there."""
        assert self.record is not None
        return self.record
