"""Whatever happened to the sessions of a store: a copy of all of them holds the same, and is proved to."""

from __future__ import annotations

import pytest
from hypothesis.stateful import run_state_machine_as_test

from satchel.opened import OpenStore
from satchel.store import Store
from satchel.stores.memory import MemoryStore
from satchel.testing.clock import SettableClock
from satchel.transfer.copying import Copied
from satchel.transfer.moving import Failed, Move
from tests.property.machine import Machine, settings_for


class CopiedMachine(Machine):
    """The stories of the state machine; at the end of each, two copies. The second finds all of the first."""

    def make_stores(self, clock: SettableClock) -> tuple[Store, Store]:
        store = MemoryStore(clock=clock)
        return store, store

    def teardown(self) -> None:
        if hasattr(self, "bare"):
            self.run(self.copy_all())
        super().teardown()

    async def copy_all(self) -> None:
        target = OpenStore(MemoryStore(clock=self.clock))
        for expected in ("copied", "exists"):
            moving = Move(OpenStore(self.bare), target)
            async for one in moving.copy():
                assert isinstance(one, Copied), one
                assert one.result in (expected, "tombstone"), one
            async for copied, proof in moving.verify():
                assert not isinstance(proof, Failed), proof
                assert proof.holds, copied
            assert moving.sum.source == moving.sum.destination
            assert moving.sum.ahead == 0 or expected == "exists"
            moving.close()


def test_a_copy_of_anything_is_the_same() -> None:
    run_state_machine_as_test(CopiedMachine, settings=settings_for(8, 30))


@pytest.mark.full
@pytest.mark.timeout(3_600)
def test_a_copy_of_anything_is_the_same_over_many_more_stories() -> None:
    run_state_machine_as_test(CopiedMachine, settings=settings_for(500, 80))
