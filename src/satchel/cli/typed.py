"""What stands on the command line goes before what stands in variables, also where two flags exclude each other."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

from satchel.cli.flag import variable

# Of flags that do not go together one that is typed silences the variable of the other. (--user is no agent's key's.)
RIVALS = (
    ("--all", "--cursor"),
    ("--all", "--after"),
    ("--once", "--every"),
    ("--continue", "--session"),
    ("--model", "--agent"),
    ("--agent", "--no-agents"),
    ("--settings", "--tenant"),
    ("--acting-for", "--user"),
    ("--text", "--no-follow"),
)
_VARIABLES = {"--no-follow": variable("--follow")}
ROLES = {"agent": ("--user",), "user": ("--acting-for",), "admin": ("--acting-for",)}

_typed: ContextVar[Sequence[str]] = ContextVar("typed", default=())


def is_typed(name: str) -> bool:
    """Whether the flag stands on the command line; else what it holds comes from its variable."""
    return any(word == name or word.startswith(f"{name}=") for word in _typed.get())


@contextmanager
def typed(arguments: Sequence[str]) -> Iterator[None]:
    """This command line holds; variables that would speak against it are as if they were not set."""
    words = arguments[: arguments.index("--")] if "--" in arguments else arguments
    _typed.set(tuple(words))
    silenced = {_VARIABLES.get(name) or variable(name) for name in _against(words)}
    kept = {name: os.environ.pop(name) for name in silenced if name in os.environ}
    try:
        yield
    finally:
        os.environ.update(kept)
        _typed.set(())


def _against(words: Sequence[str]) -> Iterator[str]:
    for pair in RIVALS:
        given = [name for name in pair if is_typed(name)]
        if len(given) == 1:
            yield next(name for name in pair if name not in given)
    for index, word in enumerate(words):
        name, equals, value = word.partition("=")
        if name == "--role":
            role = value if equals else "".join(words[index + 1 : index + 2])
            yield from (rival for rival in ROLES.get(role, ()) if not is_typed(rival))
