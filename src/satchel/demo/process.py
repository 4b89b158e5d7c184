"""The agent's process, seen from outside: started, asked, killed."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from pathlib import Path
from typing import Any

import satchel

STARTING = 60.0  # seconds; a machine under load may take long to start a Python
ENDING = 5.0


class ProcessEnded(Exception):
    """The agent's process ended, or refused, when nobody expected it."""


class AgentProcess:
    """One process of `satchel.demo.agent_process`. Its standard error goes to `log`."""

    def __init__(self, process: asyncio.subprocess.Process, log: Path) -> None:
        self._process = process
        self._log = log

    @classmethod
    async def start(cls, *, store: str, agent: str, workplace: Path, tenant: str, user: str, log: Path) -> AgentProcess:
        arguments = {"store": store, "agent": agent, "workplace": str(workplace), "tenant": tenant, "user": user}
        flags = [part for name, value in arguments.items() for part in (f"--{name}", value)]
        with log.open("ab") as errors:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-P", "-m", "satchel.demo.agent_process", *flags),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=errors,
                env=_environment(),
                start_new_session=True,  # Ctrl-C is for the demo, which then ends its processes
            )
        started = cls(process, log)
        try:
            async with asyncio.timeout(STARTING):
                await started._reply()
        except BaseException:
            await started.kill()
            raise
        return started

    @property
    def pid(self) -> int:
        return self._process.pid

    async def ask(self, **request: Any) -> None:
        """Returns when the process has done it. Raises ProcessEnded."""
        self.send(**request)
        await self.done()

    def send(self, **request: Any) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request).encode() + b"\n")

    async def done(self) -> None:
        """Raises ProcessEnded when the process refuses, or ends."""
        reply = await self._reply()
        if not reply.get("done"):
            raise ProcessEnded(f"the agent process was refused: {reply.get('error')}: {reply.get('message')}")

    async def _reply(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = await self._process.stdout.readline()
        if not line:
            code = await self._process.wait()
            raise ProcessEnded(f"the agent process ended with {code}: {self._last_words()}")
        reply: dict[str, Any] = json.loads(line)
        return reply

    def _last_words(self) -> str:
        lines = self._log.read_text(encoding="utf-8", errors="replace").split("\n")
        return " ".join(line for line in lines[-4:] if line)[-500:] or "(it said nothing)"

    async def kill(self) -> int:
        """SIGKILL: no handler runs, nothing is flushed. Answers the exit status, which is -9 when that ended it."""
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        return await self._process.wait()

    async def end(self) -> None:
        """Politely, by closing its stdin; hard after a while. Twice is fine."""
        if self._process.returncode is not None:
            return
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            await asyncio.wait_for(self._process.wait(), ENDING)
        except TimeoutError:
            await self.kill()


def _environment() -> dict[str, str]:
    """This process's own; this very Satchel; and a pip that gives up soon when there is no network."""
    environment = dict(os.environ)
    environment["PYTHONPATH"] = str(Path(satchel.__file__).parents[1])
    environment.setdefault("PIP_RETRIES", "1")
    environment.setdefault("PIP_DEFAULT_TIMEOUT", "10")
    return environment
