"""What the tests of the command share: its answers, and sessions for it to work on."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

import satchel
from satchel import Principal, RunManager, SessionManager

T = TypeVar("T")

TENANT = "acme"
STORE = "sqlite:///agent.db"
# Clears the screen, sets the title, turns the text around, and looks like markup.
UNSAFE = "\x1b[2J\x1b]0;title\x07[bold]red[/bold] :smile: \u202edrow \x9b1m"


@dataclass(frozen=True, kw_only=True)
class Answer:
    code: int
    out: bytes
    err: str

    @property
    def text(self) -> str:
        return self.out.decode()

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def lines(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def error(self) -> Any:
        return json.loads(self.err)["error"]


class Cli(Protocol):
    def __call__(self, *arguments: str, stdin: bytes = b"") -> Answer: ...


def with_sessions(work: Callable[[SessionManager], Awaitable[T]], *, user: str = "ada") -> T:
    """Something done to the store through the library, as an agent of this user."""

    async def run() -> T:
        async with satchel.open(STORE) as store:
            return await work(SessionManager(store, Principal.agent("shop", tenant_id=TENANT, acting_for=user)))

    return asyncio.run(run())


def with_runs(work: Callable[[RunManager], Awaitable[T]], *, user: str = "ada") -> T:
    """The same for runs."""

    async def run() -> T:
        async with satchel.open(STORE) as store:
            return await work(RunManager(store, Principal.agent("shop", tenant_id=TENANT, acting_for=user)))

    return asyncio.run(run())


def make_session(title: str = "Flask 启动失败", *, user: str = "ada", metadata: Mapping[str, Any] | None = None) -> str:
    async def make(sessions: SessionManager) -> str:
        return (await sessions.create_session(title=title, metadata=metadata)).session_id

    return with_sessions(make, user=user)


def append(session_id: str, *contents: str) -> None:
    async def add(sessions: SessionManager) -> None:
        await sessions.append_messages(session_id, [{"role": "user", "content": content} for content in contents])

    with_sessions(add)


@dataclass(frozen=True, kw_only=True)
class Work:
    """A session in which something happened."""

    session_id: str
    run_id: str


def work_on_a_session() -> Work:
    """Two messages, a tool call, working memory and a run that completed."""

    async def make(sessions: SessionManager) -> Work:
        session = await sessions.create_session(title="Flask 启动失败", metadata={"topic": "flask", "n": 3})
        async with sessions.run(session.session_id, goal="find out why", input="帮我修复启动失败") as run:
            async with run.tool("run_shell", {"command": "python3 app.py"}) as call:
                call.result = {"exit": 1, "output": "No module named 'requests'"}
            patch = {"set": {"next_action": "添加 requests"}, "append": {"completed": "读了 app.py"}}
            await run.update_working_memory(patch)
            await run.append_message({"role": "assistant", "content": "requirements.txt 缺少 requests"})
        return Work(session_id=session.session_id, run_id=run.run.run_id)

    return with_sessions(make)


def conversation(name: str, *contents: str) -> bytes:
    """One line of a file to import."""
    messages = [{"role": "user", "content": content} for content in contents]
    line = {"source": "test", "licence": "CC0-1.0", "session_id": name, "messages": messages, "meta": {}}
    return json.dumps(line, ensure_ascii=False).encode() + b"\n"


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "satchel", *arguments]


class Terminal:
    """The command, or a program, on a terminal of its own, 80 columns wide; ``stdout`` may go elsewhere."""

    def __init__(
        self, arguments: Sequence[str], *, stdout: Path | None = None, program: str = "", **environment: str
    ) -> None:
        ours, theirs = pty.openpty()
        self._ours = ours
        self._shown = bytearray()
        variables = os.environ | {"TERM": "xterm", "COLUMNS": "80", **environment}
        out = theirs if stdout is None else os.open(stdout, os.O_WRONLY | os.O_CREAT, 0o600)
        started = [sys.executable, "-c", program] if program else command(*arguments)
        self.process = subprocess.Popen(started, stdin=theirs, stdout=out, stderr=theirs, env=variables)
        os.close(theirs)
        if out != theirs:
            os.close(out)
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        while True:
            try:
                piece = os.read(self._ours, 4096)
            except OSError:  # how Linux says that the other side is closed
                return
            if not piece:
                return
            self._shown += piece

    @property
    def shown(self) -> str:
        return self._shown.decode(errors="replace")

    def wait_for(self, text: str, *, times: int = 1, seconds: float = 20) -> None:
        deadline = time.monotonic() + seconds
        while self.shown.count(text) < times:
            assert time.monotonic() < deadline, f"{text!r} did not come; shown: {self.shown!r}"
            time.sleep(0.02)

    def type(self, text: str) -> None:
        os.write(self._ours, text.encode())

    def end(self) -> int:
        code = self.process.wait(timeout=20)
        self._reader.join(timeout=20)
        os.close(self._ours)
        return code
