"""What is kept of one session, and what is read of it. All of it is frozen."""

from __future__ import annotations

import bisect
from collections.abc import Iterable
from typing import Any

import msgspec

from satchel.domain.event import Event
from satchel.domain.idempotency import IdempotencyRecord
from satchel.domain.record import SessionRecord
from satchel.domain.run import RunRow
from satchel.domain.state import Clock, RunStepName, SessionState, Want
from satchel.domain.stream import Piece, StreamKey
from satchel.domain.tool_call import CallRow
from satchel.domain.upkeep import more_wanted
from satchel.store import Change


class Kept:
    """One session."""

    __slots__ = (
        "calls",
        "events",
        "keys",
        "metadata",
        "newest_call",
        "newest_step",
        "partials",
        "record",
        "retracted",
        "runs",
        "working_memory",
    )

    def __init__(self, record: SessionRecord) -> None:
        self.record = record
        self.events: list[Event] = []
        self.retracted: set[int] = set()
        self.runs: dict[str, RunRow] = {}
        self.calls: dict[int, CallRow] = {}
        self.newest_call: dict[bytes, int] = {}
        self.newest_step: dict[RunStepName, int] = {}
        self.keys: dict[bytes, IdempotencyRecord] = {}
        self.partials: dict[StreamKey, tuple[Piece, ...]] = {}
        self.working_memory = b""
        self.metadata = b""

    def state(self, want: Want, clock: Clock) -> SessionState:
        record = self.record
        want = more_wanted(want, record, clock) or want
        return SessionState(
            record,
            keys={key: self.keys[key] for key in want.keys if key in self.keys},
            runs={run_id: self.with_input(self.runs[run_id]) for run_id in want.run_ids if run_id in self.runs},
            calls={seq: self.with_bodies(self.calls[seq]) for seq in want.call_seqs if seq in self.calls},
            same_calls={h: self.newest_call[h] for h in want.arguments_hashes if h in self.newest_call},
            steps=self.steps_of(want.steps),
            events=self.events_of(want.event_seqs),
            partials={key: self.partials[key] for key in want.streams if key in self.partials},
            working_memory=self.working_memory if want.working_memory else b"",
            metadata=self.metadata if want.metadata else b"",
        )

    def event(self, seq: int) -> Event | None:
        at = bisect.bisect_left(self.events, seq, key=lambda event: event.seq)
        return self.events[at] if at < len(self.events) and self.events[at].seq == seq else None

    def events_of(self, seqs: Iterable[int]) -> dict[int, Event]:
        found: dict[int, Event] = {}
        for seq in seqs:
            event = self.event(seq)
            if event is None:
                continue
            found[seq] = event
            if seq in self.retracted:
                found.update((e.seq, e) for e in self.events if e.kind == "message_retracted" and e.refers_to == seq)
        return found

    def steps_of(self, names: Iterable[RunStepName]) -> dict[RunStepName, CallRow]:
        found = {name: self.newest_step[name] for name in names if name in self.newest_step}
        return {name: self.with_bodies(self.calls[seq]) for name, seq in found.items() if seq in self.calls}

    def messages(self) -> list[Event]:
        return [event for event in self.events if event.kind == "message" and event.seq not in self.retracted]

    def runs_in_order(self) -> list[RunRow]:
        return sorted(self.runs.values(), key=lambda run: run.number)

    def with_bodies(self, row: CallRow) -> CallRow:
        start = self.event(row.seq)
        end = None if row.result_seq is None else self.event(row.result_seq)
        return msgspec.structs.replace(
            row,
            start_body=b"{}" if start is None else start.body,
            end_body=None if end is None else end.body,
        )

    def with_input(self, row: RunRow) -> RunRow:
        if row.input_seq is None:
            return row
        event = self.event(row.input_seq)
        return row if event is None else msgspec.structs.replace(row, input=msgspec.Raw(event.body))

    def apply(self, change: Change) -> None:
        """All that can fail comes first: a change is applied whole, or not at all."""
        runs = {run.run_id: run for run in change.runs}
        calls = {call.seq: msgspec.structs.replace(call, start_body=b"{}", end_body=None) for call in change.calls}
        newest: dict[bytes, int] = {}
        steps: dict[RunStepName, int] = {}
        for call in change.calls:
            newest[call.arguments_hash] = max(call.seq, newest.get(call.arguments_hash, 0))
            if call.run_id is not None and call.step is not None:
                name = call.run_id, call.step
                steps[name] = max(call.seq, steps.get(name, 0))
        keys = {record.key_hash: record for record in change.idempotency}
        partials: dict[StreamKey, tuple[Piece, ...]] = {}
        for piece in change.partials:
            before = self.partials.get(piece.key, ())
            partials[piece.key] = (*partials.get(piece.key, before), piece)
        self.record = change.record
        for event in change.events:
            self.events.append(event)
            if event.kind == "message_retracted" and event.refers_to is not None:
                self.retracted.add(event.refers_to)
        for key in change.ended_streams:
            self.partials.pop(key, None)
        self.partials.update(partials)
        self.runs.update(runs)
        self.calls.update(calls)
        for arguments_hash, seq in newest.items():
            self.newest_call[arguments_hash] = max(seq, self.newest_call.get(arguments_hash, 0))
        for name, seq in steps.items():
            self.newest_step[name] = max(seq, self.newest_step.get(name, 0))
        self.keys.update(keys)
        if change.working_memory is not None:
            self.working_memory = change.working_memory
        if change.metadata is not None:
            self.metadata = change.metadata

    def erase(self, limit: int) -> int:
        """Rows that were erased. The keys go first: a retry that is still answered finds all that it was answered with."""
        erased = _erase_from(self.keys, limit)
        while erased < limit and self.events:
            self.events.pop()
            erased += 1
        for rows in (self.runs, self.calls, self.newest_call, self.newest_step, self.partials):
            erased += _erase_from(rows, limit - erased)
        self.retracted.clear()
        return erased


def _erase_from(rows: dict[Any, Any], limit: int) -> int:
    count = min(limit, len(rows))
    for _ in range(count):
        rows.popitem()
    return count
