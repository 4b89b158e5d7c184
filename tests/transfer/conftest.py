"""Each test runs on both stores."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from satchel.store import Store
from satchel.stores.memory import MemoryStore
from satchel.stores.sqlite import SqliteStore
from satchel.testing.clock import SettableClock
from satchel.testing.stage import Stage


@pytest.fixture(params=["memory", "sqlite"])
async def stage(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Stage]:
    clock = SettableClock()
    store: Store = MemoryStore(clock=clock)
    if request.param == "sqlite":
        store = SqliteStore(tmp_path / "transfer.db", clock=clock)
    made = Stage(store, clock)
    async with made.opened:
        yield made
