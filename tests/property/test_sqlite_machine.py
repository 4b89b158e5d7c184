"""The SQLite store against the plain model: two stores on one file, as two processes would open it."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis.stateful import run_state_machine_as_test

from satchel.store import Store
from satchel.stores.sqlite import SqliteStore
from satchel.testing.clock import SettableClock
from tests.property.machine import Machine, settings_for


class SqliteMachine(Machine):
    def make_stores(self, clock: SettableClock) -> tuple[Store, Store]:
        self.folder = tempfile.TemporaryDirectory(prefix="satchel-machine-")
        path = Path(self.folder.name) / "machine.db"
        return SqliteStore(path, clock=clock), SqliteStore(path, clock=clock)

    def teardown(self) -> None:
        super().teardown()
        if hasattr(self, "folder"):
            self.folder.cleanup()


@pytest.mark.timeout(600)
def test_the_sqlite_store_agrees_with_the_model() -> None:
    run_state_machine_as_test(SqliteMachine, settings=settings_for(30, 40))


@pytest.mark.full
@pytest.mark.timeout(3_600)
def test_the_sqlite_store_agrees_with_the_model_over_many_more_interleavings() -> None:
    run_state_machine_as_test(SqliteMachine, settings=settings_for(600, 60))
