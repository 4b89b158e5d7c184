"""`satchel serve` as a process of its own."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import httpx
import psutil

from tests.http.plain import NO_CERTIFICATES

ROOT = Path(__file__).parent.parent.parent
SATCHEL = (sys.executable, "-m", "satchel")
AGENTS = tuple(
    word for name in ("echo", "slow", "speaker", "asker") for word in ("--agent", f"tests.http.agents:{name}")
)
PATIENCE = 60.0


class Server:
    """A running server. ``ready`` is the line that it printed."""

    def __init__(self, process: subprocess.Popen[str], ready: str, log: Path) -> None:
        self.process = process
        self.ready = ready
        self.log = log
        found = re.search(r"http://[^/ ]+", ready)
        assert found is not None, ready
        self.url = found[0]

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    def stop(self, number: int = signal.SIGTERM) -> int:
        """The exit code."""
        self.process.send_signal(number)
        return self.process.wait(PATIENCE)

    def logged(self) -> list[dict[str, Any]]:
        """The JSON lines of its log."""
        return [json.loads(line) for line in self.log.read_text().splitlines() if line.startswith("{")]


@contextmanager
def serving(
    folder: Path,
    *flags: str,
    agents: tuple[str, ...] = AGENTS,
    port: int = 0,
    environment: Mapping[str, str] | None = None,
) -> Iterator[Server]:
    log = folder / "server.log"
    command = [sys.executable, "-W", "error", "-m", "satchel", "serve", "--store", f"sqlite:///{folder}/service.db"]
    with log.open("a") as errors:
        process = subprocess.Popen(
            [*command, "--port", str(port), *agents, *flags],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            cwd=ROOT,
            env=None if environment is None else {**os.environ, **environment},
        )
    try:
        ready = _first_line(process)
        assert ready, log.read_text()
        yield Server(process, ready, log)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        assert process.stdout is not None
        process.stdout.close()


def _first_line(process: subprocess.Popen[str]) -> str:
    stdout: IO[str] | None = process.stdout
    assert stdout is not None
    watchdog = threading.Timer(PATIENCE, process.kill)
    watchdog.start()
    try:
        return stdout.readline().strip()
    finally:
        watchdog.cancel()


def workers_of(server: Server) -> list[psutil.Process]:
    """The processes that serve. Python keeps one beside them, which knows their semaphores."""
    children = psutil.Process(server.process.pid).children()
    return [child for child in children if not any("resource_tracker" in word for word in child.cmdline())]


def make_key(folder: Path, *flags: str) -> str:
    """`satchel keys create` on the server's store."""
    made = subprocess.run(
        [*SATCHEL, "keys", "create", "--store", f"sqlite:///{folder}/service.db", *flags],
        capture_output=True,
        text=True,
        check=True,
        timeout=PATIENCE,
    )
    return made.stdout.strip()


def revoke(folder: Path, key: str) -> None:
    command = [*SATCHEL, "keys", "revoke", key.split("_")[1], "--store", f"sqlite:///{folder}/service.db"]
    subprocess.run(command, check=True, capture_output=True, timeout=PATIENCE)


def developers_key(folder: Path) -> str:
    return (folder / "service.db.key").read_text().strip()


@contextmanager
def client_of(server: Server, key: str) -> Iterator[httpx.Client]:
    headers = {"Authorization": f"Bearer {key}"}
    with httpx.Client(
        verify=NO_CERTIFICATES, base_url=server.url, headers=headers, timeout=30, trust_env=False
    ) as client:
        yield client


class Frame(dict[str, Any]):
    """One server-sent event: ``id``, ``event``, ``data``, or ``comment``."""


def frames_of(lines: Iterator[str]) -> Iterator[Frame]:
    frame = Frame()
    for line in lines:
        if not line:
            if frame:
                yield frame
            frame = Frame()
            continue
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        frame[name or "comment"] = json.loads(value) if name == "data" else value
