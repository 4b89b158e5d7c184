"""What an exit code says. The one place: the help prints it, and nothing else names a number."""

from __future__ import annotations

from enum import IntEnum

from satchel.cli.failures import (
    AgentNotServed,
    ConfirmationNeeded,
    CopyDiffers,
    CopyIncomplete,
    FileUnusable,
    FlagRefused,
    ImportDiffers,
    LineRefused,
    NoOpenRun,
    NotConfirmed,
    NotDeleted,
    NothingToContinue,
    NotLookedAfter,
    StoreMissing,
    StoreNotShared,
)
from satchel.errors import (
    Conflict,
    ExtraMissing,
    FrozenSnapshot,
    InvalidInput,
    NotAllowed,
    NotFound,
    NotServed,
    RunFailed,
    ServiceRefused,
    StoreError,
    StoreMisused,
    ToolCallFailed,
    Unauthenticated,
)


class ExitCode(IntEnum):
    OK = 0
    UNEXPECTED = 1
    USAGE = 2
    NOT_FOUND = 3
    REFUSED = 4
    STORE = 5
    NOT_ANSWERED = 6
    INTERRUPTED = 130
    READER_LEFT = 141  # as if SIGPIPE had ended it


MEANINGS: dict[ExitCode, str] = {
    ExitCode.OK: "done",
    ExitCode.UNEXPECTED: "a check failed (doctor, demo); or a fault of Satchel or of this machine",
    ExitCode.USAGE: "the command line or its input is wrong",
    ExitCode.NOT_FOUND: "no such session or run, or it is somebody else's",
    ExitCode.REFUSED: "refused: closed, expired, deleted, other version or content, unconfirmed",
    ExitCode.STORE: "the store is missing, away, busy or damaged; outcome unknown",
    ExitCode.NOT_ANSWERED: "the agent's run failed, was cancelled, or waits for an answer",
    ExitCode.INTERRUPTED: "ended by Ctrl-C (a tail that it ends is done: 0)",
    ExitCode.READER_LEFT: "whoever read the output stopped reading",
}

# The first that fits. Whatever is not named here is unexpected.
_BY_SITUATION: tuple[tuple[ExitCode, tuple[type[Exception], ...]], ...] = (
    (ExitCode.UNEXPECTED, (StoreMisused,)),
    (
        ExitCode.USAGE,
        (
            InvalidInput,
            FrozenSnapshot,
            Unauthenticated,
            FlagRefused,
            AgentNotServed,
            FileUnusable,
            StoreNotShared,
            ConfirmationNeeded,
            ExtraMissing,
            NotServed,
        ),
    ),
    (ExitCode.NOT_FOUND, (NotFound, NothingToContinue, NoOpenRun)),
    (ExitCode.REFUSED, (Conflict, NotAllowed, NotConfirmed, CopyDiffers, ImportDiffers, ToolCallFailed)),
    (ExitCode.STORE, (StoreError, StoreMissing, ServiceRefused, NotDeleted, NotLookedAfter, CopyIncomplete)),
    (ExitCode.NOT_ANSWERED, (RunFailed,)),
)


def exit_code_of(error: Exception) -> ExitCode:
    if isinstance(error, LineRefused):
        return exit_code_of(error.cause)
    for code, situations in _BY_SITUATION:
        if isinstance(error, situations):
            return code
    return ExitCode.UNEXPECTED


def explained() -> str:
    """The table of the help."""
    return "\n".join(f"  {code.value:>3}  {meaning}" for code, meaning in MEANINGS.items())
