"""The SQLite store keeps every promise of the conformance suite. A second store is another one on the same file."""

from __future__ import annotations

from pathlib import Path

from satchel.store import Store
from satchel.stores.sqlite import SqliteStore
from satchel.testing.clock import SettableClock
from satchel.testing.suite import StoreFactory
from satchel.testing.suites import bound_to


class SqliteStores(StoreFactory):
    def make_store(self, clock: SettableClock, folder: Path) -> Store:
        return SqliteStore(folder / "conformance.db", clock=clock)

    def make_second_store(self, first: Store, clock: SettableClock, folder: Path) -> Store:
        return SqliteStore(folder / "conformance.db", clock=clock)


globals().update(bound_to(SqliteStores))
