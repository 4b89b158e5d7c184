"""The stores on which the worker is tested."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import satchel
from tests.worker.stage import Stage


@pytest.fixture(params=["memory", "sqlite"])
async def stage(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Stage]:
    url = "memory:" if request.param == "memory" else f"sqlite:///{tmp_path}/agent.db"
    async with satchel.open(url) as store:
        yield Stage(store)
