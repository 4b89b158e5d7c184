"""One line of a session's log. Never changed or removed while the session lives."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal, get_args

import msgspec

from satchel.domain.clock import rfc3339, to_datetime
from satchel.domain.json_text import decode

EventKind = Literal[
    "message",
    "message_retracted",
    "tool_call_started",
    "tool_call_finished",
    "tool_call_recorded",
    "working_memory_changed",
    "metadata_changed",
    "title_changed",
    "run_added",
    "run_started",
    "run_cancel_requested",
    "run_step",
    "run_returned",
    "question_asked",
    "question_answered",
    "run_memory_changed",
    "run_ended",
    "session_closed",
    "session_restored",
    "session_expired",
    "session_transferred",
    "session_deleted",
    "context_threshold",
]

# Of a tool message that finished a call: the call's status, and whether its content is text or JSON written as text.
CallOutcome = Literal["succeeded/text", "succeeded/json", "failed/text", "failed/json"]
MessageStatus = Literal["complete", "interrupted", "retracted", "unanswered"]
CHAT_FORMAT = "openai.chat"
KINDS: tuple[EventKind, ...] = get_args(EventKind)

# What stands in the place of an event that its store cannot read any more: the seq is kept, so that nothing before or
# behind it is lost. Nobody can write this format.
CORRUPT_FORMAT = "corrupt"
CORRUPT_BODY = b'{"corrupt":true}'


class Event(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """``seq`` is gapless from 1. ``body`` is JSON text as stored; ``actor`` is ``role:subject`` or ``operator``.

    For messages, ``status``, ``format`` and ``metadata`` stand beside the body. ``refers_to`` is the seq of the message
    that a retraction takes back, or of the start of the tool call that this event finished; a message that finished one
    has its ``outcome``. ``tokens`` of a message were counted when it was admitted; None: by our own estimate. A message that
    was streamed has its number in its run's attempt as ``streamed``: it ends the text deltas of this number. An event that
    its store cannot read any more ``is_corrupt``: its body is CORRUPT_BODY.
    """

    seq: int
    version: int
    kind: EventKind
    at: int
    actor: str
    body: bytes
    run_id: str | None = None
    refers_to: int | None = None
    status: MessageStatus = "complete"
    format: str = CHAT_FORMAT
    metadata: bytes | None = None
    outcome: CallOutcome | None = None
    tokens: int | None = None
    streamed: int | None = None

    @property
    def is_corrupt(self) -> bool:
        return self.format == CORRUPT_FORMAT

    @property
    def created_at(self) -> datetime:
        return to_datetime(self.at)

    @property
    def data(self) -> Any:
        """The body as Python values."""
        return decode(self.body)

    def to_dict(self) -> dict[str, Any]:
        """As JSON shows it."""
        shown: dict[str, Any] = {
            "seq": self.seq,
            "version": self.version,
            "kind": self.kind,
            "at": rfc3339(self.at),
            "actor": self.actor,
            "run_id": self.run_id,
            "body": self.data,
        }
        if self.refers_to is not None:
            shown["refers_to"] = self.refers_to
        if self.kind == "message":
            shown["status"] = self.status
            shown["format"] = self.format
            if self.outcome is not None:
                shown["outcome"] = self.outcome
            if self.streamed is not None:
                shown["streamed"] = self.streamed
            if self.metadata is not None:
                shown["metadata"] = decode(self.metadata)
        return shown
