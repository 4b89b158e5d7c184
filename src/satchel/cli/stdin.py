"""Reading from whoever types, or pipes."""

from __future__ import annotations

import asyncio
import signal
import sys
from types import FrameType
from typing import Any, Self


class InterruptibleStdin:
    """While asyncio runs, Ctrl-C only cancels a task, and a read that waits for somebody to type would never hear of it.
    Here it ends the read."""

    def __init__(self) -> None:
        self._before: Any = None
        self._is_waiting = False

    def __enter__(self) -> Self:
        self._before = signal.getsignal(signal.SIGINT)
        if callable(self._before):  # else it is ignored, as in the background of a shell, and stays so
            signal.signal(signal.SIGINT, self._interrupt)
        return self

    def __exit__(self, *error: object) -> None:
        signal.signal(signal.SIGINT, self._before)

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        if self._is_waiting:
            raise KeyboardInterrupt
        self._before(number, frame)

    def readline(self, limit: int = -1) -> bytes:
        self._is_waiting = True
        try:
            task = asyncio.current_task()
            if task is not None and task.cancelling():  # Ctrl-C came just before, and the task has not heard of it yet
                raise KeyboardInterrupt
            return sys.stdin.buffer.readline(limit)
        finally:
            self._is_waiting = False
