"""What stands in the body of each kind of event: one struct a kind. What does not fit is not of our making.

The body of a message is the message; working memory and metadata are changed by patches, which have modules of their own.
"""

from __future__ import annotations

from typing import Annotated, Literal, TypeVar

import msgspec
from msgspec import Meta

from satchel.domain.json_text import NO_JSON
from satchel.domain.run import MemoryOf, RunError, Usage

CallEnd = Literal["succeeded", "failed", "cancelled", "unknown"]
RunEnd = Literal["COMPLETED", "FAILED", "CANCELLED"]
Count = Annotated[int, Meta(ge=0, lt=1 << 53)]
Ordinal = Annotated[int, Meta(ge=1, lt=1 << 53)]

B = TypeVar("B")


class Body(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A JSON object with these members and no others."""


class Reasoned(Body, frozen=True, kw_only=True):
    """``message_retracted``, ``session_closed``, ``session_restored``, ``run_cancel_requested``."""

    reason: str = ""


class SessionExpired(Reasoned, frozen=True, kw_only=True):
    """``expired_at``: when it was true; it may have been met later."""

    expired_at: str | None = None


class SessionTransferred(Body, frozen=True, kw_only=True):
    former: str = msgspec.field(name="from")
    to: str


class TitleChanged(Body, frozen=True, kw_only=True):
    """``former``: the title before, where the writer said it."""

    title: str
    former: str | None = None


class CallStarted(Body, frozen=True, kw_only=True):
    tool: str
    tool_call_id: str | None = None
    step: str | None = None
    arguments: msgspec.Raw = msgspec.Raw(b"null")


class CallRecorded(CallStarted, frozen=True, kw_only=True):
    """Without a ``status`` the outcome is the tool message behind it."""

    status: CallEnd | None = None
    result: msgspec.Raw = NO_JSON
    error: msgspec.Raw = NO_JSON


class CallFinished(Body, frozen=True, kw_only=True):
    status: CallEnd
    result: msgspec.Raw = NO_JSON
    error: msgspec.Raw = NO_JSON


class RunAdded(Body, frozen=True, kw_only=True):
    """``goes_next``: ahead of the queue. With a ``parent_run_id`` it is a child run, and RUNNING."""

    number: Ordinal
    goal: str = ""
    agent: str = ""
    max_attempts: Annotated[int, Meta(ge=1, le=100)] = 1
    goes_next: bool = False
    memory: MemoryOf = "session"
    parent_run_id: str | None = None
    metadata: msgspec.Raw = NO_JSON


class RunStarted(Body, frozen=True, kw_only=True):
    """``goes_on``: by the client that waited in place for an answer; what it wrote to its layer stays."""

    attempt: Ordinal
    goes_on: bool = False


class RunReturned(Reasoned, frozen=True, kw_only=True):
    attempt: Ordinal


class RunStep(Body, frozen=True, kw_only=True):
    kind: Literal["model"]
    name: str
    input_tokens: Count = 0
    output_tokens: Count = 0
    total_tokens: Count = 0
    duration_ms: Count | None = None
    error: str | None = None

    @property
    def usage(self) -> Usage:
        return Usage(self.input_tokens, self.output_tokens, self.total_tokens)


class QuestionAsked(Body, frozen=True, kw_only=True):
    name: str
    question: str
    expires_at: str
    schema: msgspec.Raw = NO_JSON


class QuestionAnswered(Body, frozen=True, kw_only=True):
    name: str
    answer: msgspec.Raw = msgspec.Raw(b"null")


class NotMerged(Body, frozen=True, kw_only=True):
    """What a run's layer could not give to the working memory when the run completed, as a patch."""

    reason: Literal["changed", "limit"]
    patch: msgspec.Raw


class RunEnded(Body, frozen=True, kw_only=True):
    status: RunEnd
    stop_reason: str = ""
    steps: Count = 0
    usage: Usage = Usage()
    error: RunError | None = None
    not_merged: NotMerged | None = None


class ContextThreshold(Body, frozen=True, kw_only=True):
    """``tokens`` of the session's messages are ``share`` of ``window`` or more, and were less."""

    tokens: Count
    window: Ordinal
    share: Annotated[float, Meta(gt=0, le=1)]


def read_body(text: bytes, kind: type[B]) -> B:
    """Raises ValueError when the text does not fit."""
    return msgspec.json.decode(text, type=kind)
