"""An accepted change in the making: how the parts of a session change together.

Every decision that is accepted writes through an Edit, so that counters, part versions, labels, the turn and the queue
are kept in one place.
"""

from __future__ import annotations

from typing import Any

import msgspec

from satchel.domain.event import CHAT_FORMAT, CallOutcome, Event, EventKind, MessageStatus
from satchel.domain.idempotency import Answer
from satchel.domain.json_text import NO_JSON
from satchel.domain.limits import WRITTEN_HERE
from satchel.domain.message import Draft, admit_message
from satchel.domain.record import (
    KEPT_LABELS,
    KEPT_TRANSITIONS,
    Lease,
    OpenCall,
    Part,
    SessionRecord,
    SessionStatus,
    Transition,
    Turn,
    Waiting,
    asked_label,
)
from satchel.domain.run import TERMINAL, RunError, RunRow, RunStatus
from satchel.domain.state import Clock, Effect, SessionState
from satchel.domain.stream import StreamKey, interrupt_streams
from satchel.domain.tokens import TokenCounter, estimate_tokens, text_tokens
from satchel.domain.tool_call import CallRow, ResultKind, ToolCallStatus
from satchel.domain.window import passing

_OUTCOMES: dict[tuple[str, str], CallOutcome] = {
    ("succeeded", "text"): "succeeded/text",
    ("succeeded", "json"): "succeeded/json",
    ("failed", "text"): "failed/text",
    ("failed", "json"): "failed/json",
}

_encode = msgspec.json.Encoder().encode

OPERATOR = "operator"
PARENT_ENDED = "parent_ended"  # why a child run ends that did not end by itself


