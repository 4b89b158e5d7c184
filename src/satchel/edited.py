"""Tool calls whose arguments a human changed. The model that asked for one reads so in its result: else it would take what
was done for what it asked for. What the model said stays as it was said."""

from __future__ import annotations

from typing import Any

from satchel.domain.json_text import admit_value, decode
from satchel.domain.tool_call import hash_arguments

NOTE = "a human changed the arguments of this call"


class EditedCalls:
    """The edits of one attempt, until their calls are made: an agent that is called again asks again, and hears the same."""

    def __init__(self) -> None:
        self._edits: list[bytes] = []

    def note(self, tool: str, asked: object, arguments: object) -> None:
        """A call that was asked about with ``asked`` may be made with ``arguments``."""
        edited = hash_arguments(tool, arguments)
        if edited != hash_arguments(tool, asked):
            self._edits.append(edited)

    def take(self, tool: str, arguments: object) -> bool:
        """Whether this call is one of them; if so, it is that one, and the next equal call is another."""
        if not self._edits or (made := hash_arguments(tool, arguments)) not in self._edits:
            return False
        self._edits.remove(made)
        return True


def told(outcome: str, value: Any, arguments: object) -> dict[str, Any]:
    """``value``, the call's ``result`` or ``error`` as ``outcome`` says, beside what it is the outcome of."""
    return {"note": NOTE, "arguments": decode(admit_value(arguments, field="arguments")), outcome: value}


def untold(outcome: str, value: Any) -> Any:
    """What ``told`` was given; anything else as it is."""
    is_told = isinstance(value, dict) and value.get("note") == NOTE and value.keys() == {"note", "arguments", outcome}
    return value[outcome] if is_told else value
