"""Workers in processes of their own, as a shell starts them."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from tests.worker.stage import until

HERE = Path(__file__).parent


def lying(wall_clock: str | None) -> dict[str, str]:
    """The environment of a process whose wall clock lies; without libfaketime no clock does."""
    libraries = sorted(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))
    if wall_clock is None or not libraries:
        return {}
    return {"LD_PRELOAD": str(libraries[0]), "FAKETIME": wall_clock, "FAKETIME_DONT_FAKE_MONOTONIC": "1"}


class Effect(NamedTuple):
    what: str
    run_id: str
    attempt: int
    pid: int
    at: float


class WorkerProcess:
    def __init__(self, process: subprocess.Popen[bytes], said: Path) -> None:
        self.process = process
        self._said = said

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def said(self) -> str:
        return self._said.read_text()

    @property
    def is_up(self) -> bool:
        """It takes runs, and handles signals."""
        return " serves " in self.said

    async def exit_code(self, *, within: float = 20) -> int:
        return await asyncio.to_thread(self.process.wait, within)


class Workers:
    """In one folder, on one store (a file in the folder, unless another is given), with one file of effects."""

    def __init__(self, folder: Path, url: str = "") -> None:
        self._folder = folder
        self._effects = folder / "effects"
        self.url = url or f"sqlite:///{folder}/agent.db"
        self.started: list[WorkerProcess] = []

    async def start(
        self,
        *agents: str,
        is_awaited: bool = True,
        wall_clock: str | None = None,
        environment: Mapping[str, str] | None = None,
        **flags: float,
    ) -> WorkerProcess:
        """``agents``: names of the module ``agents`` beside this file, or of another as the flag has it. ``wall_clock``: how far it lies, ``+1h``, where
        libfaketime is installed."""
        said = self._folder / f"worker-{len(self.started)}"
        arguments = [part for agent in agents for part in ("--agent", agent if ":" in agent else f"agents:{agent}")]
        arguments += [part for flag, value in flags.items() for part in (f"--{flag}", str(value))]
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("SATCHEL_")}
        with said.open("wb") as errors:
            process = subprocess.Popen(  # noqa: ASYNC220  # it must be killed also where no loop runs any more
                [sys.executable, "-m", "satchel", "worker", "--store", self.url, *arguments],
                cwd=HERE,
                env={**inherited, **lying(wall_clock), "EFFECTS": str(self._effects), **(environment or {})},
                stderr=errors,
            )
        worker = WorkerProcess(process, said)
        self.started.append(worker)
        if is_awaited:
            await until(lambda: worker.is_up)
        return worker

    def kill_all(self) -> None:
        for worker in self.started:
            worker.process.kill()
            worker.process.wait()

    @property
    def effects(self) -> list[Effect]:
        if not self._effects.exists():
            return []
        lines = (line.split() for line in self._effects.read_text().splitlines())
        return [Effect(what, run, int(attempt), int(pid), float(at)) for what, run, attempt, pid, at in lines]

    def of(self, what: str) -> list[Effect]:
        return [effect for effect in self.effects if effect.what == what]