class Edit:
    """Collects one change of ``state`` at ``clock`` by ``actor``; ``finish`` gives the effect. The state stays as it is."""

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

    # -- the log

    def event(
        self,
        kind: EventKind,
        body: bytes,
        *,
        run_id: str | None = None,
        refers_to: int | None = None,
        status: MessageStatus = "complete",
        format: str = CHAT_FORMAT,
        metadata: bytes | None = None,
        outcome: CallOutcome | None = None,
        tokens: int | None = None,
        streamed: int | None = None,
        actor: str | None = None,
    ) -> int:
        self.seq += 1
        self.events.append(
            Event(
                seq=self.seq,
                version=self.version,
                kind=kind,
                at=self.clock.now,
                actor=actor or self.actor,
                body=body,
                run_id=run_id,
                refers_to=refers_to,
                status=status,
                format=format,
                metadata=metadata,
                outcome=outcome,
                tokens=tokens,
                streamed=streamed,
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
        seq = self.event(
            "message",
            draft.body,
            run_id=run_id,
            refers_to=None if ends is None else ends.seq,
            status=status,
            format=draft.format,
            metadata=draft.metadata,
            outcome=outcome,
            tokens=draft.counted,
            streamed=streamed,
            actor=actor,
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

    # -- tool calls

    def open_call(self, row: CallRow) -> None:
        self.calls[row.seq] = row
        self.fields["tool_calls"] = self.get("tool_calls") + 1
        self.parts["tool_history"] = self.version
        if row.status == "started":
            self.fields["open_calls"] = (
                *self.get("open_calls"),
                OpenCall(seq=row.seq, tool_call_id=row.tool_call_id, run_id=row.run_id),
            )

    def call(self, seq: int) -> CallRow:
        return self.calls[seq] if seq in self.calls else self.state.calls[seq]

    def end_call(
        self,
        row: CallRow,
        status: ToolCallStatus,
        *,
        result: bytes | None = None,
        error: bytes | None = None,
        message: tuple[int, bytes] | None = None,
        tokens: int | None = None,
    ) -> CallRow:
        """Finish an open call: by ``message`` (seq and body of a tool message already written), by a message of our own
        when an assistant's message asked for this label, else by an event of its own. ``result`` and ``error`` are JSON;
        ``tokens`` those of a message that says them, where they were counted."""
        kind: ResultKind = "event"
        if message is not None:
            end_seq, end_body = message
            kind = "text"
        elif status in ("succeeded", "failed") and self.is_asked(row.run_id, row.tool_call_id):
            end_seq, end_body, kind = self.tool_message(row, status, result, error, tokens)
        else:
            end_body = outcome_body(status, result, error)
            end_seq = self.event("tool_call_finished", end_body, run_id=row.run_id, refers_to=row.seq)
        ended = msgspec.structs.replace(
            row,
            version=self.version,
            status=status,
            end_time=self.clock.now,
            result_seq=end_seq,
            result_kind=kind,
            end_body=end_body,
        )
        self.calls[row.seq] = ended
        self.fields["open_calls"] = tuple(call for call in self.get("open_calls") if call.seq != row.seq)
        self.parts["tool_history"] = self.version
        if row.run_id is not None:
            self.count_step(row.run_id)
        return ended

    def tool_message(
        self,
        row: CallRow,
        status: ToolCallStatus,
        result: bytes | None,
        error: bytes | None,
        tokens: int | None = None,
    ) -> tuple[int, bytes, ResultKind]:
        """The result, said: one event that is both the message and the outcome."""
        assert row.tool_call_id is not None
        value = said_outcome(status, result, error)
        kind: ResultKind = "text" if value.startswith(b'"') else "json"
        content = value if kind == "text" else _encode(value.decode())
        body = b'{"role":"tool","tool_call_id":' + _encode(row.tool_call_id) + b',"content":' + content + b"}"
        draft = Draft(
            body=body,
            format=CHAT_FORMAT,
            metadata=None,
            role="tool",
            asks=(),
            answers=row.tool_call_id,
            tokens=outcome_tokens(value, estimate_tokens) if tokens is None else tokens,
            counted=tokens,
        )
        return self.message(draft, run_id=row.run_id, ends=row, outcome=_OUTCOMES[status, kind]), body, kind

    # -- runs

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

    def start_run(self, row: RunRow, *, lease: int) -> RunRow:
        """READY becomes RUNNING: the input that waited becomes the run's first message. A client that waited in place for an
        answer goes on where it was; any other attempt begins anew."""
        turn: Turn | None = self.get("turn")
        goes_on = row.attempt > 0 and turn is not None and turn.run_id == row.run_id and turn.lease is not None
        if not goes_on:  # the engine begins at its start: what an earlier attempt wrote would be written twice
            row = msgspec.structs.replace(row, layer=NO_JSON, layer_base={})
        seq = row.input_seq if row.input_seq is not None else self.say_input(row, status="complete")
        row = self.put_run(
            msgspec.structs.replace(
                row,
                status="RUNNING",
                attempt=row.attempt + 1,
                start_time=self.clock.now if row.start_time is None else row.start_time,
                input_seq=seq,
            )
        )
        body: dict[str, Any] = {"attempt": row.attempt}
        if goes_on:
            body["goes_on"] = True
        self.event("run_started", _encode(body), run_id=row.run_id)
        self.fields["turn"] = Turn(
            run_id=row.run_id,
            status="RUNNING",
            attempt=row.attempt,
            agent=row.agent,
            lease=new_lease(self.clock, lease),
            has_layer=row.memory == "run",
        )
        return row

    def say_input(self, row: RunRow, *, status: MessageStatus) -> int | None:
        """The input that waited becomes a message; None when the run has none."""
        body = bytes(row.input)
        if not body:
            return None
        # Whatever its role: an assistant's message may ask for tools, a tool's may answer.
        draft = admit_message(body, format=row.input_format, limits=WRITTEN_HERE)
        draft = msgspec.structs.replace(draft, metadata=bytes(row.input_metadata) or None)
        if row.input_weight is not None:
            draft = msgspec.structs.replace(draft, tokens=row.input_weight, counted=row.input_weight)
        return self.message(draft, run_id=row.run_id, status=status, actor=row.input_actor or None)

    def end_run(
        self,
        row: RunRow,
        status: RunStatus,
        *,
        stop_reason: str,
        error: RunError | None = None,
        calls: ToolCallStatus = "unknown",
    ) -> RunRow:
        """A run ends, with what it was saying, its open child runs and calls; if it had the turn, the first in the queue gets
        it in the same commit."""
        turn: Turn | None = self.get("turn")
        if turn is not None and turn.run_id == row.run_id:
            self.end_children(calls=calls)
        interrupt_streams(self, row.run_id)
        for open_call in self.get("open_calls"):
            if open_call.run_id == row.run_id:
                self.end_call(self.call(open_call.seq), calls)
        row = self.run(row.run_id) or row
        seq = row.input_seq if row.input_seq is not None else self.say_input(row, status="unanswered")
        row = self.put_run(
            msgspec.structs.replace(
                row,
                status=status,
                end_time=self.clock.now,
                stop_reason=stop_reason,
                error=error,
                input_seq=seq,
                question=None,
            )
        )
        body: dict[str, Any] = {"status": status, "stop_reason": stop_reason, "steps": row.steps}
        if row.usage.total_tokens:
            body["usage"] = row.usage
        if error is not None:
            body["error"] = error
        if bytes(row.not_merged):
            body["not_merged"] = row.not_merged
        self.event("run_ended", _encode(body), run_id=row.run_id)
        self.fields["usage"] = self.get("usage").plus(row.usage)
        self.is_active()
        if turn is not None and turn.run_id == row.run_id:
            self.pass_turn()
        elif row.parent_run_id is not None:
            self.fields["children"] = tuple(child for child in self.get("children") if child.run_id != row.run_id)
        else:
            self.fields["queue"] = tuple(waiting for waiting in self.get("queue") if waiting.run_id != row.run_id)
        return row

    def end_children(
        self,
        *,
        status: RunStatus = "CANCELLED",
        stop_reason: str = PARENT_ENDED,
        error: RunError | None = None,
        calls: ToolCallStatus = "unknown",
    ) -> None:
        """The open child runs end, because the attempt of their parent does."""
        for child in self.get("children"):
            row = self.run(child.run_id)
            assert row is not None, "open work was not loaded"
            self.end_run(row, status, stop_reason=stop_reason, error=error, calls=calls)

    def pass_turn(self) -> None:
        queue = self.get("queue")
        first: Waiting | None = queue[0] if queue else None
        self.fields["turn"] = (
            None if first is None else Turn(run_id=first.run_id, status="READY", agent=first.agent, lease=first.lease)
        )
        self.fields["queue"] = queue[1:]

    def end_open_work(self, stop_reason: str) -> None:
        """What is open when a session leaves ACTIVE: runs end as CANCELLED, the queue first, then child runs before their
        parent, and calls as unknown."""
        for waiting in self.get("queue"):
            self._end_known_run(waiting.run_id, stop_reason)
        self.end_children(stop_reason=stop_reason)
        turn: Turn | None = self.get("turn")
        if turn is not None:
            self._end_known_run(turn.run_id, stop_reason)
        for open_call in self.get("open_calls"):
            self.end_call(self.call(open_call.seq), "unknown")

    def _end_known_run(self, run_id: str, stop_reason: str) -> None:
        row = self.run(run_id)
        assert row is not None, "open work was not loaded"
        self.end_run(row, "CANCELLED", stop_reason=stop_reason)

    # -- lifecycle

    def move_to(self, status: SessionStatus, *, reason: str) -> None:
        transition = Transition(at=self.clock.now, to=status, actor=self.actor, reason=reason)
        self.fields["status"] = status
        self.fields["lifecycle"] = (*self.get("lifecycle"), transition)[-KEPT_TRANSITIONS:]
        self.fields["transitions"] = self.get("transitions") + 1
        self.fields["closed_at"] = None if status == "ACTIVE" else self.clock.now
        self.touch("status")

    # -- the whole

    def finish(self, answer: Answer) -> Effect:
        self._note_the_window()
        record = self.record
        fields = self.fields
        now = self.clock.now
        fields["version"] = self.version
        fields["last_seq"] = self.seq
        fields["updated_at"] = max(now, record.updated_at)
        if self.actor != OPERATOR:
            self.is_active()
        fields["changed"] = msgspec.structs.replace(record.changed, **self.parts)
        if record.arriving:
            self._goes_on_here()
        return Effect(
            record=with_entries(msgspec.structs.replace(record, **fields)),
            answer=answer,
            events=tuple(self.events),
            runs=tuple(self.runs.values()) if self.runs else (),
            calls=tuple(self.calls.values()) if self.calls else (),
            ended_streams=tuple(self.ended_streams),
            working_memory=self.working_memory,
            metadata=self.metadata,
        )

    def _goes_on_here(self) -> None:
        """Somebody writes where a copy broke off: from now on it is a session like any other."""
        self.fields["arriving"] = False
        turn: Turn | None = self.get("turn")
        if turn is not None:  # another object: stores look anew at what may be claimed
            self.fields["turn"] = msgspec.structs.replace(turn)

    def _note_the_window(self) -> None:
        after = self.fields.get("context_tokens")
        if after is None or self.get("status") != "ACTIVE":
            return
        passed = passing(self.record.context_tokens, after, self.record.policy)
        if passed is not None:
            said = [event.run_id for event in self.events if event.kind == "message"]
            self.event("context_threshold", passed, run_id=said[-1])

    def is_active(self) -> None:
        """This change is activity: the idle time begins anew, unless the change says from when it counts."""
        self.fields.setdefault("active_at", max(self.clock.now, self.record.active_at))

    def answer(self, *, seqs: tuple[int, ...] = (), ids: tuple[str, ...] = (), status: str = "") -> Answer:
        return Answer(version=self.version, at=self.clock.now, seqs=seqs, ids=ids, status=status)


def said_outcome(status: str, result: bytes | None, error: bytes | None) -> bytes:
    """What a message says of an outcome: one of the two, as JSON."""
    first, second = (error, result) if status == "failed" else (result, error)
    return first or second or b"null"


def outcome_tokens(said: bytes, count: TokenCounter) -> int:
    """Tokens of the tool message that says this JSON: a text as it is, another value as its JSON."""
    return text_tokens(msgspec.json.decode(said, type=str) if said.startswith(b'"') else said.decode(), count)


def outcome_body(status: ToolCallStatus, result: bytes | None, error: bytes | None) -> bytes:
    body = b'{"status":' + _encode(status)
    if result is not None:
        body += b',"result":' + result
    if error is not None:
        body += b',"error":' + error
    return body + b"}"


def new_lease(clock: Clock, each: int) -> Lease:
    return Lease(each=each, until=clock.lease_now + each, clock=clock.lease_clock)


def needed_sweep(record: SessionRecord) -> int | None:
    """The instant from which the sweeper has work here. Leases are found by ``lease_until``."""
    if record.erasing or record.hidden:
        return record.sweep_at
    return record.due_at


def with_entries(record: SessionRecord) -> SessionRecord:
    """The record with its entries in the sweeper's queue: ``sweep_at`` (it may be early, never late: activity does not move
    it) and the lease that ends first."""
    if record.turn is not None or record.lease_until is not None:
        record = _with_lease(record)
    needed = needed_sweep(record)
    if needed is None and record.status == "ACTIVE" and record.sweep_at is not None:
        return record  # a busy session: whoever comes too early moves it on
    if record.sweep_at is not None and needed is not None and record.sweep_at <= needed:
        return record
    if record.sweep_at == needed:
        return record
    return msgspec.structs.replace(record, sweep_at=needed)


def _with_lease(record: SessionRecord) -> SessionRecord:
    leases = record.leases()
    if not leases:
        return msgspec.structs.replace(record, lease_until=None, lease_clock="")
    newest = leases[-1].clock
    # A lease on a clock that is no more is over: its entry must not hide behind one that lives.
    first = min(leases, key=lambda lease: (lease.clock == newest, lease.until))
    if record.lease_until == first.until and record.lease_clock == first.clock:
        return record
    return msgspec.structs.replace(record, lease_until=first.until, lease_clock=first.clock)
