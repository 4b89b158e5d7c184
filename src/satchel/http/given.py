"""The shapes of the JSON that goes in, for the OpenAPI document. What ``shapes`` says of tuples and ``Any`` holds here too."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from satchel.http.shapes import Count, Duration, Expected, OnBusy, Seconds, Seq, Strict


class SessionPolicy(Strict, kw_only=True):
    """Durations in seconds, or like ``30d``; null is never."""

    idle: Duration | UnsetType = UNSET
    max_lifetime: Duration | UnsetType = UNSET
    retention: Duration | UnsetType = UNSET
    restore_closed: Literal["owner", "admin", "never"] | UnsetType = UNSET
    restore_expired: Literal["owner", "admin", "never"] | UnsetType = UNSET
    context_window: Annotated[int, Meta(ge=1)] | UnsetType | None = UNSET
    context_share: Annotated[float, Meta(gt=0, le=1)] | UnsetType = UNSET


class NewSession(Strict, kw_only=True):
    title: str = ""
    user_id: str | None = None
    external_id: str | None = None
    if_exists: Literal["return", "raise"] = "return"
    metadata: dict[str, Any] | UnsetType = UNSET
    policy: SessionPolicy | None = None


class SessionChange(Strict, kw_only=True):
    title: str | UnsetType = UNSET
    metadata: dict[str, Any] | UnsetType = UNSET
    expected_version: Expected = None


class Why(Strict, kw_only=True):
    reason: str = ""
    expected_version: Expected = None


class Fork(Strict, kw_only=True):
    up_to: Count | None = None
    title: str | None = None
    expected_version: Expected = None


class Transfer(Strict, kw_only=True):
    user_id: str
    expected_version: Expected = None


class ChatMessage(msgspec.Struct, kw_only=True):
    """Any members of the chat format; the bytes are kept."""

    role: Literal["user", "assistant", "tool", "system", "developer"] = "user"
    content: str | list[dict[str, Any]] | UnsetType | None = UNSET
    tool_calls: list[dict[str, Any]] | UnsetType = UNSET
    tool_call_id: str | UnsetType = UNSET
    name: str | UnsetType = UNSET


class OneMessage(Strict, kw_only=True):
    """``format``: left out, a chat message; a body of another format is kept as given."""

    message: Any
    metadata: dict[str, Any] | UnsetType = UNSET
    format: str | None = None
    status: Literal["complete", "interrupted"] = "complete"
    expected_version: Expected = None


class SeveralMessages(Strict, kw_only=True):
    """All or none, in one version."""

    messages: Annotated[list[Any], Meta(min_length=1, max_length=100)]
    format: str | None = None
    expected_version: Expected = None


MessageBody = (ChatMessage, OneMessage, SeveralMessages)


class NewWorkingMemory(Strict, kw_only=True):
    goal: str = ""
    plan: list[str] = msgspec.field(default_factory=list)
    completed: list[str] = msgspec.field(default_factory=list)
    errors: list[str] = msgspec.field(default_factory=list)
    important_files: list[str] = msgspec.field(default_factory=list)
    next_action: str = ""
    notes: dict[str, Any] = msgspec.field(default_factory=dict)
    expected_version: Expected = None


Texts = str | list[str]


class MemoryLists(Strict, kw_only=True):
    plan: Texts | UnsetType = UNSET
    completed: Texts | UnsetType = UNSET
    errors: Texts | UnsetType = UNSET
    important_files: Texts | UnsetType = UNSET


class MemoryRemovals(MemoryLists, kw_only=True):
    notes: Texts | UnsetType = UNSET


class MemoryValues(Strict, kw_only=True):
    goal: str | UnsetType = UNSET
    plan: list[str] | UnsetType = UNSET
    completed: list[str] | UnsetType = UNSET
    errors: list[str] | UnsetType = UNSET
    important_files: list[str] | UnsetType = UNSET
    next_action: str | UnsetType = UNSET
    notes: dict[str, Any] | UnsetType = UNSET


class MemoryPatch(Strict, kw_only=True):
    """In this order, all or nothing."""

    clear: (
        list[Literal["goal", "plan", "completed", "errors", "important_files", "next_action", "notes"]] | UnsetType
    ) = UNSET
    remove: MemoryRemovals | UnsetType = UNSET
    append: MemoryLists | UnsetType = UNSET
    set: MemoryValues | UnsetType = UNSET
    expected_version: Expected = None


class NewToolCall(Strict, kw_only=True):
    tool: str
    arguments: Any = None
    ok: bool | None = None
    result: Any = None
    error: Any = None
    tool_call_id: str | None = None
    step: str | None = None
    expected_version: Expected = None


class ToolOutcome(Strict, kw_only=True):
    """``result``, or ``error``, or ``cancelled``."""

    result: Any = None
    error: Any = None
    cancelled: bool = False
    expected_version: Expected = None


class NewRun(Strict, kw_only=True):
    """``input``: what the user says, as text or as a chat message. ``agent``: left out, the server's default one; empty: none,
    and no worker takes the run."""

    goal: str = ""
    agent: str | None = None
    input: str | dict[str, Any] | None = None
    on_busy: OnBusy = "reject"
    max_attempts: Annotated[int, Meta(ge=1, le=100)] = 1
    memory: Literal["session", "run"] = "session"
    metadata: dict[str, Any] | UnsetType = UNSET
    start: bool = False
    lease: Seconds = 30.0
    expected_version: Expected = None


class Ask(Strict, kw_only=True):
    """``schema``: a JSON Schema that the answer must fit; ``expires_in``: seconds; ``here``: who asks goes on waiting."""

    name: str
    question: str
    schema: dict[str, Any] | None = None
    expires_in: Seconds = 604800.0
    here: bool = False
    expected_version: Expected = None


class NewText(Strict, kw_only=True):
    """``message`` counts the streamed messages of this attempt from 1; ``offset`` is the number of characters before
    ``text``. ``metadata`` comes with the first text."""

    message: Seq
    offset: Count
    text: str
    metadata: dict[str, Any] | UnsetType = UNSET


class EndOfText(Strict, kw_only=True):
    """``answer`` is all of the message, whose content begins with the text that was streamed."""

    message: Seq
    answer: dict[str, Any]
    metadata: dict[str, Any] | UnsetType = UNSET
    interrupted: bool = False


class NewChild(Strict, kw_only=True):
    goal: str
    agent: str = ""
    metadata: dict[str, Any] | UnsetType = UNSET
    expected_version: Expected = None


class Empty(Strict):
    """No members."""


class Nothing(Strict, kw_only=True):
    expected_version: Expected = None


class CancelRun(Strict, kw_only=True):
    reason: str = "cancelled"
    expected_version: Expected = None


class AnswerToQuestion(Strict, kw_only=True):
    """``name``: of the question that is meant; left out, whichever is pending."""

    answer: Any
    name: str | None = None
    expected_version: Expected = None


class StartRun(Strict, kw_only=True):
    lease: Seconds = 30.0
    expected_version: Expected = None


class RunStep(Strict, kw_only=True):
    name: str
    input_tokens: Count = 0
    output_tokens: Count = 0
    total_tokens: Count = 0
    duration_ms: Count | None = None
    error: str | None = None
    expected_version: Expected = None


class CompleteRun(Strict, kw_only=True):
    stop_reason: str = "end_turn"
    expected_version: Expected = None


class EndCancelledRun(Strict, kw_only=True):
    stop_reason: str = "cancelled"
    expected_version: Expected = None


class FailRun(Strict, kw_only=True):
    code: str
    message: str = ""
    stop_reason: str = "error"
    expected_version: Expected = None


class Chat(Strict, kw_only=True):
    """``session_id``, or ``external_id`` (found, or created), or neither: a new session. ``agent``: left out, the server's
    default one; needed where it has none."""

    message: str | dict[str, Any]
    session_id: str | None = None
    external_id: str | None = None
    user_id: str | None = None
    agent: str | None = None
    goal: str | None = None
    stream: bool = False
    on_busy: OnBusy = "queue"
    wait: Annotated[float, Meta(ge=0, le=600, description="Seconds; left out, the server's own.")] | None = None
