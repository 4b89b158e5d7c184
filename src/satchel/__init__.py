"""Satchel keeps what a multi-turn agent must not lose: the session."""

from typing import TYPE_CHECKING

from satchel.client import connect
from satchel.commit import OpenStore
from satchel.context import Context
from satchel.domain.event import Event
from satchel.domain.imported import Imported
from satchel.domain.limits import Limits
from satchel.domain.memory import WorkingMemory
from satchel.domain.message import Message
from satchel.domain.page import Page
from satchel.domain.policy import Policy
from satchel.domain.principal import Principal
from satchel.domain.question import Approval, Question
from satchel.domain.run import Attempt, Run, RunError, Usage
from satchel.domain.session import Session
from satchel.domain.stream import TextDelta, TextPosition
from satchel.domain.tokens import TokenCounter
from satchel.domain.tool_call import ToolCall
from satchel.engine import Engine, RunContext, RunSuspended, TextStream, ToolUse
from satchel.errors import (
    CancelRequested,
    Conflict,
    ExtraMissing,
    FrozenSnapshot,
    IdempotencyMismatch,
    IllegalTransition,
    InvalidCursor,
    InvalidInput,
    LimitExceeded,
    MessageNotFound,
    NotAllowed,
    NotFound,
    NotServed,
    OtherQuestion,
    OutcomeUnknown,
    QueueFull,
    RestoreRefused,
    RunActive,
    RunFailed,
    RunFenced,
    RunNotFound,
    SatchelError,
    SchemaMismatch,
    ServiceBusy,
    ServiceRefused,
    SessionClosed,
    SessionDeleted,
    SessionExists,
    SessionExpired,
    SessionNotActive,
    SessionNotFound,
    StepOpen,
    StoreBusy,
    StoreCorrupt,
    StoreError,
    StoreMisused,
    StoreUnavailable,
    StreamGap,
    ToolCallEnded,
    ToolCallFailed,
    ToolCallNotFound,
    ToolCallOpen,
    Unauthenticated,
    VersionConflict,
    VersionRequired,
)
from satchel.opening import open
from satchel.questions import Asked
from satchel.runs import RunManager
from satchel.sessions import SessionManager
from satchel.sweeper import Sweeper, SweepReport

if TYPE_CHECKING:
    from satchel.worker import Worker
else:

    def __getattr__(name: str) -> object:
        """``Worker`` is loaded when somebody asks for it: most programs start without one."""
        if name == "Worker":
            from satchel.worker import Worker

            return Worker
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "Approval",
    "Asked",
    "Attempt",
    "CancelRequested",
    "Conflict",
    "Context",
    "Engine",
    "Event",
    "ExtraMissing",
    "FrozenSnapshot",
    "IdempotencyMismatch",
    "IllegalTransition",
    "Imported",
    "InvalidCursor",
    "InvalidInput",
    "LimitExceeded",
    "Limits",
    "Message",
    "MessageNotFound",
    "NotAllowed",
    "NotFound",
    "NotServed",
    "OpenStore",
    "OtherQuestion",
    "OutcomeUnknown",
    "Page",
    "Policy",
    "Principal",
    "Question",
    "QueueFull",
    "RestoreRefused",
    "Run",
    "RunActive",
    "RunContext",
    "RunError",
    "RunFailed",
    "RunFenced",
    "RunManager",
    "RunNotFound",
    "RunSuspended",
    "SatchelError",
    "SchemaMismatch",
    "ServiceBusy",
    "ServiceRefused",
    "Session",
    "SessionClosed",
    "SessionDeleted",
    "SessionExists",
    "SessionExpired",
    "SessionManager",
    "SessionNotActive",
    "SessionNotFound",
    "StepOpen",
    "StoreBusy",
    "StoreCorrupt",
    "StoreError",
    "StoreMisused",
    "StoreUnavailable",
    "StreamGap",
    "SweepReport",
    "Sweeper",
    "TextDelta",
    "TextPosition",
    "TextStream",
    "TokenCounter",
    "ToolCall",
    "ToolCallEnded",
    "ToolCallFailed",
    "ToolCallNotFound",
    "ToolCallOpen",
    "ToolUse",
    "Unauthenticated",
    "Usage",
    "VersionConflict",
    "VersionRequired",
    "Worker",
    "WorkingMemory",
    "connect",
    "open",
]
