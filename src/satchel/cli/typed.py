"""What stands on the command line goes before what stands in variables, also where two flags exclude each other."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

from satchel.cli.flag import variable

# What is typed silences the variables of what does not go together with it. (--agent wins over --model by itself, and an
# agent may read SATCHEL_MODEL; --user is no agent's key's.)
RIVALS = {
    "--all": ("--cursor", "--after"),
    "--cursor": ("--all",),
    "--after": ("--all",),
    "--once": ("--every",),
    "--every": ("--once",),
    "--continue": ("--session",),
    "--session": ("--continue",),
    "--model": ("--agent",),
    "--agent": ("--no-agents",),
    "--no-agents": ("--agent",),
    "--settings": ("--tenant",),
    "--tenant": ("--settings",),
    "--acting-for": ("--user",),
    "--text": ("--no-follow",),
    "--no-follow": ("--text",),
}
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
    for name, rivals in RIVALS.items():
        if is_typed(name):
            yield from (rival for rival in rivals if not is_typed(rival))
    for index, word in enumerate(words):
        name, equals, value = word.partition("=")
        if name == "--role":
            role = value if equals else "".join(words[index + 1 : index + 2])
            yield from (rival for rival in ROLES.get(role, ()) if not is_typed(rival))
