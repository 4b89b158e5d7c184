"""What threads did for tasks, brought to their event loop: a list, and a counter of the kernel that wakes the loop. A lone
write waits for each step on that way, and ``call_soon_threadsafe`` has more of them: a context, a handle, a socket to be read."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import threading
from collections import deque
from collections.abc import Callable
from typing import Any


class Bell:
    """Of one event loop, on which it is made."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self._brought: deque[tuple[asyncio.Future[Any], object, BaseException | None]] = deque()
        self._is_rung = False
        self._counter = _counter(self.loop, self._heard)
        self._closing = threading.Lock()  # a number that is closed may be another file's a moment later

    def ring(self, future: asyncio.Future[Any], result: object, error: BaseException | None) -> None:
        """From any thread: ``future`` shall have it, unless it is done by then, or the loop is closed and nobody waits."""
        self._brought.append((future, result, error))
        with self._closing:
            if self._is_rung:
                return
            self._is_rung = True
            if self._counter is not None:
                os.eventfd_write(self._counter, 1)
                return
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self.loop.call_soon_threadsafe(self._hand_out)

    def _heard(self) -> None:
        if self._counter is not None:
            os.eventfd_read(self._counter)
        self._hand_out()

    def _hand_out(self) -> None:
        self._is_rung = False  # before the list is read: what comes later rings again
        brought = self._brought
        try:
            while brought:
                future, result, error = brought.popleft()
                if future.done():  # cancelled
                    continue
                if error is None:
                    future.set_result(result)
                else:
                    future.set_exception(error)
        finally:
            if brought:  # who heard one failed: that is the loop's to tell, and the others are heard all the same
                self.loop.call_soon(self._hand_out)

    def close(self) -> None:
        """From any thread. What is still brought is heard, in another way."""
        with self._closing:
            counter, self._counter = self._counter, None
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self.loop.call_soon_threadsafe(self._end, counter)
            return
        if counter is not None:
            os.close(counter)

    def _end(self, counter: int | None) -> None:
        if counter is not None:
            self.loop.remove_reader(counter)
            os.close(counter)
        self._hand_out()


def _counter(loop: asyncio.AbstractEventLoop, heard: Callable[[], None]) -> int | None:
    """None where the system, or the loop, has none."""
    if sys.platform != "linux":
        return None
    counter = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
    try:
        loop.add_reader(counter, heard)
    except NotImplementedError:
        os.close(counter)
        return None
    return counter
