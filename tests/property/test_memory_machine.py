"""The memory store against the plain model, over random interleavings."""

from __future__ import annotations

import pytest
from hypothesis.stateful import run_state_machine_as_test

from satchel.store import Store
from satchel.stores.memory import MemoryStore
from satchel.testing.clock import SettableClock
from tests.property.machine import Machine, settings_for


class MemoryMachine(Machine):
    def make_stores(self, clock: SettableClock) -> tuple[Store, Store]:
        store = MemoryStore(clock=clock)
        return store, store


@pytest.mark.timeout(600)
def test_the_memory_store_agrees_with_the_model() -> None:
    run_state_machine_as_test(MemoryMachine, settings=settings_for(40, 50))


@pytest.mark.full
@pytest.mark.timeout(3_600)
def test_the_memory_store_agrees_with_the_model_over_many_more_interleavings() -> None:
    run_state_machine_as_test(MemoryMachine, settings=settings_for(2_000, 80))
