"""`satchel serve` on any store, as a process that can be killed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from pathlib import Path
from typing import IO

from satchel.servers.program import free_port

ROOT = Path(__file__).parent.parent.parent
PATIENCE = 60.0  # seconds
SETTINGS = "[server]\nrequests_per_second = 0\nstreams_per_user = 1000\n"


class Served:
    """On one port from start to start. ``module``: what is run in place of `satchel`."""

    def __init__(
        self,
        url: str,
        folder: Path,
        *flags: str,
        agents: tuple[str, ...] = ("--no-agents",),
        settings: str = SETTINGS,
        module: str = "satchel",
    ) -> None:
        self._store = url
        self._folder = folder
        self._flags = (*agents, *flags)
        self._module = module
        self._process: subprocess.Popen[str] | None = None
        # What it leaves in its folder (the key of a developer) goes with the folder.
        self._environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        (folder / "proof.toml").write_text(settings)

    @property
    def pid(self) -> int:
        assert self._process is not None, "it was not started"
        return self._process.pid

    def start(self) -> None:
        """Returns once it answers."""
        command = [sys.executable, "-W", "ignore", "-m", self._module, "serve", "--store", self._store, "--quiet"]
        command += ["--port", str(self.port), "--config", str(self._folder / "proof.toml"), *self._flags]
        with (self._folder / "served.log").open("a") as log:
            self._process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=log, text=True, cwd=self._folder, env=self._environment
            )
        stdout: IO[str] | None = self._process.stdout
        assert stdout is not None
        watchdog = threading.Timer(PATIENCE, self._process.kill)
        watchdog.start()
        try:
            ready = stdout.readline()
        finally:
            watchdog.cancel()
        if not re.search(r"http://", ready):
            raise RuntimeError(f"the server did not start: {self.log()}")

    def log(self) -> str:
        return (self._folder / "served.log").read_text(errors="replace")[-4000:]

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._process = None

    def stop(self) -> None:
        """Twice is fine."""
        if self._process is not None:
            self.kill()

    def key(self) -> str:
        """Of an agent that acts for ada."""
        flags = ["--tenant", "acme", "--role", "agent", "--acting-for", "ada"]
        made = subprocess.run(
            [sys.executable, "-m", "satchel", "keys", "create", "--store", self._store, *flags],
            capture_output=True,
            text=True,
            check=True,
            timeout=PATIENCE,
            cwd=self._folder,
            env=self._environment,
        )
        return made.stdout.strip()
