"""Pages of a list, and the cursors between them."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Generic, TypeVar

import msgspec

from satchel.domain.ids import digest
from satchel.errors import InvalidCursor

T = TypeVar("T")

_LONGEST = 1024  # characters of a cursor: far more than any that we give
_MOST = 2**63 - 1  # what a database can compare


class Page(msgspec.Struct, Generic[T], frozen=True):
    """``next`` is the cursor of the page after this one; None: this was the last."""

    items: tuple[T, ...]
    next: str | None = None

    def __iter__(self) -> Iterator[T]:
        return iter(self.items)

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> T:
        return self.items[index]


def encode_cursor(position: tuple[int | str, ...], *list_parts: str) -> str:
    """A cursor at ``position`` of the list that ``list_parts`` (caller and filters) make."""
    data = msgspec.json.encode((digest(*list_parts).hex()[:16], *position))
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def decode_cursor(cursor: str, *list_parts: str, shape: tuple[type, ...]) -> tuple[int | str, ...]:
    """The position in a cursor of this very list. Raises InvalidCursor."""
    if type(cursor) is not str or len(cursor) > _LONGEST:
        raise InvalidCursor
    try:
        data = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        found = msgspec.json.decode(data)
    except (ValueError, RecursionError):
        raise InvalidCursor from None
    if not isinstance(found, list) or len(found) != len(shape) + 1 or found[0] != digest(*list_parts).hex()[:16]:
        raise InvalidCursor
    for value, kind in zip(found[1:], shape, strict=True):
        if type(value) is not kind or (isinstance(value, int) and not 0 <= value <= _MOST):
            raise InvalidCursor
    return tuple(found[1:])
