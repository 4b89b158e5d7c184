"""The shapes of the JSON that goes in and out, for the OpenAPI document. A test holds them to what is really sent.

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


# -- what comes back


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
    """``message``: the assistant's last one in this run; null while there is none. ``hint``: why nobody has begun, where
    this server does not serve the run's agent (a worker elsewhere may)."""

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


# -- what goes in


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
Appended = (Message, Messages)


class NewWorkingMemory(Strict, kw_only=True):
    goal: str = ""
    plan: list[str] = []
    completed: list[str] = []
    errors: list[str] = []
    important_files: list[str] = []
    next_action: str = ""
    notes: dict[str, Any] = {}
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
    """``input``: what the user says, as text or as a chat message."""

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


class Asked(Strict, kw_only=True):
    """``is_answered``: it was answered before; ``answer`` is that value."""

    run: Run
    is_answered: bool
    answer: Any


class NewText(Strict, kw_only=True):
    """``message`` counts the streamed messages of this attempt from 1; ``offset`` is the number of characters before
    ``text``. ``metadata`` comes with the first text."""

    message: Seq
    offset: Count
    text: str
    metadata: dict[str, Any] | UnsetType = UNSET


class TextAdded(Strict, kw_only=True):
    """Where the next text begins."""

    offset: Count


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
    """``session_id``, or ``external_id`` (found, or created), or neither: a new session."""

    message: str | dict[str, Any]
    session_id: str | None = None
    external_id: str | None = None
    user_id: str | None = None
    agent: str | None = None
    goal: str | None = None
    stream: bool = False
    on_busy: OnBusy = "queue"
    wait: Annotated[float, Meta(ge=0, le=600, description="Seconds; left out, the server's own.")] | None = None
