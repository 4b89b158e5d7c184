"""Deadlines that cost nothing while they are kept: one timer for all of them, which looks once in a while."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager


class Deadline:
    """Of one task. ``has_passed``: its task was cancelled for it, which is to be told as an error of its own."""

    __slots__ = ("at", "has_passed", "task")

    def __init__(self, at: float, task: asyncio.Task[object]) -> None:
        self.at = at
        self.task = task
        self.has_passed = False


class Deadlines:
    """``seconds`` for whatever is done ``within`` it, and up to a tenth more."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._kept: set[Deadline] = set()
        self._timer: asyncio.TimerHandle | None = None

    @contextmanager
    def within(self) -> Iterator[None]:
        """Raises TimeoutError."""
        loop = asyncio.get_running_loop()
        task = asyncio.current_task()
        assert task is not None  # a coroutine runs in one
        deadline = Deadline(loop.time() + self._seconds, task)
        self._kept.add(deadline)
        if self._timer is None:
            self._timer = loop.call_later(self._seconds / 10, self._look, loop)
        try:
            yield
        except asyncio.CancelledError:
            if deadline.has_passed and task.uncancel() == 0:
                raise TimeoutError from None
            raise
        finally:
            self._kept.discard(deadline)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        now = loop.time()
        for deadline in [one for one in self._kept if one.at <= now and not one.has_passed]:
            deadline.has_passed = True
            deadline.task.cancel()
        self._timer = loop.call_later(self._seconds / 10, self._look, loop) if self._kept else None
