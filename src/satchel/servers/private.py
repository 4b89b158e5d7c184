"""A private server: started in a folder of its own, watched over, and gone at its end."""

from __future__ import annotations

import signal
import subprocess
import time
from abc import ABC, abstractmethod
from pathlib import Path
from typing import ClassVar, Self

from satchel.servers.program import START_PATIENCE, STOP_PATIENCE, end_watch, kill_all, remove, watch_over


class PrivateServer(ABC):
    """Use it as a context manager, or ``start`` and ``stop``."""

    stopped_by: ClassVar[signal.Signals] = signal.SIGTERM

    _process: subprocess.Popen[bytes] | None = None
    _watcher: subprocess.Popen[bytes] | None = None
    _folder: Path | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    @abstractmethod
    def start(self) -> None:
        """Raises ServerMissing, RuntimeError (with the server's own words)."""

    @abstractmethod
    def _answers(self) -> bool: ...

    @property
    def pid(self) -> int:
        assert self._process is not None, "it was not started"
        return self._process.pid

    def _watch_until_it_answers(self) -> None:
        """Once the process is there. Raises RuntimeError."""
        assert self._process is not None
        assert self._folder is not None
        self._watcher = watch_over(self._process, self._folder, signal_name=self.stopped_by.name.removeprefix("SIG"))
        deadline = time.monotonic() + START_PATIENCE
        while not self._answers():
            if self._process.poll() is not None:
                raise RuntimeError(f"the server ended at once: {self.log()}")
            if time.monotonic() > deadline:
                raise RuntimeError(f"the server did not come up within {START_PATIENCE:g} s: {self.log()}")
            time.sleep(0.02)

    def kill(self) -> None:
        """As by `kill -9` of the whole server."""
        assert self._process is not None
        self._end_watch()
        kill_all(self._process)

    def _end_watch(self) -> None:
        if self._watcher is not None:
            end_watch(self._watcher)
            self._watcher = None

    def shut_down(self) -> None:
        """Who is connected is sent away, what was committed is kept."""
        self._end_watch()
        if self._process is None or self._process.poll() is not None:
            return
        self._process.send_signal(signal.SIGCONT)  # whoever was stopped hears nothing else
        self._process.send_signal(self.stopped_by)
        try:
            self._process.wait(STOP_PATIENCE)
        except subprocess.TimeoutExpired:
            self.kill()

    def stop(self) -> None:
        """For good; twice is fine."""
        self.shut_down()
        if self._folder is not None:
            remove(self._folder)
            self._folder = None

    def log(self) -> str:
        """What the server said."""
        assert self._folder is not None
        return (self._folder / "log").read_text(errors="replace")[-4000:]
