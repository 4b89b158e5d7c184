"""The memory store keeps every promise of the conformance suite."""

from __future__ import annotations

from pathlib import Path

from satchel.store import Store
from satchel.stores.memory import MemoryStore
from satchel.testing.clock import SettableClock
from satchel.testing.suite import StoreFactory
from satchel.testing.suites import bound_to


class MemoryStores(StoreFactory):
    def make_store(self, clock: SettableClock, folder: Path) -> Store:
        return MemoryStore(clock=clock)


globals().update(bound_to(MemoryStores))
