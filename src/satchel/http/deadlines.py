"""Deadlines that cost nothing while they are kept: one timer for all of them, which looks once in a while."""

from __future__ import annotations

import asyncio


class _Deadline:
    """Of one task. ``has_passed``: its task was cancelled for it, which is told as a TimeoutError."""

    __slots__ = ("_all", "at", "has_passed", "task")

    def __init__(self, all_of_them: Deadlines, at: float, task: asyncio.Task[object]) -> None:
        self._all = all_of_them
        self.at = at
        self.task = task
        self.has_passed = False

    def __enter__(self) -> None:
        self._all.keep(self)

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._all.forget(self)
        if isinstance(error, asyncio.CancelledError) and self.has_passed and self.task.uncancel() == 0:
            raise TimeoutError from None


class Deadlines:
    """``seconds`` for whatever is done ``within`` it, and up to a tenth more."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._kept: set[_Deadline] = set()
        self._timer: asyncio.TimerHandle | None = None

    def within(self) -> _Deadline:
        """A block. Raises TimeoutError."""
        task = asyncio.current_task()
        assert task is not None  # a coroutine runs in one
        return _Deadline(self, asyncio.get_running_loop().time() + self._seconds, task)

    def keep(self, deadline: _Deadline) -> None:
        self._kept.add(deadline)
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._seconds / 10, self._look, loop)

    def forget(self, deadline: _Deadline) -> None:
        self._kept.discard(deadline)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        now = loop.time()
        for deadline in [one for one in self._kept if one.at <= now and not one.has_passed]:
            deadline.has_passed = True
            deadline.task.cancel()
        self._timer = loop.call_later(self._seconds / 10, self._look, loop) if self._kept else None
