"""The memory store against the plain model, over random interleavings."""

from __future__ import annotations

import pytest

from satchel.store import Store
from satchel.stores.memory import MemoryStore
from satchel.testing.clock import SettableClock
from tests.property.machine import Machine, settings_for


class MemoryMachine(Machine):
    def make_stores(self, clock: SettableClock) -> tuple[Store, Store]:
        store = MemoryStore(clock=clock)
        return store, store


class TestMemoryStore(MemoryMachine.TestCase):  # type: ignore[misc, name-defined]  # made by Hypothesis at run time
    settings = settings_for(80, 40)


@pytest.mark.full
class TestMemoryStoreDeeply(MemoryMachine.TestCase):  # type: ignore[misc, name-defined]  # made by Hypothesis at run time
    settings = settings_for(2_000, 80)
