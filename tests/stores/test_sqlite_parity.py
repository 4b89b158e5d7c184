"""The same changes into both stores, and every read compared: what a file says is what memory says."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from satchel.domain.state import Clock
from satchel.store import Store
from satchel.stores.sqlite import SqliteStore
from tests.stores.parity import assert_parity


@pytest.mark.parametrize("seed", range(4))
async def test_a_file_says_what_memory_says(tmp_path: Path, seed: int) -> None:
    async def make(clock: Callable[[], Clock]) -> Store:
        store = SqliteStore(tmp_path / "a.db", clock=clock)
        await store.open()
        return store

    await assert_parity(seed, make)
