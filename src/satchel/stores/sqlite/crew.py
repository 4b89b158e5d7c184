"""Threads that do blocking work for tasks, each with a resource of its own.

A queue and a bell instead of an executor: one hop costs less, and a serial write is two of them.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, Generic, Protocol, TypeVar

from satchel.errors import StoreMisused
from satchel.stores.sqlite.bell import Bell

_log = logging.getLogger("satchel.stores.sqlite")

T = TypeVar("T")


class Closable(Protocol):
    def close(self) -> None: ...


R = TypeVar("R", bound=Closable)
Job = tuple[Callable[[R], Any], Bell, "asyncio.Future[Any]"]


class Crew(Generic[R]):
    """``size`` threads. Each makes its resource by ``make`` when it first has work (a failure is that work's, and is tried
    again by the next), and closes it at the end. Jobs are begun in the order in which they came, and are done even if
    nobody waits for them any more. ``rest``: what is to be done with the resource after each, once its result is on its way."""

    def __init__(self, name: str, size: int, make: Callable[[], R], *, rest: Callable[[R], None] | None = None) -> None:
        self._make = make
        self._rest = rest
        self._jobs: SimpleQueue[Job[R] | None] = SimpleQueue()
        self._closed = False
        self._bells: dict[asyncio.AbstractEventLoop, Bell] = {}
        self._threads = [threading.Thread(target=self._work, name=name, daemon=True) for _ in range(size)]
        for thread in self._threads:
            thread.start()

    def submit(self, work: Callable[[R], T], future: asyncio.Future[T] | None = None) -> asyncio.Future[T]:
        """The work's result goes into ``future``, a new one unless given. Raises StoreMisused once it is closed: nobody
        would do the work."""
        if self._closed:
            raise StoreMisused("the store is closed")
        loop = asyncio.get_running_loop()
        if future is None:
            future = loop.create_future()
        self._jobs.put((work, self._bells.get(loop) or self._hung(loop), future))
        return future

    def _hung(self, loop: asyncio.AbstractEventLoop) -> Bell:
        for gone in [known for known in self._bells if known.is_closed()]:
            self._bells.pop(gone).close()
        bell = self._bells[loop] = Bell()
        return bell

    async def run(self, work: Callable[[R], T]) -> T:
        return await self.submit(work)

    async def close(self) -> None:
        """After what was handed in."""
        self._closed = True
        for _ in self._threads:
            self._jobs.put(None)
        try:
            for thread in self._threads:
                await asyncio.to_thread(thread.join)
        finally:  # also when it is cancelled: nobody else would
            for bell in self._bells.values():
                bell.close()

    def _work(self) -> None:
        resource: R | None = None
        while (job := self._jobs.get()) is not None:
            work, bell, future = job
            try:
                if resource is None:
                    resource = self._make()
                result, error = work(resource), None
            except BaseException as caught:  # noqa: BLE001  # it is the caller's, on the caller's thread
                result, error = None, caught
            bell.ring(future, result, error)
            if self._rest is not None and resource is not None:
                try:
                    self._rest(resource)
                except Exception:  # noqa: BLE001  # its job is answered; those that come next must be, too
                    _log.exception("what was left behind an answer failed")
            del job, work, future, result, error  # not until the next job comes
        if resource is not None:
            resource.close()
