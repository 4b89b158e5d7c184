"""The thread behind the blocking door.

One daemon thread runs one event loop for all managers of the process; the first call starts it. A call is a coroutine that
is handed to this loop by a thread that waits for its end. So many threads may call at once, and their writes share commits
as those of tasks do.
"""

from __future__ import annotations

import asyncio
import contextvars
import os
import threading
from collections.abc import Callable, Coroutine, Iterable
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

from satchel.errors import StoreMisused

T = TypeVar("T")
S = TypeVar("S")

SWALLOWED = 0.25  # seconds after which a task that was cancelled and goes on is cancelled again

AFTER_FORK = (
    "this was made before the process was forked, and the thread that it works through did not come along;"
    " open the store again in this process, and make new managers"
)
OWN_THREAD = (
    "satchel.sync was called on its own background thread, which would wait for itself for ever;"
    " call it from another thread, or use the async managers of satchel"
)


class BackgroundLoop:
    """An event loop on a daemon thread of its own, started by the first call."""

    def __init__(self, name: str = "satchel-sync") -> None:
        self._name = name
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._process = 0

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run ``work`` on the loop and wait for its end. Whatever interrupts the waiting (Ctrl-C) cancels the work, waits
        until it has ended, and is raised; the loop goes on. Raises StoreMisused on the loop's own thread, and in a
        process that was forked after the start."""
        try:
            loop = self._running()
        except BaseException:
            work.close()
            raise
        return _Call(loop, work).result()

    def close(self) -> None:
        """End the thread; what still runs on the loop is cancelled. For whoever made a loop of their own: nobody may be in a
        call. It starts anew when it is called again."""
        loop, thread = self._loop, self._thread
        if loop is None or thread is None or self.is_inherited:
            return
        self.call(_cancel_others())
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
        self._loop = self._thread = None

    @property
    def has_started(self) -> bool:
        return self._loop is not None

    @property
    def is_inherited(self) -> bool:
        """Whether the thread was left behind in the process that forked this one."""
        return self._loop is not None and self._process != os.getpid()

    def _running(self) -> asyncio.AbstractEventLoop:
        loop = self._loop or self._start()
        if self._process != os.getpid():
            raise StoreMisused(AFTER_FORK)
        if self._thread is not None and self._thread.ident == threading.get_ident():
            raise StoreMisused(OWN_THREAD)
        return loop

    def _start(self) -> asyncio.AbstractEventLoop:
        with _process.starting:
            if self._loop is not None:  # another thread was faster
                return self._loop
            loop = asyncio.new_event_loop()
            thread = threading.Thread(target=_run, args=(loop,), name=self._name, daemon=True)
            try:
                thread.start()
            except BaseException:
                loop.close()
                raise
            self._thread, self._process, self._loop = thread, os.getpid(), loop
            return loop


def _run(loop: asyncio.AbstractEventLoop) -> None:
    """Until the process ends. What is half-way then stays so, as if it had been killed: stores and leases are made for
    that, and threads that still wait are daemons, which are better not woken to fail in the dark."""
    asyncio.set_event_loop(loop)
    loop.run_forever()


async def _cancel_others() -> None:
    await cancel(task for task in asyncio.all_tasks() if task is not asyncio.current_task())


async def cancel(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Until they have ended: a task may swallow a cancellation, as ``asyncio.wait_for`` does before Python 3.12."""
    pending = set(tasks)
    while pending:
        for task in pending:
            task.cancel()
        _, pending = await asyncio.wait(pending, timeout=SWALLOWED)


class _Call(Generic[T]):
    """One coroutine on its way, and the thread that waits for it."""

    __slots__ = ("_ending", "_inbox", "_loop", "_task", "_work")

    def __init__(self, loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T]) -> None:
        self._loop = loop
        self._work = work
        self._task: asyncio.Task[T] | None = None
        self._ending: asyncio.Task[None] | None = None  # kept, so that it is not collected in the middle
        self._inbox: SimpleQueue[Callable[[], None] | None] = SimpleQueue()  # questions to the thread; None: the end

    def result(self) -> T:
        """In the calling thread."""
        try:
            self._loop.call_soon_threadsafe(self._begin)  # in the caller's context
            while (question := self._inbox.get()) is not None:
                question()
        except BaseException:
            self._loop.call_soon_threadsafe(self._abandon)
            while self._inbox.get() is not None:
                pass  # a question that nobody answers any more
            raise
        task, self._task = self._task, None
        assert task is not None
        try:
            return task.result()
        finally:
            del task  # else an error would hold itself by its traceback, until the collector comes

    async def ask(self, question: Callable[[], S]) -> S:
        """In the loop: have the thread that waits answer ``question``."""
        answer: asyncio.Future[S] = self._loop.create_future()

        def settle(value: S | None, error: Exception | None) -> None:
            if answer.done():  # cancelled meanwhile
                return
            if error is None:
                answer.set_result(value)  # type: ignore[arg-type]  # the value of the question, which may be None
            else:
                answer.set_exception(error)

        def reply() -> None:
            try:
                value = question()
            except Exception as error:  # noqa: BLE001  # raised where the question was asked
                self._loop.call_soon_threadsafe(settle, None, error)
            else:
                self._loop.call_soon_threadsafe(settle, value, None)

        self._inbox.put(reply)
        return await answer

    def _begin(self) -> None:
        _current_call.set(self)
        self._task = self._loop.create_task(self._work)
        self._task.add_done_callback(self._end)

    def _abandon(self) -> None:
        if self._task is None:  # interrupted before it was handed over
            self._work.close()
            self._inbox.put(None)
            return
        self._ending = self._loop.create_task(cancel([self._task]))
        # Once more: the thread may have been interrupted just when it had heard of the end.
        self._ending.add_done_callback(lambda _: self._inbox.put(None))

    def _end(self, task: asyncio.Task[T]) -> None:
        self._inbox.put(None)


_current_call: contextvars.ContextVar[_Call[Any]] = contextvars.ContextVar("_current_call")


async def ask(question: Callable[[], S]) -> S:
    """In a call: have the thread that waits for it answer ``question``."""
    return await _current_call.get().ask(question)


class _Process:
    """What belongs to one process, and is made anew in a forked one."""

    def __init__(self, shared: BackgroundLoop) -> None:
        self.shared = shared
        self.starting = threading.Lock()


_process = _Process(BackgroundLoop())
_left_behind: list[BackgroundLoop] = []  # the parent's: to collect one here would warn that it is not closed


def background() -> BackgroundLoop:
    """The loop that all managers of this process share."""
    return _process.shared


def _in_forked_child() -> None:
    global _process  # noqa: PLW0603  # one per process, and this is a new process
    shared = _process.shared
    if shared.has_started:
        _left_behind.append(shared)
        shared = BackgroundLoop()
    _process = _Process(shared)  # with a new lock: somebody may have held the other


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_forked_child)
