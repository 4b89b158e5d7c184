"""What only a command can meet: files, terminals, a store that is not there."""

from __future__ import annotations

from satchel.errors import SatchelError


class Failure(SatchelError):
    """A command cannot do what was asked. As with every SatchelError, ``code`` is stable and the sentence may improve."""


class FlagRefused(Failure):
    """Flags that are each right and do not go together."""

    code = "usage"


class StoreMissing(Failure):
    code = "store_missing"

    def __init__(self, path: str) -> None:
        self.path = path
        super().__init__(
            f"there is no store {path}, and this command makes none;"
            " worker, serve, chat, keys create, sessions import, copy and programs do"
        )


class StoreNotShared(Failure):
    code = "store_not_shared"

    def __init__(self) -> None:
        super().__init__(
            "a memory: store lives in its own process and is gone with it;"
            " name one that stays, for example sqlite:///agent.db"
        )


class FileUnusable(Failure):
    """A file that the caller named cannot be read or written."""

    code = "file_unusable"

    def __init__(self, name: str, reason: str) -> None:
        self.name = name
        self.reason = reason
        super().__init__(f"{name}: {reason}")


class LineRefused(Failure):
    """A line of a file could not be imported. ``cause`` says why, and gives the code."""

    def __init__(self, *, name: str, line: int, cause: SatchelError) -> None:
        self.name = name
        self.line = line
        self.cause = cause
        reason = str(cause).removeprefix(f"line {line}: ")
        super().__init__(f"{name}, line {line}: {reason}")


class ConfirmationNeeded(Failure):
    code = "confirmation_needed"

    def __init__(self) -> None:
        super().__init__("there is no terminal to ask on; say --yes to delete without a question")


class NotConfirmed(Failure):
    code = "not_confirmed"

    def __init__(self, session_id: str) -> None:
        self.session_id = session_id
        super().__init__(f"{session_id} was not deleted")


class NothingToContinue(Failure):
    code = "nothing_to_continue"

    def __init__(self) -> None:
        super().__init__("there is no session to continue; leave --continue out to begin one")


class NoOpenRun(Failure):
    code = "no_open_run"

    def __init__(self, session_id: str) -> None:
        self.session_id = session_id
        super().__init__(f"session {session_id} has no run that is not over; `satchel runs list` shows those that are")


class AgentNotServed(Failure):
    """The run that has the turn is for an agent that is not in this process, and would wait for ever."""

    code = "agent_not_served"

    def __init__(self, *, run_id: str, agent: str, session_id: str) -> None:
        self.run_id = run_id
        self.agent = agent
        self.session_id = session_id
        super().__init__(
            f"run {run_id} belongs to agent {agent}, which is not served here: come back with"
            f" --agent {agent}=MODULE:OBJECT (of a model: --model NAME), or end it: satchel runs cancel"
        )


class NotDeleted(Failure):
    code = "not_deleted"

    def __init__(self, count: int) -> None:
        self.count = count
        super().__init__(f"{count} of the sessions could not be deleted")


class ImportDiffers(Failure):
    """Other sessions stand under the names of some lines. Nothing was written over, and nothing of these lines was stored."""

    code = "import_differs"

    def __init__(self, count: int) -> None:
        self.count = count
        super().__init__(
            f"{count} of the conversations {'was' if count == 1 else 'were'} not imported: another session has the name, as said"
            " above. Import them for another --user, or delete the session that is in the way (satchel sessions delete) first"
        )


class CopyDiffers(Failure):
    """What stands at the destination is not what would be copied there. Nothing was written over."""

    code = "copy_differs"

    def __init__(self, count: int) -> None:
        self.count = count
        super().__init__(
            f"{count} of the sessions {'stands' if count == 1 else 'stand'} at the destination as something else, and"
            f" {'was' if count == 1 else 'were'} left, as said above. To keep the source's: delete it at the destination"
            " (satchel sessions delete), export it here and import it there (satchel sessions export, import), under a new id"
        )


class CopyIncomplete(Failure):
    """A copy that is not whole, or could not be proved to be."""

    code = "copy_incomplete"

    def __init__(self, sentence: str) -> None:
        super().__init__(sentence)


class NotLookedAfter(Failure):
    code = "not_looked_after"

    def __init__(self, count: int) -> None:
        self.count = count
        super().__init__(f"{count} of the sessions that were due could not be looked after; stderr names them")


def code_of(error: SatchelError) -> str:
    return error.cause.code if isinstance(error, LineRefused) else error.code
