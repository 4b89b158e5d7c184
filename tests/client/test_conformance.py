"""The client keeps the promises of the conformance suite, against a live service."""

from __future__ import annotations

from pathlib import Path

import pytest

from satchel.store import Store
from satchel.stores.memory import MemoryStore
from satchel.testing.broken_copies import BrokenCopySuite
from satchel.testing.clock import SettableClock
from satchel.testing.copying import CopySuite
from satchel.testing.follow import FollowSuite
from satchel.testing.idempotency import IdempotencySuite
from satchel.testing.memory import MemorySuite
from satchel.testing.messages import MessageSuite
from satchel.testing.store_loading import StoreLoadingSuite
from satchel.testing.store_reading import StoreReadingSuite
from satchel.testing.store_writing import StoreWritingSuite
from satchel.testing.suites import SUITES, bound_to
from satchel.testing.versions import VersionSuite
from tests.client.suites import ServedStores

# Run with every commit; the others are marked full.
QUICK = (MessageSuite, VersionSuite, MemorySuite, IdempotencySuite, FollowSuite)
NOT_OF_A_CLIENT = (
    StoreWritingSuite,
    StoreLoadingSuite,
    StoreReadingSuite,
    CopySuite,
    BrokenCopySuite,
)  # they are about a store's own methods


class ServedMemory(ServedStores):
    def make_store(self, clock: SettableClock, folder: Path) -> Store:
        return MemoryStore(clock=clock)


for name, bound in bound_to(ServedMemory, [suite for suite in SUITES if suite not in NOT_OF_A_CLIENT]).items():
    globals()[name] = bound if issubclass(bound, QUICK) else pytest.mark.full(bound)
