"""Values as they stand in a statement's text. The connection speaks no character set (`SET NAMES binary`), so a text is its
bytes, and a backslash and a quote are all that could end it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

_LEAST, _MOST = -(2**63), 2**63 - 1


class Part(bytes):
    """A piece of a statement, not a value."""


def literal(value: Any) -> bytes:
    """Raises ValueError (a number beyond 64 bits, half a character) and TypeError."""
    if value is None:
        return b"NULL"
    kind = type(value)
    if kind is str:
        data: bytes = value.encode()
    elif kind is int:
        if not _LEAST <= value <= _MOST:
            raise ValueError("a number beyond 64 bits")
        return b"%d" % value
    elif kind is bool:
        return b"1" if value else b"0"
    elif isinstance(value, Part):
        return value
    elif isinstance(value, bytes):
        data = value
    else:
        raise TypeError(f"{kind.__name__} is no value of a column")
    return b"'" + data.replace(b"\\", b"\\\\").replace(b"'", b"\\'").replace(b"\0", b"\\0") + b"'"


def row(values: Iterable[object]) -> bytes:
    return b"(" + b",".join([literal(value) for value in values]) + b")"


def rows(lists: Iterable[Iterable[object]]) -> Part:
    """`(1,'a'),(2,'b')`."""
    return Part(b",".join([row(values) for values in lists]))


class Statement:
    """A text with places `$1`, `$2` … for values."""

    __slots__ = ("_between", "_order", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        pieces = re.split(r"\$(\d+)", text)
        self._between = [piece.encode() for piece in pieces[::2]]
        self._order = [int(number) - 1 for number in pieces[1::2]]

    def __call__(self, *values: object) -> bytes:
        """With the values in their places. Raises ValueError, TypeError."""
        literals = [literal(value) for value in values]
        out = [self._between[0]]
        for place, following in zip(self._order, self._between[1:], strict=True):
            out.append(literals[place])
            out.append(following)
        return b"".join(out)

    def for_each(self, lists: Sequence[Sequence[object]]) -> bytes:
        """One statement for all, each with its own values; their rows together."""
        return b" UNION ALL ".join([b"(" + self(*values) + b")" for values in lists])
