"""The command, called as a shell would call it, over a store that holds what the tests need."""

from __future__ import annotations

import asyncio
import io
import json
import os
import sys
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

import pytest

import satchel
from satchel import Principal, RunManager, SessionManager
from satchel.cli import main

T = TypeVar("T")

TENANT = "acme"
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


@pytest.fixture(autouse=True)
def shell(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No settings but the store and the tenant, 80 columns, an empty folder."""
    for name in list(os.environ):
        if name.startswith("SATCHEL_") or name in ("FORCE_COLOR", "NO_COLOR", "COLUMNS", "TTY_COMPATIBLE"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("SATCHEL_STORE", "sqlite:///agent.db")
    monkeypatch.setenv("SATCHEL_TENANT", TENANT)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def cli(capsysbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch) -> Cli:
    def call(*arguments: str, stdin: bytes = b"") -> Answer:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        code = main(list(arguments))
        out, err = capsysbinary.readouterr()
        return Answer(code=int(code), out=out, err=err.decode())

    return call


def with_sessions(work: Callable[[SessionManager], Awaitable[T]], *, user: str = "ada") -> T:
    """Something done to the store through the library, as an agent of this user."""

    async def run() -> T:
        async with satchel.open("sqlite:///agent.db") as store:
            return await work(SessionManager(store, Principal.agent("shop", tenant_id=TENANT, acting_for=user)))

    return asyncio.run(run())


def make_session(title: str = "Flask 启动失败", *, user: str = "ada", metadata: Mapping[str, Any] | None = None) -> str:
    async def make(sessions: SessionManager) -> str:
        return (await sessions.create_session(title=title, metadata=metadata)).session_id

    return with_sessions(make, user=user)


@dataclass(frozen=True, kw_only=True)
class Work:
    """A session in which something happened."""

    session_id: str
    run_id: str


@pytest.fixture
def work(shell: None) -> Work:
    async def make(sessions: SessionManager) -> Work:
        session = await sessions.create_session(title="Flask 启动失败", metadata={"topic": "flask", "n": 3})
        async with sessions.run(session.session_id, goal="find out why", input="帮我修复启动失败") as run:
            async with run.tool("run_shell", {"command": "python3 app.py"}) as call:
                call.result = {"exit": 1, "output": "No module named 'requests'"}
            await run.update_working_memory({"set": {"next_action": "添加 requests"}, "append": {"completed": "读了 app.py"}})
            await run.append_message({"role": "assistant", "content": "requirements.txt 缺少 requests"})
        return Work(session_id=session.session_id, run_id=run.run.run_id)

    return with_sessions(make)


def start_run(session_id: str) -> str:
    """A run that stays RUNNING."""

    async def start(sessions: SessionManager) -> str:
        return (await sessions.add_run(session_id, goal="wait", input="go", start=True)).run_id

    return with_sessions(start)


__all__ = ["TENANT", "UNSAFE", "Answer", "Cli", "RunManager", "Work", "make_session", "start_run", "with_sessions"]
