"""The events of a change: messages, and the streams that become them."""

from __future__ import annotations

from typing import Any

import msgspec

from satchel.domain.event import CallOutcome, Event, EventKind, MessageStatus
from satchel.domain.message import Draft
from satchel.domain.record import KEPT_LABELS, Part, SessionRecord, asked_label
from satchel.domain.run import TERMINAL, RunRow
from satchel.domain.state import Clock, SessionState
from satchel.domain.stream import StreamKey
from satchel.domain.tool_call import CallRow


class LogEdit:
    """The events of one change, and the rows that follow from them. The state stays as it is."""

    def __init__(self, state: SessionState, clock: Clock, actor: str) -> None:
        self.state = state
        self.clock = clock
        self.actor = actor
        self.record: SessionRecord = state.existing
        self.version = self.record.version + 1
        self.seq = self.record.last_seq
        self.events: list[Event] = []
        self.fields: dict[str, Any] = {}
        self.parts: dict[str, int] = {}
        self.runs: dict[str, RunRow] = {}
        self.calls: dict[int, CallRow] = {}
        self.ended_streams: list[StreamKey] = []
        self.working_memory: bytes | None = None
        self.metadata: bytes | None = None

    # -- the record's fields, as they are in this edit

    def get(self, name: str) -> Any:
        return self.fields[name] if name in self.fields else getattr(self.record, name)

    def touch(self, part: Part) -> None:
        self.parts[part] = self.version

    def is_active(self) -> None:
        """This change is activity: the idle time begins anew, unless the change says from when it counts."""
        if "active_at" not in self.fields:
            self.fields["active_at"] = max(self.clock.now, self.record.active_at)

    # -- the log

    def event(self, kind: EventKind, body: bytes, *, run_id: str | None = None, refers_to: int | None = None) -> int:
        """Of any kind but a message."""
        self.seq += 1
        self.events.append(
            Event(
                seq=self.seq,
                version=self.version,
                kind=kind,
                at=self.clock.now,
                actor=self.actor,
                body=body,
                run_id=run_id,
                refers_to=refers_to,
            )
        )
        return self.seq

    # -- messages

    def message(
        self,
        draft: Draft,
        *,
        run_id: str | None = None,
        status: MessageStatus = "complete",
        ends: CallRow | None = None,
        outcome: CallOutcome | None = None,
        streamed: int | None = None,
        actor: str | None = None,
    ) -> int:
        seq = self.seq = self.seq + 1
        self.events.append(
            Event(
                seq=seq,
                version=self.version,
                kind="message",
                at=self.clock.now,
                actor=actor or self.actor,
                body=draft.body,
                run_id=run_id,
                refers_to=None if ends is None else ends.seq,
                status=status,
                format=draft.format,
                metadata=draft.metadata,
                outcome=outcome,
                tokens=draft.counted,
                streamed=streamed,
            )
        )
        fields, record = self.fields, self.record
        fields["messages"] = fields.get("messages", record.messages) + 1
        if status != "unanswered":  # no model is going to see it
            fields["context_tokens"] = fields.get("context_tokens", record.context_tokens) + draft.tokens
        self.parts["messages"] = self.version
        if draft.asks:
            asks = tuple([asked_label(self.get("children"), run_id, label) for label in draft.asks])
            self.fields["asked"] = (self.get("asked") + asks)[-KEPT_LABELS:]
        if draft.answers is not None:
            self.answered(asked_label(self.get("children"), run_id, draft.answers))
        return seq

    def is_asked(self, run_id: str | None, label: str | None) -> bool:
        """Whether an assistant's message asked for this label, and nobody answered."""
        return label is not None and asked_label(self.get("children"), run_id, label) in self.get("asked")

    def answered(self, label: str) -> None:
        asked: tuple[str, ...] = self.get("asked")
        if label in asked:
            at = asked.index(label)
            self.fields["asked"] = asked[:at] + asked[at + 1 :]

    def end_stream(self, key: StreamKey) -> None:
        """Its message is in the log, or nothing was said: the pieces go."""
        self.fields["streams"] = tuple(stream for stream in self.get("streams") if stream.key != key)
        self.ended_streams.append(key)

    # -- the rows of runs

    def run(self, run_id: str) -> RunRow | None:
        return self.runs[run_id] if run_id in self.runs else self.state.runs.get(run_id)

    def put_run(self, row: RunRow) -> RunRow:
        row = msgspec.structs.replace(row, version=self.version)
        self.runs[row.run_id] = row
        self.parts["runs"] = self.version
        return row

    def count_step(self, run_id: str) -> None:
        row = self.run(run_id)
        if row is not None and row.status not in TERMINAL:
            self.put_run(msgspec.structs.replace(row, steps=row.steps + 1))
