"""A server's process, seen from outside: started, killed, ended."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import sys
from pathlib import Path

import satchel

STARTING = 60.0  # seconds; a machine under load may take long to start a Python
ENDING = 10.0
_ADDRESS = re.compile(r"http://[^/ ]+")


class ServerEnded(Exception):
    """A server did not start, or was gone when nobody expected it."""


class ServerProcess:
    """One process of `satchel serve`, with the demo's agents and a worker inside. Its log goes to ``log``.

    It ends with whoever started it, also with one that was killed hard.
    """

    def __init__(self, process: asyncio.subprocess.Process, watcher: asyncio.subprocess.Process, url: str) -> None:
        self._process = process
        self._watcher = watcher
        self.url = url

    @classmethod
    async def start(
        cls,
        *,
        store: str,
        workplaces: Path,
        log: Path,
        lease: float,
        port: int = 0,
    ) -> ServerProcess:
        """Returns once it serves. Raises ServerEnded. ``port``: 0 takes a free one."""
        flags = {"--folder": str(workplaces), "--lease": f"{lease:g}", "--port": str(port)}
        words = [word for pair in flags.items() for word in pair]
        with log.open("ab") as errors:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-P", "-m", "satchel", "serve", *words, "--drain-seconds", "2"),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=errors,
                cwd=log.parent,  # no satchel.toml of somebody's is there
                env=_environment() | {"SATCHEL_STORE": store},  # a password in it is not for who lists processes
                start_new_session=True,  # Ctrl-C is for the demo, which then ends its servers
            )
        watcher = await _watch_over(process.pid)
        assert process.stdout is not None
        try:
            async with asyncio.timeout(STARTING):
                line = (await process.stdout.readline()).decode()
            found = _ADDRESS.search(line)
            if found is None:
                raise ServerEnded(f"the server ended with {await process.wait()}: {_last_words(log)}")
        except BaseException:
            await cls(process, watcher, "").kill()
            raise
        return cls(process, watcher, found[0])

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    @property
    def is_alive(self) -> bool:
        return self._process.returncode is None

    async def kill(self) -> int:
        """SIGKILL: no handler runs, nothing is flushed. Answers the exit status, which is -9 when that ended it."""
        return await self._end_by(signal.SIGKILL)

    async def end(self) -> None:
        """In order, by SIGTERM; hard after a while. Twice is fine."""
        if not self.is_alive:
            return
        try:
            await asyncio.wait_for(self._end_by(signal.SIGTERM), ENDING)
        except TimeoutError:
            await self.kill()

    async def _end_by(self, number: signal.Signals) -> int:
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(number)
        status = await self._process.wait()
        with contextlib.suppress(ProcessLookupError):
            self._watcher.kill()
        await self._watcher.wait()
        return status


async def _watch_over(pid: int) -> asyncio.subprocess.Process:
    """Kills the server when the pipe that it reads is closed: when whoever started both is dead."""
    return await asyncio.create_subprocess_exec(
        *("/bin/sh", "-c", 'cat > /dev/null; kill -KILL "$1"', "watch", str(pid)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
        start_new_session=True,
    )


def _last_words(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").split("\n")
    return " ".join(line for line in lines[-4:] if line)[-500:] or "(it said nothing)"


def _environment() -> dict[str, str]:
    """This process's own, without the settings of other servers; this very Satchel; and a pip that gives up soon when there
    is no network."""
    kept = ("SATCHEL_DEMO_WHEELS",)
    environment = {name: value for name, value in os.environ.items() if name in kept or not name.startswith("SATCHEL_")}
    environment["PYTHONPATH"] = str(Path(satchel.__file__).parents[1])
    environment.setdefault("PIP_RETRIES", "1")
    environment.setdefault("PIP_DEFAULT_TIMEOUT", "10")
    return environment
