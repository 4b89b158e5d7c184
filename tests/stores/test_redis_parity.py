"""The same changes into both stores, and every read compared: what the server says is what memory says."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from satchel.domain.state import Clock
from satchel.store import Store
from satchel.stores.redis import RedisStore
from tests.servers.redis import emptied_database
from tests.stores.parity import assert_parity


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.full)])
async def test_a_server_says_what_memory_says(tmp_path: Path, seed: int) -> None:
    async def make(clock: Callable[[], Clock]) -> Store:
        store = RedisStore(emptied_database("parity", once_for=tmp_path), clock=clock)
        await store.open()
        return store

    await assert_parity(seed, make, steps=60, every=12)
