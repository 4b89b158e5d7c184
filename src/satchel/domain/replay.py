"""A session, made again from its log: what import and fork write, and what proves that rows and log agree.

Every row beside the log follows from it. What the log does not hold stands in the header: the title, metadata and policy
that a session was created with. What could not have been written here is no log: each event is checked against what the
events before it made.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from satchel.domain.bodies import (
    ContextThreshold,
    Reasoned,
    SessionExpired,
    SessionTransferred,
    TitleChanged,
    read_body,
)
from satchel.domain.clock import parse_rfc3339
from satchel.domain.decisions.lifecycle import merge_patch
from satchel.domain.event import CHAT_FORMAT, Event
from satchel.domain.json_text import decode
from satchel.domain.layer import with_patch, without_layer
from satchel.domain.limits import WRITTEN_HERE, Limits
from satchel.domain.memory import FIELDS, WorkingMemory, admit_memory, admit_patch, stored_memory
from satchel.domain.message import Draft, admit_message
from satchel.domain.record import KEPT_LABELS, KEPT_TRANSITIONS, SessionRecord, SessionStatus, Transition, asked_label
from satchel.domain.replayed_calls import ReplayedCalls
from satchel.domain.replayed_questions import ReplayedQuestions
from satchel.domain.spelling import member
from satchel.errors import SatchelError


class Replay(ReplayedCalls, ReplayedQuestions):
    """Takes a session's events in order; ``state`` is then what the store would hold. ``take_rows`` gives the rows that
    changed since it was last called. ``limits``: those of whoever brings the log; a log of this store has none."""

    def __init__(self, header: SessionRecord, *, metadata: bytes = b"", limits: Limits = WRITTEN_HERE) -> None:
        super().__init__(header, metadata=metadata, limits=limits)
        self._memory = WorkingMemory()
        self._owner: str | None = None  # whom the log's last transfer named
        self._tokens: dict[int, int] = {}  # of each message that was not taken back
        self._run_of: dict[int, str] = {}  # of a message that belongs to a run
        self._due: tuple[str, int | None] | None = None  # what the next event must be, in the same version
        self._handlers: dict[str, Callable[[Event], None]] = {
            "message_retracted": self._retracted,
            "tool_call_started": self.call_started,
            "tool_call_finished": self.call_finished,
            "tool_call_recorded": self._call_recorded,
            "working_memory_changed": self._memory_changed,
            "run_memory_changed": self._layer_changed,
            "metadata_changed": self._metadata_changed,
            "title_changed": self._title_changed,
            "run_added": self.run_added,
            "run_started": self.run_started,
            "run_step": self.run_step,
            "run_returned": self.run_returned,
            "run_cancel_requested": self.run_cancel_requested,
            "run_ended": self.run_ended,
            "question_asked": self.question_asked,
            "question_answered": self.question_answered,
            "session_closed": self._closed,
            "session_restored": self._restored,
            "session_expired": self._expired,
            "session_transferred": self._transferred,
            "context_threshold": self._window_filled,
        }

    def take(self, event: Event, draft: Draft | None = None) -> None:
        """The next event of the log. ``draft``: its message, if it was admitted already. Raises ValueError when it cannot
        follow on those before it."""
        record = self.state.existing
        self.fields = {"last_seq": event.seq, "version": event.version}
        self.parts = {}
        try:
            self._check_place(event, record)
            if event.kind == "message":
                self._message(event, draft)
            else:
                self._handlers[event.kind](event)
        except SatchelError:
            raise
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError, OverflowError) as wrong:
            raise ValueError(f"{event.kind} at seq {event.seq} {wrong}") from wrong
        self.fields["updated_at"] = max(event.at, record.updated_at)
        if self.parts:
            self.fields["changed"] = msgspec.structs.replace(record.changed, **self.parts)
        self.state.record = msgspec.structs.replace(record, **self.fields)

    def check_end(self) -> None:
        """The log may end here. Raises ValueError."""
        if self._due is not None:
            raise ValueError(f"the log ends where a {self._due[0]} is due")

    @property
    def working_memory(self) -> bytes:
        return stored_memory(self._memory, limits=WRITTEN_HERE)

    def _check_place(self, event: Event, record: SessionRecord) -> None:
        same_version = event.version == record.version and record.last_seq > 0
        if event.seq != record.last_seq + 1 or not (same_version or event.version == record.version + 1):
            raise ValueError(
                f"(version {event.version}) does not follow seq {record.last_seq}, version {record.version}"
            )
        if event.kind != "message" and event.kind not in self._handlers:
            raise ValueError("is of a kind that no log holds")
        if self._due is not None:
            kind, refers_to = self._due
            if not same_version or event.kind != kind or event.refers_to != refers_to:
                raise ValueError(f"stands where a {kind} is due")
            self._due = None
        if record.status != "ACTIVE" and event.kind not in ("session_restored", "title_changed"):
            raise ValueError(f"comes while the session is {record.status}")

    # -- messages

    def _message(self, event: Event, draft: Draft | None) -> None:
        if draft is None:
            draft = admit_message(event.body, format=event.format, limits=self.limits)
        if event.status == "retracted":
            raise ValueError("is taken back by an event of its own, not by its status")
        if event.run_id is not None:
            self.said_by_run(event)
            self._run_of[event.seq] = event.run_id
        elif event.status == "unanswered":
            raise ValueError("is no input of a run that waits")
        self.fields["messages"] = self.get("messages") + 1
        tokens = draft.tokens if event.tokens is None else event.tokens
        self._tokens[event.seq] = 0 if event.status == "unanswered" else tokens
        self.fields["context_tokens"] = self.get("context_tokens") + self._tokens[event.seq]
        self.touch("messages", event)
        if event.format == CHAT_FORMAT and (draft.asks or draft.answers is not None):
            asks = tuple([asked_label(self.get("children"), event.run_id, label) for label in draft.asks])
            asked: tuple[str, ...] = (self.get("asked") + asks)[-KEPT_LABELS:]
            answers = draft.answers and asked_label(self.get("children"), event.run_id, draft.answers)
            if answers in asked:
                at = asked.index(answers)
                asked = asked[:at] + asked[at + 1 :]
            self.fields["asked"] = asked
        if (event.refers_to is None) != (event.outcome is None):
            raise ValueError("names a call without its outcome, or an outcome without its call")
        if event.streamed is not None and (event.run_id is None or draft.role != "assistant" or event.streamed < 1):
            raise ValueError("is no message that a run can have streamed")
        if event.refers_to is not None:
            self.call_answered(event, draft)

    def _retracted(self, event: Event) -> None:
        read_body(event.body, Reasoned)
        tokens = None if event.refers_to is None else self._tokens.pop(event.refers_to, None)
        if event.refers_to is None or tokens is None:
            raise ValueError(f"takes back {event.refers_to}, which is no message, or was taken back before")
        if self._run_of.get(event.refers_to) != event.run_id:
            raise ValueError(f"does not belong to the run of message {event.refers_to}")
        self.fields["retracted"] = self.get("retracted") + 1
        self.fields["context_tokens"] = max(0, self.get("context_tokens") - tokens)
        self.touch("messages", event)

    def _window_filled(self, event: Event) -> None:
        """Whoever counted then may have counted otherwise: only its form and its place are checked."""
        read_body(event.body, ContextThreshold)
        if event.version != self.state.existing.version or not self.state.existing.messages:
            raise ValueError("stands apart from the message that filled the window")

    def _call_recorded(self, event: Event) -> None:
        if self.call_recorded(event):
            self._due = "message", event.seq

    # -- working memory, title, metadata

    def _memory_changed(self, event: Event) -> None:
        self.run_at_work(event)
        body = decode(event.body)
        if isinstance(body, dict) and "replace" in body:
            if len(body) > 1:
                raise ValueError("replaces the memory and patches it")
            nodes = self.limits.nodes + len(FIELDS)  # the log names the empty fields too
            whole = msgspec.structs.replace(self.limits, nodes=nodes)
            self._memory = admit_memory(member(event.body, "replace"), limits=whole)
        else:
            self._memory = admit_patch(event.body, limits=self.limits).apply(self._memory)
        stored_memory(self._memory, limits=self.limits)
        self.touch("working_memory", event)
        row = self.state.runs.get(event.run_id or "")
        if row is not None and row.memory == "run":  # its layer is merged
            self.put_run(event, without_layer(row))

    def _layer_changed(self, event: Event) -> None:
        """Of a run with a layer, or of a child run of it."""
        self.run_at_work(event)
        writer = self.state.runs.get(event.run_id or "")
        row = writer if writer is None else self.state.runs.get(writer.parent_run_id or writer.run_id)
        if row is None or row.memory != "run":
            raise ValueError("changes the layer of a run that has none")
        patch = admit_patch(event.body, limits=self.limits)
        self.put_run(event, with_patch(row, patch, self._memory, version=event.version, limits=self.limits))

    def _metadata_changed(self, event: Event) -> None:
        if not event.body.lstrip().startswith(b"{"):
            raise ValueError("holds no object")
        self.state.metadata = merge_patch(self.state.metadata or b"{}", event.body)
        self.touch("metadata", event)

    def _title_changed(self, event: Event) -> None:
        if self.state.existing.status != "ACTIVE":  # a fork gets its title and is opened in one stroke
            self._due = "session_restored", None
        self.fields["title"] = read_body(event.body, TitleChanged).title
        self.touch("title", event)

    # -- lifecycle

    def _closed(self, event: Event) -> None:
        self._leave(event, "CLOSED", read_body(event.body, Reasoned))

    def _expired(self, event: Event) -> None:
        body = read_body(event.body, SessionExpired)
        self._leave(event, "EXPIRED", body)
        if body.expired_at is not None:  # it was met later
            self.fields["closed_at"] = parse_rfc3339(body.expired_at)

    def _leave(self, event: Event, status: SessionStatus, body: Reasoned) -> None:
        if self.get("turn") is not None or self.get("queue") or self.get("open_calls"):
            raise ValueError("leaves runs or tool calls open")
        self._move(event, status, body.reason)

    def _restored(self, event: Event) -> None:
        if self.get("status") == "ACTIVE":
            raise ValueError("restores what is ACTIVE")
        self._move(event, "ACTIVE", read_body(event.body, Reasoned).reason)

    def _move(self, event: Event, status: SessionStatus, reason: str) -> None:
        transition = Transition(at=event.at, to=status, actor=event.actor, reason=reason)
        self.fields["status"] = status
        self.fields["lifecycle"] = (*self.get("lifecycle"), transition)[-KEPT_TRANSITIONS:]
        self.fields["transitions"] = self.get("transitions") + 1
        self.fields["closed_at"] = None if status == "ACTIVE" else event.at
        self.touch("status", event)

    def _transferred(self, event: Event) -> None:
        body = read_body(event.body, SessionTransferred)
        if body.former == body.to or self._owner not in (None, body.former):
            raise ValueError(f"gives away what {body.former!r} does not have")
        self._owner = body.to
        self.touch("status", event)
