"""Turns between processes: who commits without a pause lets the others in.

SQLite's own write lock is taken by whoever asks at the right moment, and a process that commits group after group always
does. So a writer takes the gate, then the room, and leaves the gate: while it works in the room one other process waits
at the gate's inside, and comes next. The locks are advisory, and gone with the process.
"""

from __future__ import annotations

import contextlib
import os
import select
import sys
import time
import weakref
from pathlib import Path

from satchel.errors import StoreBusy

if sys.platform != "win32":
    import fcntl

FIRST_PAUSE = 0.00005
LONGEST_PAUSE = 0.001


class Gate:
    """The two lock files beside the database. One thread of one process."""

    def __init__(self, database: Path) -> None:
        self._gate = _open(database.with_name(database.name + "-gate"))
        try:
            self._room = _open(database.with_name(database.name + "-room"))
        except BaseException:
            os.close(self._gate)
            raise
        _gates.add(self)

    def enter(self, deadline: float) -> None:
        """Raises StoreBusy when ``deadline`` (monotonic) passes first."""
        _take(self._gate, deadline)
        try:
            _take(self._room, deadline)
        finally:
            _drop(self._gate)

    def leave(self) -> None:
        _drop(self._room)

    def close(self) -> None:
        _gates.discard(self)
        os.close(self._room)
        os.close(self._gate)


_gates: weakref.WeakSet[Gate] = weakref.WeakSet()


def _close_in_child() -> None:
    """A forked child shares its parent's locks: if the parent dies in the room, the child must not keep it closed."""
    for gate in list(_gates):
        with contextlib.suppress(OSError):
            gate.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_in_child)


def _open(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


if sys.platform == "win32":  # no fairness there; SQLite's own lock still keeps writers apart

    def _take(descriptor: int, deadline: float) -> None:
        del descriptor, deadline

    def _drop(descriptor: int) -> None:
        del descriptor

else:

    def _take(descriptor: int, deadline: float) -> None:
        pause = FIRST_PAUSE
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    raise StoreBusy("another process kept the database; nothing was stored") from None
                select.select((), (), (), pause)  # not time.sleep: libfaketime breaks it
                pause = min(2 * pause, LONGEST_PAUSE)
            else:
                return

    def _drop(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_UN)
