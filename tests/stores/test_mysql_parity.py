"""The same changes into both stores, and every read compared: what the server says is what memory says."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from satchel.domain.state import Clock
from satchel.store import Store
from satchel.stores.mysql import MysqlStore
from tests.servers.mysql import emptied_database
from tests.stores.parity import assert_parity


@pytest.mark.parametrize("seed", range(2))
async def test_a_server_says_what_memory_says(tmp_path: Path, seed: int) -> None:
    async def make(clock: Callable[[], Clock]) -> Store:
        store = MysqlStore(emptied_database("parity", once_for=tmp_path), clock=clock)
        await store.open()
        return store

    await assert_parity(seed, make, steps=60, every=12)
