"""The MySQL store keeps every promise of the conformance suite. A second store is another one on the same database. With every
commit run those suites in which the store decides; `make test-full` runs all.

Both are opened once for all tests, on one event loop: a new connection costs the server more than a test does.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from satchel.domain.state import Clock
from satchel.store import Store
from satchel.stores.mysql import MysqlStore
from satchel.testing.clock import SettableClock
from satchel.testing.expiry import ExpirySuite
from satchel.testing.follow import FollowSuite
from satchel.testing.isolation import IsolationSuite
from satchel.testing.leases import LeaseSuite
from satchel.testing.listing import ListingSuite
from satchel.testing.memory import MemorySuite
from satchel.testing.messages import LimitSuite
from satchel.testing.races import RaceSuite
from satchel.testing.stage import Stage
from satchel.testing.steps import StepSuite
from satchel.testing.store_loading import StoreLoadingSuite
from satchel.testing.store_reading import StoreReadingSuite
from satchel.testing.store_writing import StoreWritingSuite
from satchel.testing.suite import StoreSuite
from satchel.testing.suites import SUITES, bound_to
from satchel.testing.versions import VersionSuite
from tests.servers.mysql import emptied_database

pytestmark = pytest.mark.asyncio(loop_scope="module")


class Times:
    """The clock of the test that is running."""

    of_test = SettableClock()

    def __call__(self) -> Clock:
        return self.of_test()


class Stores(list[MysqlStore]):
    times = Times()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stores() -> AsyncIterator[Stores]:
    times = Times()
    made = Stores(MysqlStore(emptied_database("conformance", once_for=None), clock=times) for _ in range(2))
    made.times = times
    for store in made:
        await store.open()
    yield made
    for store in made:
        await store.close()


class MysqlStores(StoreSuite):
    def make_store(self, clock: SettableClock, folder: Path) -> Store:
        return MysqlStore(emptied_database("conformance", once_for=folder), clock=clock)

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


WITH_EVERY_COMMIT = (
    StoreWritingSuite,
    StoreLoadingSuite,
    StoreReadingSuite,
    RaceSuite,
    LeaseSuite,
    VersionSuite,
    ExpirySuite,
    FollowSuite,
    ListingSuite,
    LimitSuite,
    IsolationSuite,
    MemorySuite,
    StepSuite,
)

for suite in SUITES:
    for name, made in bound_to(MysqlStores, (suite,)).items():
        globals()[name] = made if suite in WITH_EVERY_COMMIT else pytest.mark.full(made)
