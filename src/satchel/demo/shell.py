"""One shell command in a folder: bounded in time and output, and ended with whoever asked for it."""

from __future__ import annotations

import asyncio
import math
import os
import re
import signal
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from satchel.demo.tools import ToolFailed, ToolResult, require_text

OUTPUT_LIMIT = 64 * 1024
COMMAND_LIMIT = 64 * 1024
TIMEOUT_LIMIT = 600.0
ENDING_SECONDS = 3.0
HOME = ".home"

_SUPERVISOR = Path(__file__).with_name("supervisor.py")
_PIP_SETTINGS = (
    "PIP_CERT",
    "PIP_CONFIG_FILE",
    "PIP_CONSTRAINT",
    "PIP_DEFAULT_TIMEOUT",
    "PIP_EXTRA_INDEX_URL",
    "PIP_FIND_LINKS",
    "PIP_INDEX_URL",
    "PIP_NO_INDEX",
    "PIP_RETRIES",
    "PIP_TRUSTED_HOST",
)
_CREDENTIALS = re.compile(r"://[^/\s]*@")


class ShellCommand:
    """One run of one command. `end()` may be called at any time, more than once."""

    def __init__(self, command: str, folder: Path, *, timeout: float) -> None:
        require_text("command", command, COMMAND_LIMIT)
        if "\0" in command:
            raise ToolFailed("command holds a NUL character")
        if isinstance(timeout, bool) or not isinstance(timeout, int | float):
            raise ToolFailed(f"timeout must be a number of seconds, not {type(timeout).__name__}")
        if not math.isfinite(timeout) or not 0 < timeout <= TIMEOUT_LIMIT:
            raise ToolFailed(f"timeout is {timeout} s; it must be above 0 and at most {TIMEOUT_LIMIT:g} s")
        self._command = command
        self._folder = folder
        self._timeout = timeout
        self._asked_to_end = asyncio.Event()

    def end(self) -> None:
        self._asked_to_end.set()

    async def run(self) -> ToolResult:
        start = time.monotonic()
        try:
            (self._folder / HOME / "tmp").mkdir(parents=True, exist_ok=True)
            transport, command = await asyncio.get_running_loop().subprocess_exec(
                _Supervised,
                *(sys.executable, "-I", "-S", str(_SUPERVISOR), str(os.getpid()), self._command),
                cwd=self._folder,
                env=clean_environment(self._folder, os.environ),
                stdin=asyncio.subprocess.PIPE,  # held open as a lifeline: when it closes, the supervisor ends all
                start_new_session=True,
            )
        except OSError as error:
            raise ToolFailed(f"the command could not be started: {error.strerror}") from error
        asked = asyncio.ensure_future(self._asked_to_end.wait())
        exited = asyncio.ensure_future(command.exited.wait())
        try:
            remaining = self._timeout - (time.monotonic() - start)
            await asyncio.wait([exited, asked], timeout=remaining, return_when=asyncio.FIRST_COMPLETED)
            timed_out = not exited.done()
        finally:
            asked.cancel()
            if lifeline := transport.get_pipe_transport(0):
                lifeline.close()
            await asyncio.wait([exited], timeout=ENDING_SECONDS)
            code = transport.get_returncode()
            if code is None or code < 0:  # the supervisor was stopped or killed, and could not clean up
                _kill_session(transport.get_pid())
            await asyncio.wait([exited, finished := asyncio.ensure_future(command.finished.wait())], timeout=1.0)
            finished.cancel()
            exited.cancel()
            transport.close()  # if a process that we could not reach holds the pipes open
        return {
            "exit_code": None if timed_out or code is None else code if code >= 0 else 128 - code,
            "timed_out": timed_out,
            "stdout": command.stdout.text(),
            "stderr": command.stderr.text(),
            "truncated": command.stdout.is_truncated or command.stderr.is_truncated,
            "duration_ms": round((time.monotonic() - start) * 1000),
        }


class _Supervised(asyncio.SubprocessProtocol):
    """`exited` when the supervisor has; `finished` when its output was read to the end, too."""

    def __init__(self) -> None:
        self.stdout, self.stderr = _Output(), _Output()
        self.exited, self.finished = asyncio.Event(), asyncio.Event()

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        (self.stdout if fd == 1 else self.stderr).add(data)

    def process_exited(self) -> None:
        self.exited.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.finished.set()


class _Output:
    """The first and the last 32 KiB of a stream (errors stand at the end); the middle is dropped."""

    def __init__(self) -> None:
        self._head = bytearray()
        self._tail = bytearray()
        self._left_out = 0

    def add(self, data: bytes) -> None:
        half = OUTPUT_LIMIT // 2
        room = half - len(self._head)
        self._head += data[:room]
        self._tail += data[room:]
        if (excess := len(self._tail) - half) > 0:
            del self._tail[:excess]
            self._left_out += excess

    @property
    def is_truncated(self) -> bool:
        return self._left_out > 0

    def text(self) -> str:
        if not self.is_truncated:
            return (self._head + self._tail).decode("utf-8", "replace")
        mark = f"\n[… truncated: {self._left_out} bytes left out …]\n"
        return self._head.decode("utf-8", "replace") + mark + self._tail.decode("utf-8", "replace")


def _kill_session(session: int) -> None:
    """Kills what is left of a session whose leader, the supervisor, can no longer do it. Needs /proc."""
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError, ValueError):
            # "pid (name) state ppid pgrp session …", where the name may hold spaces and brackets
            if int(path.read_bytes().rpartition(b")")[2].split()[3]) == session:
                os.kill(int(path.parent.name), signal.SIGKILL)
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(session, signal.SIGKILL)


def clean_environment(folder: Path, outer: Mapping[str, str]) -> dict[str, str]:
    """What a command sees of `outer`: where wheels and packages come from, and nothing else.

    Proxies and keys stay outside. A pip setting that holds credentials (`https://name:secret@…`) stays outside too.
    """
    environment = {
        "PATH": os.pathsep.join([str(folder / ".venv" / "bin"), "/usr/local/bin", "/usr/bin", "/bin"]),
        "HOME": str(folder / HOME),
        "TMPDIR": str(folder / HOME / "tmp"),
        "LANG": "C.UTF-8",
        # A file rewritten within a second and of the same size would else run as its older bytecode.
        "PYTHONDONTWRITEBYTECODE": "1",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    }
    for name in _PIP_SETTINGS:
        if name in outer and not _CREDENTIALS.search(outer[name]):
            environment[name] = outer[name]
    if wheels := outer.get("SATCHEL_DEMO_WHEELS"):
        environment["SATCHEL_DEMO_WHEELS"] = str(Path(wheels).absolute())
    return environment
