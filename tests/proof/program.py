"""What a program of proof is, and what it reports."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any

import msgspec

from tests.proof.stores import STORES, Kind

EVERYWHERE = tuple(name for name, kind in STORES.items() if not kind.is_special)


class NotHere(Exception):
    """This machine cannot make the fault; the sentence says what it lacks."""


class Report(msgspec.Struct, kw_only=True):
    """``figures``: what was counted. ``faults``: each promise that did not hold, in a sentence; none is what is hoped for,
    except of a weak variant."""

    figures: dict[str, int | float | str]
    faults: list[str] = []
    seconds: float = 0.0


class Task(msgspec.Struct, kw_only=True):
    """One run of a program. ``weak`` names what is broken on purpose; "" is Satchel as it is."""

    store: Kind
    folder: Path
    bounds: Mapping[str, int]
    weak: str = ""
    say: Callable[[str], None] = lambda line: None  # noqa: ARG005  # nobody looks


class Program(msgspec.Struct, frozen=True, kw_only=True):
    """``bounds``: how much it does in `make test-full`, which the command line may change. ``weak``: the variants that must
    fail, for else the program proves nothing."""

    name: str
    shows: str
    run: Callable[[Task], Coroutine[Any, Any, Report]]
    bounds: Mapping[str, int]
    weak: tuple[str, ...]
    stores: tuple[str, ...] = EVERYWHERE
    weak_bounds: Mapping[str, int] = {}  # how much of it is enough to find what is broken
    server_bounds: Mapping[str, int] = {}  # where a server must be started anew each time

    def bounds_on(self, store: str, *, weak: str = "") -> dict[str, int]:
        slower = self.server_bounds if STORES[store].has_server else {}
        return {**self.bounds, **slower, **(self.weak_bounds if weak else {})}
