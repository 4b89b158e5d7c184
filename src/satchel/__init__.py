"""Satchel keeps what a multi-turn agent must not lose: the session."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

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
    ResyncRequired,
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
    StoreNotDurable,
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

if TYPE_CHECKING:
    from satchel.client import connect
    from satchel.context import Context
    from satchel.domain.event import Event
    from satchel.domain.imported import Imported
    from satchel.domain.limits import Limits
    from satchel.domain.memory import WorkingMemory
    from satchel.domain.message import Message
    from satchel.domain.page import Page
    from satchel.domain.pending import PendingCall
    from satchel.domain.policy import Policy
    from satchel.domain.principal import Principal
    from satchel.domain.question import Approval, Question
    from satchel.domain.run import Attempt, Run, RunError, Usage
    from satchel.domain.session import Session
    from satchel.domain.stream import TextDelta, TextPosition
    from satchel.domain.tokens import TokenCounter
    from satchel.domain.tool_call import ToolCall
    from satchel.engine import Engine, RunContext, RunSuspended, TextStream, ToolUse
    from satchel.opened import OpenStore
    from satchel.opening import open
    from satchel.questions import Asked
    from satchel.runs import RunManager
    from satchel.sessions import SessionManager
    from satchel.sweeper import Sweeper, SweepReport
    from satchel.worker import Worker

# Where each other name lives. It is loaded when somebody asks for it: the managers when a program names them, and the
# worker only in a program that runs one.
_HOMES = {
    "satchel.client": "connect",
    "satchel.opened": "OpenStore",
    "satchel.context": "Context",
    "satchel.domain.event": "Event",
    "satchel.domain.imported": "Imported",
    "satchel.domain.limits": "Limits",
    "satchel.domain.memory": "WorkingMemory",
    "satchel.domain.message": "Message",
    "satchel.domain.page": "Page",
    "satchel.domain.pending": "PendingCall",
    "satchel.domain.policy": "Policy",
    "satchel.domain.principal": "Principal",
    "satchel.domain.question": "Approval Question",
    "satchel.domain.run": "Attempt Run RunError Usage",
    "satchel.domain.session": "Session",
    "satchel.domain.stream": "TextDelta TextPosition",
    "satchel.domain.tokens": "TokenCounter",
    "satchel.domain.tool_call": "ToolCall",
    "satchel.engine": "Engine RunContext RunSuspended TextStream ToolUse",
    "satchel.opening": "open",
    "satchel.questions": "Asked",
    "satchel.runs": "RunManager",
    "satchel.sessions": "SessionManager",
    "satchel.sweeper": "SweepReport Sweeper",
    "satchel.worker": "Worker",
}
_HOME = {name: module for module, names in _HOMES.items() for name in names.split()}


def __getattr__(name: str) -> object:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found: object = getattr(import_module(home), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})


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
    "PendingCall",
    "Policy",
    "Principal",
    "Question",
    "QueueFull",
    "RestoreRefused",
    "ResyncRequired",
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
    "StoreNotDurable",
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
