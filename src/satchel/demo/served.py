"""The demo's agents behind a server: each session has a workplace of its own, which outlives the process."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from satchel.demo.agents import coding, data
from satchel.demo.data import build_ads_database
from satchel.demo.project import build_flask_project
from satchel.engine import RunContext
from satchel.engines import ScriptedEngine
from satchel.worker import Served

Build = Callable[[Path], object]
Make = Callable[[Path], ScriptedEngine]


class ServedAgent:
    """``build`` makes a workplace, ``make`` an engine that works in it."""

    def __init__(self, name: str, folder: Path, build: Build, make: Make) -> None:
        self.name = name
        self._folder = folder
        self._build = build
        self._make = make

    async def run(self, ctx: RunContext) -> None:
        workplace = workplace_of(self._folder, self.name, ctx.session_id)
        await asyncio.to_thread(prepare, workplace, self._build)
        await self._make(workplace).run(ctx)


def workplace_of(folder: Path, agent: str, session_id: str) -> Path:
    """Where the agent works for this session."""
    return folder / agent / session_id


def prepare(workplace: Path, build: Build) -> None:
    """Builds it, unless it is there. One run of a session at a time: nobody else builds here. What was left half built
    begins anew."""
    ready = workplace.with_name(workplace.name + ".ready")
    if ready.exists():
        return
    if workplace.is_dir():
        shutil.rmtree(workplace)
    workplace.unlink(missing_ok=True)
    workplace.parent.mkdir(parents=True, exist_ok=True)
    build(workplace)
    ready.touch()


def demo_agents(store_url: str, folder: Path | None = None) -> dict[str, Served]:
    """``coding``, which repairs a Flask project, and ``data``, which asks an ads database. Their workplaces are in ``folder``;
    left out, beside the store's file."""
    where = folder
    if where is None:
        path = store_url.removeprefix("sqlite:///")
        where = Path(tempfile.mkdtemp(prefix="satchel-demo-")) if path == store_url else Path(f"{path}-demo")
    where = where.absolute()
    return {
        "coding": ServedAgent("coding", where, build_flask_project, coding),
        "data": ServedAgent("data", where, build_ads_database, data),
    }
