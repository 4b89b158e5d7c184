"""Several server processes on one port: each has its own loop, all have the same listening socket.

The parent serves nothing. It starts the others, starts one anew when it dies, and ends them when it is asked to stop.
"""

from __future__ import annotations

import contextlib
import logging
import multiprocessing
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from multiprocessing.process import BaseProcess
from typing import Any

from satchel.http.settings import Settings

AGAIN = 1.0  # seconds before another is started for one that died
LAST_WORDS = 10.0  # seconds beyond the time to drain, after which one is killed

_log = logging.getLogger("satchel.http")
Child = Callable[[Settings, socket.socket, Any, Any], None]


class Fleet:
    """``child`` runs in each process, with the settings, the socket, ``extra``, and something to be ``set()`` once it is
    ready. Both are pickled."""

    def __init__(self, settings: Settings, listener: socket.socket, child: Child, extra: Any) -> None:
        self._settings = settings
        self._listener = listener
        self._child = child
        self._extra = extra
        self._context = multiprocessing.get_context("spawn")
        self._processes: dict[BaseProcess, Any] = {}  # and what each sets once it is ready
        self._stopping = threading.Event()

    def run(self, ready: Callable[[], None]) -> None:
        """Until SIGTERM or SIGINT. ``ready`` is called once all serve."""
        count = self._settings.server.workers
        for _ in range(count):
            self._start()
        with self._heeded_signals():
            try:
                while not self._stopping.is_set() and not all(mark.is_set() for mark in self._processes.values()):
                    if not any(process.is_alive() for process in self._processes):
                        return  # what is wrong with one is wrong with all, and each has said it
                    if any(mark.is_set() for mark in self._processes.values()):  # so it is not wrong with all
                        self._replace_the_dead(count)
                    time.sleep(0.01)
                if not self._stopping.is_set():
                    ready()
                while not self._stopping.wait(0.1):
                    self._replace_the_dead(count)
            finally:
                self._end()

    def _start(self) -> None:
        mark = self._context.Event()
        process = self._context.Process(
            target=self._child, args=(self._settings, self._listener, self._extra, mark), daemon=False
        )
        process.start()
        self._processes[process] = mark

    def _replace_the_dead(self, count: int) -> None:
        for process in list(self._processes):
            if not process.is_alive():
                _log.error("server process %s ended with %s; another is started", process.pid, process.exitcode)
                del self._processes[process]
        while len(self._processes) < count and not self._stopping.wait(AGAIN):
            try:
                self._start()
            except OSError as error:  # no memory, or too many processes: the others serve on
                _log.error("no server process can be started, which is tried again: %s", error.strerror)

    def _end(self) -> None:
        for process in self._processes:
            process.terminate()
        deadline = time.monotonic() + self._settings.server.drain_seconds + LAST_WORDS
        for process in self._processes:
            process.join(max(0.0, deadline - time.monotonic()))
            if process.is_alive():
                process.kill()
                process.join()

    @contextlib.contextmanager
    def _heeded_signals(self) -> Iterator[None]:
        def heed(*_: object) -> None:
            self._stopping.set()

        before = {number: signal.signal(number, heed) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
