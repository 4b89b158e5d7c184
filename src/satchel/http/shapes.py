"""The shapes of the JSON that goes out, for the OpenAPI document. A test holds them to what is really sent.

A tuple of shapes is one of them. ``Any`` is any JSON value.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

Time = Annotated[str, Meta(description="RFC 3339, UTC.", extra_json_schema={"format": "date-time"})]
Seq = Annotated[int, Meta(ge=1)]
Count = Annotated[int, Meta(ge=0)]
Version = Annotated[int, Meta(ge=0, description="The session's version.")]
Expected = (
    Annotated[int, Meta(ge=0, description="Change nothing unless the session is at this version; as If-Match.")] | None
)
Seconds = Annotated[float, Meta(gt=0)]
Duration = float | str | None

SessionStatus = Literal["ACTIVE", "CLOSED", "EXPIRED", "DELETED"]
RunStatus = Literal["READY", "RUNNING", "WAITING", "COMPLETED", "FAILED", "CANCELLED"]
OnBusy = Literal["reject", "queue", "cancel"]


class Strict(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """An object without other members."""


class Usage(Strict, kw_only=True):
    input_tokens: Count
    output_tokens: Count
    total_tokens: Count


class Message(msgspec.Struct, kw_only=True):
    """A chat message is flat: its own members stand beside these. A body of another format stands under ``body``."""

    message_id: str
    seq: Seq
    version: Version
    run_id: str | None
    status: Literal["complete", "interrupted", "retracted", "unanswered"]
    format: str
    created_at: Time
    metadata: dict[str, Any]
    role: Literal["user", "assistant", "tool", "system", "developer"] | UnsetType = UNSET
    content: str | list[dict[str, Any]] | UnsetType | None = UNSET
    body: Any = UNSET


class Messages(Strict, kw_only=True):
    items: list[Message]


class ToolCall(Strict, kw_only=True):
    seq: Seq
    version: Version
    tool_call_id: str | None
    run_id: str | None
    tool: str
    arguments: Any
    arguments_hash: str
    status: Literal["started", "succeeded", "failed", "cancelled", "unknown"]
    ok: bool | None
    result: Any
    error: Any
    start_time: Time
    end_time: Time | None
    duration_ms: Count | None
    repeat_of: Seq | None
    step: str | None


class RunError(Strict, kw_only=True):
    code: str
    message: str


class Question(Strict, kw_only=True):
    """``schema``: the JSON Schema that the answer must fit."""

    name: str
    question: str
    schema: Any
    expires_at: Time
    seq: Seq


class Run(msgspec.Struct, kw_only=True):
    """``question``: what a WAITING run waits for."""

    run_id: str
    number: Seq
    session_id: str
    version: Version
    goal: str
    agent: str
    input: Any
    input_seq: Seq | None
    status: RunStatus
    created_at: Time
    start_time: Time | None
    end_time: Time | None
    duration_ms: Count | None
    steps: Count
    usage: Usage
    error: RunError | None
    stop_reason: str | None
    attempt: Count
    max_attempts: Seq
    parent_run_id: str | None
    cancel_requested: bool
    metadata: dict[str, Any]
    question: Question | None
    memory: Literal["session", "run"] | UnsetType = UNSET
    working_memory: Any = UNSET
    not_merged: Any = UNSET


class CancelRequested(Strict, kw_only=True):
    cancel_requested: bool


class Transition(Strict, kw_only=True):
    at: Time
    to: SessionStatus
    actor: str
    reason: str


class Origin(Strict, kw_only=True):
    session_id: str
    seq: Count


class MemoryFields(Strict, kw_only=True):
    goal: str
    plan: list[str]
    completed: list[str]
    errors: list[str]
    important_files: list[str]
    next_action: str
    notes: dict[str, Any] | UnsetType = UNSET


class WorkingMemory(MemoryFields, kw_only=True):
    """``version``: that of the session when the memory last changed."""

    version: Version


class Session(Strict, kw_only=True):
    session_id: str
    external_id: str | None
    tenant_id: str
    user_id: str
    title: str
    status: SessionStatus
    version: Version
    last_seq: Count
    working_memory: MemoryFields | None
    working_memory_version: Version | None
    metadata: dict[str, Any]
    created_at: Time
    updated_at: Time
    closed_at: Time | None
    expires_at: Time | None
    message_count: Count
    tool_call_count: Count
    run_count: Count
    context_tokens: Count
    usage: Usage
    active_run_id: str | None
    queued_run_ids: list[str]
    lifecycle: list[Transition]
    transition_count: Count
    forked_from: Origin | None
    messages: list[Message]
    tool_history: list[ToolCall]
    runs: list[Run]


class Event(msgspec.Struct, kw_only=True):
    """One line of the log. ``status``, ``format``, ``outcome`` and ``metadata`` are a message's."""

    seq: Seq
    version: Version
    kind: str
    at: Time
    actor: str
    run_id: str | None
    body: Any
    refers_to: Seq | UnsetType = UNSET
    status: str | UnsetType = UNSET
    format: str | UnsetType = UNSET
    outcome: str | UnsetType = UNSET
    streamed: Count | UnsetType = UNSET
    metadata: Any = UNSET


class Context(Strict, kw_only=True):
    messages: list[dict[str, Any]]
    tokens: Count
    dropped: Count
    instructions_dropped: Count
    shortened: Count
    max_tokens: Count
    window_share: float


class SessionPage(Strict, kw_only=True):
    items: list[Session]
    next: str | None


class MessagePage(Strict, kw_only=True):
    items: list[Message]
    next: str | None


class ToolCallPage(Strict, kw_only=True):
    items: list[ToolCall]
    next: str | None


class RunPage(Strict, kw_only=True):
    items: list[Run]
    next: str | None


class EventPage(Strict, kw_only=True):
    items: list[Event]
    next: str | None


class ChatAnswer(Strict, kw_only=True):
    """``message``: the assistant's last one in this run; null while there is none. ``hint``: why nobody has begun: this
    server does not serve the run's agent (a worker elsewhere may), or the run before it waits for an answer."""

    session_id: str
    run: Run
    message: Message | None
    hint: str = ""


class Live(Strict, kw_only=True):
    status: Literal["live"]


class Ready(Strict, kw_only=True):
    status: Literal["ready", "not ready"]
    checks: dict[str, Any]


class Place(msgspec.Struct, kw_only=True):
    """Where: a JSON Pointer into the body, a parameter, or a header. ``field``: what the manager's method calls it."""

    detail: str
    field: str
    pointer: str | UnsetType = UNSET
    parameter: str | UnsetType = UNSET
    header: str | UnsetType = UNSET


class Problem(msgspec.Struct, kw_only=True):
    """RFC 9457. ``code`` is stable; ``retryable``: the same request may succeed later."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    retryable: bool
    request_id: str
    errors: list[Place] | UnsetType = UNSET


Appended = (Message, Messages)


class Asked(Strict, kw_only=True):
    """``is_answered``: it was answered before; ``answer`` is that value."""

    run: Run
    is_answered: bool
    answer: Any


class TextAdded(Strict, kw_only=True):
    """Where the next text begins."""

    offset: Count
