"""What a snapshot is made of: lists and dicts that name the method to use when somebody tries to change them; and how it is
printed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NoReturn, TypeVar

from satchel.errors import FrozenSnapshot

T = TypeVar("T")

SHOWN = 60  # characters of a value, where a snapshot is printed


class Items(tuple[T, ...]):
    """A tuple; ``writer`` is the manager's method that changes what it shows."""

    _writer: str

    def __new__(cls, items: Iterable[T], writer: str) -> Items[T]:
        made = super().__new__(cls, items)
        made._writer = writer
        return made

    def _refuse(self, *args: object, **kwargs: object) -> NoReturn:
        raise refusal(self._writer)

    append = extend = insert = remove = pop = clear = _refuse


class Members(dict[str, T]):
    """A dict; ``writer`` is the manager's method that changes what it shows."""

    _writer: str

    def __init__(self, items: Mapping[str, T], writer: str) -> None:
        super().__init__(items)
        self._writer = writer

    def _refuse(self, *args: object, **kwargs: object) -> NoReturn:
        raise refusal(self._writer)

    __setitem__ = __delitem__ = __ior__ = update = setdefault = pop = popitem = clear = _refuse


def refusal(writer: str) -> FrozenSnapshot:
    return FrozenSnapshot(f"this is a snapshot of the session; use manager.{writer}(session_id, …)")


def in_brief(value: object) -> str:
    """Its repr, or how that begins."""
    if isinstance(value, str):
        return repr(value if len(value) <= SHOWN else value[:SHOWN] + "…")
    shown = repr(value)
    return shown if len(shown) <= SHOWN else shown[:SHOWN] + "…"
