"""The Redis store keeps every promise of the conformance suite. A second store is another one on the same database.

Both are opened once for all tests, on one event loop, as for the other servers.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from satchel.domain.state import Clock
from satchel.store import Store
from satchel.stores.redis import RedisStore
from satchel.testing.clock import SettableClock
from satchel.testing.expiry import ExpirySuite
from satchel.testing.follow import FollowSuite
from satchel.testing.followed_streams import FollowedStreamSuite
from satchel.testing.interrupted_streams import InterruptedStreamSuite
from satchel.testing.isolation import IsolationSuite
from satchel.testing.leases import LeaseSuite
from satchel.testing.lifecycle import LifecycleSuite
from satchel.testing.memory import MemorySuite
from satchel.testing.messages import LabelSuite, LimitSuite
from satchel.testing.races import RaceSuite
from satchel.testing.stage import Stage
from satchel.testing.steps import StepSuite
from satchel.testing.store_loading import StoreLoadingSuite
from satchel.testing.store_reading import StoreReadingSuite
from satchel.testing.store_writing import StoreWritingSuite
from satchel.testing.streams import StreamLimitSuite, StreamSuite
from satchel.testing.suite import StoreSuite
from satchel.testing.suites import SUITES, bound_to
from satchel.testing.versions import VersionSuite
from tests.servers.redis import emptied_database

pytestmark = pytest.mark.asyncio(loop_scope="module")


class Times:
    """The clock of the test that is running."""

    of_test = SettableClock()

    def __call__(self) -> Clock:
        return self.of_test()


class Stores(list[RedisStore]):
    times = Times()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stores() -> AsyncIterator[Stores]:
    times = Times()
    made = Stores(RedisStore(emptied_database("conformance", once_for=None), clock=times) for _ in range(2))
    made.times = times
    for store in made:
        await store.open()
    yield made
    for store in made:
        await store.close()


class RedisStores(StoreSuite):
    def make_store(self, clock: SettableClock, folder: Path) -> Store:
        return RedisStore(emptied_database("conformance", once_for=folder), clock=clock)

    @pytest_asyncio.fixture(loop_scope="module")
    async def stage(  # type: ignore[override]  # a fixture: pytest gives what it names
        self, stores: Stores, clock: SettableClock, tmp_path: Path
    ) -> AsyncIterator[Stage]:
        emptied_database("conformance", once_for=tmp_path)
        stores.times.of_test = clock
        made = Stage(stores[0], clock, limits=self.limits)
        yield made
        await made.opened.committer.close()

    @pytest_asyncio.fixture(loop_scope="module")
    async def second(  # type: ignore[override]  # a fixture: pytest gives what it names
        self, stage: Stage, stores: Stores
    ) -> AsyncIterator[Stage]:
        made = Stage(stores[1], stage.clock, limits=self.limits)
        yield made
        await made.opened.committer.close()


# What a store can do wrong by itself belongs to every run; the rest is decided above it, and to be run on Redis now and then.
EVERY_RUN: tuple[type[StoreSuite], ...] = (
    ExpirySuite,
    FollowSuite,
    FollowedStreamSuite,
    InterruptedStreamSuite,
    IsolationSuite,
    LabelSuite,
    LeaseSuite,
    LifecycleSuite,
    LimitSuite,
    MemorySuite,
    RaceSuite,
    StepSuite,
    StoreLoadingSuite,
    StoreReadingSuite,
    StoreWritingSuite,
    StreamLimitSuite,
    StreamSuite,
    VersionSuite,
)

globals().update(bound_to(RedisStores, EVERY_RUN))
globals().update(
    {
        name: pytest.mark.full(suite)
        for name, suite in bound_to(RedisStores, [one for one in SUITES if one not in EVERY_RUN]).items()
    }
)
