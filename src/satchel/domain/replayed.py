"""A session in the making, as its log is replayed: the record's fields, and the rows that an event changed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from satchel.domain.event import Event
from satchel.domain.limits import Limits
from satchel.domain.record import Part, SessionRecord
from satchel.domain.run import TERMINAL, RunRow
from satchel.domain.state import SessionState
from satchel.domain.tool_call import CallRow


class Replayed:
    """What the kinds of events have in common. ``fields`` and ``parts`` are those that the event in hand changes."""

    def __init__(self, header: SessionRecord, *, metadata: bytes, limits: Limits) -> None:
        self.state = SessionState(header, metadata=metadata)
        self.limits = limits
        self.fields: dict[str, Any] = {}
        self.parts: dict[str, int] = {}
        self._changed_runs: dict[str, RunRow] = {}
        self._changed_calls: dict[int, CallRow] = {}
        self.adders: dict[str, str] = {}  # of runs that have not started: who added them

    def get(self, name: str) -> Any:
        return self.fields[name] if name in self.fields else getattr(self.state.existing, name)

    def touch(self, part: Part, event: Event) -> None:
        self.parts[part] = event.version

    # -- rows

    def take_rows(self) -> tuple[tuple[RunRow, ...], tuple[CallRow, ...]]:
        """The rows that changed since this was last called. Calls that have ended are forgotten with it: nothing refers
        to them any more, and their bodies are most of a log."""
        rows = tuple(self._changed_runs.values()), tuple(self._changed_calls.values())
        for call in rows[1]:
            if call.status != "started":
                self.state.calls.pop(call.seq, None)
        self._changed_runs = {}
        self._changed_calls = {}
        return rows

    def put_rows(self, runs: Iterable[RunRow], calls: Iterable[CallRow]) -> None:
        """Rows that changed by other means than an event taken here."""
        self._changed_runs.update((row.run_id, row) for row in runs)
        self._changed_calls.update((row.seq, row) for row in calls)

    def put_call(self, row: CallRow) -> None:
        if row.seq not in self.state.calls:
            self.state.same_calls[row.arguments_hash] = row.seq
        self.state.calls[row.seq] = row
        self._changed_calls[row.seq] = row

    def put_run(self, event: Event, row: RunRow) -> None:
        row = msgspec.structs.replace(row, version=event.version)
        self.state.runs[row.run_id] = row
        self._changed_runs[row.run_id] = row
        self.touch("runs", event)

    def count_step(self, event: Event, run_id: str | None) -> None:
        """Counted for the run that the call belongs to, whoever finished it."""
        row = self.state.runs.get(run_id or "")
        if row is not None and row.status not in TERMINAL:
            self.put_run(event, msgspec.structs.replace(row, steps=row.steps + 1))

    def run_at_work(self, event: Event) -> None:
        """What a run writes, it writes while it is RUNNING. Raises ValueError."""
        if event.run_id is None:
            return
        row = self.state.runs.get(event.run_id)
        if row is None or row.status != "RUNNING":
            raise ValueError(f"belongs to run {event.run_id}, which is not running")
