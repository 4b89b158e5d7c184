"""The options of our own in a store's address: `?pool_size=8&pool_wait=5&connect_timeout=5`."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol

from satchel.errors import InvalidInput


class Patience(Protocol):
    """How long a store waits. ``pool_size``: connections at most; ``pool_wait``: seconds until a call that finds none free is
    told so; ``connect_timeout``: seconds until a server that does not answer is given up."""

    @property
    def pool_size(self) -> int: ...
    @property
    def pool_wait(self) -> float: ...
    @property
    def connect_timeout(self) -> float: ...


def unknown_option(name: str, known: Collection[str]) -> InvalidInput:
    """A slip in its name, mostly: what it means would not hold, and nobody would know."""
    return InvalidInput(f"has the unknown option {name[:40]!r}; there are {', '.join(sorted(known))}", field="url")


def checked_port(text: str) -> int:
    """Raises InvalidInput. What was there is not shown: behind a password's bare slash it is a part of the password."""
    if not text.isascii() or not text.isdigit() or len(text) > 5 or not 0 < int(text) < 65_536:
        raise InvalidInput(
            "the port must be a whole number from 1 to 65535 (a / in a password is written %2F)", field="url"
        )
    return int(text)


def number(given: Mapping[str, str], name: str, default: int, *, least: int, most: int) -> int:
    """Raises InvalidInput."""
    text = given.get(name)
    if text is None:
        return default
    if not text.isascii() or not text.isdigit() or not least <= int(text) <= most:
        raise InvalidInput(f"{name} must be a whole number from {least} to {most}", field="url")
    return int(text)


def seconds(given: Mapping[str, str], name: str, default: float) -> float:
    """Raises InvalidInput."""
    text = given.get(name)
    if text is None:
        return default
    try:
        found = float(text)
    except ValueError:
        found = -1.0
    if not 0 < found <= 3600:
        raise InvalidInput(f"{name} must be seconds, more than 0 and at most 3600", field="url")
    return found
