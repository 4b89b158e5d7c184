"""The memory store against the plain model, over random interleavings."""

from __future__ import annotations

from satchel.store import Store
from satchel.stores.memory import MemoryStore
from satchel.testing.clock import SettableClock
from tests.property.machine import Machine, settings_for


class MemoryMachine(Machine):
    def make_stores(self, clock: SettableClock) -> tuple[Store, Store]:
        store = MemoryStore(clock=clock)
        return store, store


TestMemoryStore = MemoryMachine.TestCase
TestMemoryStore.settings = settings_for(80, 40)
