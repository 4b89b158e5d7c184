"""A session, made again from its log: what import and fork write, and what proves that rows and log agree.

Every row beside the log follows from it. What the log does not hold stands in the header: the title, metadata and policy
that a session was created with.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from satchel.domain.decisions.lifecycle import merge_patch
from satchel.domain.event import CHAT_FORMAT, Event
from satchel.domain.json_text import NO_JSON, decode, raw_json
from satchel.domain.limits import Limits
from satchel.domain.memory import WorkingMemory, admit_memory, admit_patch, stored_memory
from satchel.domain.message import admit_message, estimate
from satchel.domain.record import (
    KEPT_LABELS,
    KEPT_TRANSITIONS,
    OpenCall,
    SessionRecord,
    SessionStatus,
    Transition,
    Turn,
    Waiting,
)
from satchel.domain.run import TERMINAL, RunError, RunRow, Usage
from satchel.domain.state import SessionState
from satchel.domain.tool_call import CallRow, ResultKind, ToolCallStatus, hash_arguments

# Own limits do not apply to what was accepted once.
_UNLIMITED = Limits(agent_message=1 << 40, user_message=1 << 40, working_memory=1 << 40, nodes=1 << 40, depth=1 << 20)


class Replay:
    """Takes a session's events in order; ``state`` is then what the store would hold. ``take_rows`` gives the rows that
    changed since it was last called. Raises ValueError when the events do not make a log."""

    def __init__(self, header: SessionRecord, *, metadata: bytes = b"") -> None:
        self.state = SessionState(header, metadata=metadata)
        self._memory = WorkingMemory()
        self._fields: dict[str, Any] = {}
        self._parts: dict[str, int] = {}
        self._changed_runs: dict[str, RunRow] = {}
        self._changed_calls: dict[int, CallRow] = {}
        self._tokens: dict[int, int] = {}
        self._handlers: dict[str, Callable[[Event], None]] = {
            "message": self._message,
            "message_retracted": self._retracted,
            "tool_call_started": self._call_started,
            "tool_call_finished": self._call_finished,
            "tool_call_recorded": self._call_recorded,
            "working_memory_changed": self._memory_changed,
            "metadata_changed": self._metadata_changed,
            "title_changed": self._title_changed,
            "run_added": self._run_added,
            "run_started": self._run_started,
            "run_step": self._run_step,
            "run_returned": self._run_returned,
            "run_cancel_requested": self._run_cancel_requested,
            "run_ended": self._run_ended,
            "session_closed": self._closed,
            "session_restored": self._restored,
            "session_expired": self._expired,
            "session_transferred": self._transferred,
        }

    def take(self, event: Event) -> None:
        """The next event of the log."""
        record = self.state.existing
        if event.seq != record.last_seq + 1 or not record.version <= event.version <= record.version + 1:
            raise ValueError(f"event {event.seq} (version {event.version}) does not follow {record.last_seq}")
        handler = self._handlers.get(event.kind)
        if handler is None:
            raise ValueError(f"event {event.seq} is of an unknown kind")
        self._fields = {"last_seq": event.seq, "version": event.version}
        self._parts = {}
        handler(event)
        self._fields["updated_at"] = max(event.at, record.updated_at)
        if self._parts:
            self._fields["changed"] = msgspec.structs.replace(record.changed, **self._parts)
        self.state.record = msgspec.structs.replace(record, **self._fields)

    def take_rows(self) -> tuple[tuple[RunRow, ...], tuple[CallRow, ...]]:
        rows = tuple(self._changed_runs.values()), tuple(self._changed_calls.values())
        self._changed_runs = {}
        self._changed_calls = {}
        return rows

    def put_rows(self, runs: Iterable[RunRow], calls: Iterable[CallRow]) -> None:
        """Rows that changed by other means than an event taken here."""
        self._changed_runs.update((row.run_id, row) for row in runs)
        self._changed_calls.update((row.seq, row) for row in calls)

    @property
    def working_memory(self) -> bytes:
        return stored_memory(self._memory, limits=_UNLIMITED)

    # -- what each kind does

    def _get(self, name: str) -> Any:
        return self._fields[name] if name in self._fields else getattr(self.state.existing, name)

    def _touch(self, part: str, event: Event) -> None:
        self._parts[part] = event.version

    def _message(self, event: Event) -> None:
        self._fields["messages"] = self._get("messages") + 1
        self._tokens[event.seq] = estimate(event.body)
        self._fields["context_tokens"] = self._get("context_tokens") + self._tokens[event.seq]
        self._touch("messages", event)
        if event.format == CHAT_FORMAT:
            draft = admit_message(event.body, limits=_UNLIMITED)
            asked: tuple[str, ...] = (self._get("asked") + draft.asks)[-KEPT_LABELS:]
            if draft.answers in asked:
                at = asked.index(draft.answers)
                asked = asked[:at] + asked[at + 1 :]
            self._fields["asked"] = asked
        if event.refers_to is not None and event.outcome is not None:
            status, kind = event.outcome.split("/")
            self._end_call(event.refers_to, event, status, "json" if kind == "json" else "text")
        if event.run_id is not None:
            run = self.state.runs.get(event.run_id)
            if run is not None and run.status == "READY" and run.input_seq is None:
                self._put_run(event, msgspec.structs.replace(run, input_seq=event.seq))

    def _retracted(self, event: Event) -> None:
        self._fields["retracted"] = self._get("retracted") + 1
        tokens = self._tokens.get(event.refers_to or 0, 0)
        self._fields["context_tokens"] = max(0, self._get("context_tokens") - tokens)
        self._touch("messages", event)

    def _put_call(self, row: CallRow) -> None:
        if row.seq not in self.state.calls:
            self.state.same_calls[row.arguments_hash] = row.seq
        self.state.calls[row.seq] = row
        self._changed_calls[row.seq] = row

    def _new_call(self, event: Event, status: ToolCallStatus) -> CallRow:
        body = decode(event.body)
        arguments_hash = hash_arguments(body["tool"], body.get("arguments"))
        self._fields["tool_calls"] = self._get("tool_calls") + 1
        self._touch("tool_history", event)
        return CallRow(
            seq=event.seq,
            version=event.version,
            tool=body["tool"],
            arguments_hash=arguments_hash,
            status=status,
            start_time=event.at,
            tool_call_id=body.get("tool_call_id"),
            run_id=event.run_id,
            repeat_of=self.state.same_calls.get(arguments_hash),
            start_body=event.body,
        )

    def _call_started(self, event: Event) -> None:
        row = self._new_call(event, "started")
        self._put_call(row)
        opened = OpenCall(seq=row.seq, tool_call_id=row.tool_call_id, run_id=row.run_id)
        self._fields["open_calls"] = (*self._get("open_calls"), opened)

    def _call_recorded(self, event: Event) -> None:
        status = decode(event.body).get("status")
        row = self._new_call(event, "started" if status is None else status)
        if status is not None:
            row = msgspec.structs.replace(row, end_time=event.at, result_seq=event.seq, end_body=event.body)
            self._step(event, row.run_id)
        self._put_call(row)

    def _call_finished(self, event: Event) -> None:
        if event.refers_to is None:
            raise ValueError(f"event {event.seq} finishes no call")
        self._end_call(event.refers_to, event, decode(event.body)["status"], "event")

    def _end_call(self, seq: int, event: Event, status: str, kind: ResultKind) -> None:
        row = self.state.calls.get(seq)
        if row is None:
            raise ValueError(f"event {event.seq} finishes the unknown call {seq}")
        changes: dict[str, Any] = {"status": status}
        self._put_call(
            msgspec.structs.replace(
                row,
                version=event.version,
                end_time=event.at,
                result_seq=event.seq,
                result_kind=kind,
                end_body=event.body,
                **changes,
            )
        )
        self._fields["open_calls"] = tuple(call for call in self._get("open_calls") if call.seq != seq)
        self._touch("tool_history", event)
        self._step(event, row.run_id)

    def _memory_changed(self, event: Event) -> None:
        body = decode(event.body)
        if "replace" in body:
            self._memory = admit_memory(body["replace"], limits=_UNLIMITED)
        else:
            self._memory = admit_patch(body, limits=_UNLIMITED).apply(self._memory)
        self._touch("working_memory", event)

    def _metadata_changed(self, event: Event) -> None:
        self.state.metadata = merge_patch(self.state.metadata or b"{}", event.body)
        self._touch("metadata", event)

    def _title_changed(self, event: Event) -> None:
        self._fields["title"] = decode(event.body)["title"]
        self._touch("title", event)

    def _put_run(self, event: Event, row: RunRow) -> None:
        row = msgspec.structs.replace(row, version=event.version)
        self.state.runs[row.run_id] = row
        self._changed_runs[row.run_id] = row
        self._touch("runs", event)

    def _run(self, event: Event) -> RunRow:
        row = self.state.runs.get(event.run_id or "")
        if row is None:
            raise ValueError(f"event {event.seq} is about an unknown run")
        return row

    def _step(self, event: Event, run_id: str | None) -> None:
        """Counted for the run that the call belongs to, whoever finished it."""
        row = self.state.runs.get(run_id or "")
        if row is not None and row.status not in TERMINAL:
            self._put_run(event, msgspec.structs.replace(row, steps=row.steps + 1))

    def _run_added(self, event: Event) -> None:
        body = msgspec.json.decode(event.body, type=_RunAdded)
        row = RunRow(
            run_id=event.run_id or "",
            number=body.number,
            status="READY",
            created_at=event.at,
            version=event.version,
            goal=body.goal,
            agent=body.agent,
            max_attempts=body.max_attempts,
            metadata=raw_json(bytes(body.metadata)),
        )
        self._put_run(event, row)
        self._fields["run_number"] = body.number
        self._fields["runs"] = self._get("runs") + 1
        waiting = Waiting(run_id=row.run_id, agent=row.agent)
        if self._get("turn") is None:
            self._fields["turn"] = Turn(run_id=row.run_id, status="READY", agent=row.agent)
        elif body.goes_next:
            self._fields["queue"] = (waiting, *self._get("queue"))
        else:
            self._fields["queue"] = (*self._get("queue"), waiting)

    def _run_started(self, event: Event) -> None:
        row = self._run(event)
        attempt = decode(event.body)["attempt"]
        start_time = event.at if row.start_time is None else row.start_time
        self._put_run(event, msgspec.structs.replace(row, status="RUNNING", attempt=attempt, start_time=start_time))
        self._fields["queue"] = tuple(one for one in self._get("queue") if one.run_id != row.run_id)
        self._fields["turn"] = Turn(run_id=row.run_id, status="RUNNING", attempt=attempt, agent=row.agent)

    def _run_step(self, event: Event) -> None:
        usage = msgspec.json.decode(event.body, type=Usage)
        row = self._run(event)
        self._put_run(event, msgspec.structs.replace(row, usage=row.usage.plus(usage)))
        self._step(event, row.run_id)

    def _run_returned(self, event: Event) -> None:
        row = self._run(event)
        self._put_run(event, msgspec.structs.replace(row, status="READY"))
        turn = self._get("turn")
        if turn is not None:
            self._fields["turn"] = msgspec.structs.replace(turn, status="READY")

    def _run_cancel_requested(self, event: Event) -> None:
        self._put_run(event, msgspec.structs.replace(self._run(event), cancel_requested=True))

    def _run_ended(self, event: Event) -> None:
        body = msgspec.json.decode(event.body, type=_RunEnded)
        row = self._run(event)
        changes: dict[str, Any] = {"status": body.status}
        self._put_run(
            event,
            msgspec.structs.replace(row, end_time=event.at, stop_reason=body.stop_reason, error=body.error, **changes),
        )
        self._fields["usage"] = self._get("usage").plus(row.usage)
        turn: Turn | None = self._get("turn")
        queue = tuple(one for one in self._get("queue") if one.run_id != row.run_id)
        if turn is not None and turn.run_id == row.run_id:
            turn = Turn(run_id=queue[0].run_id, status="READY", agent=queue[0].agent) if queue else None
            queue = queue[1:]
        self._fields["turn"] = turn
        self._fields["queue"] = queue

    def _closed(self, event: Event) -> None:
        self._move(event, "CLOSED")

    def _restored(self, event: Event) -> None:
        self._move(event, "ACTIVE")

    def _expired(self, event: Event) -> None:
        self._move(event, "EXPIRED")

    def _move(self, event: Event, status: SessionStatus) -> None:
        reason = decode(event.body).get("reason", "")
        transition = Transition(at=event.at, to=status, actor=event.actor, reason=reason)
        self._fields["status"] = status
        self._fields["lifecycle"] = (*self._get("lifecycle"), transition)[-KEPT_TRANSITIONS:]
        self._fields["transitions"] = self._get("transitions") + 1
        self._fields["closed_at"] = None if status == "ACTIVE" else event.at
        self._touch("status", event)

    def _transferred(self, event: Event) -> None:
        self._touch("status", event)


class _RunAdded(msgspec.Struct):
    number: int
    goal: str = ""
    agent: str = ""
    max_attempts: int = 1
    goes_next: bool = False  # ahead of the queue
    metadata: msgspec.Raw = NO_JSON


class _RunEnded(msgspec.Struct):
    status: str
    stop_reason: str | None = None
    error: RunError | None = None
