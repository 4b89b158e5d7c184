"""The PostgreSQL store keeps every promise of the conformance suite. A second store is another one on the same database.

Both are opened once for all tests, on one event loop: a new connection costs the server more than a test does.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from satchel.domain.state import Clock
from satchel.store import Store
from satchel.stores.postgres import PostgresStore
from satchel.testing.clock import SettableClock
from satchel.testing.stage import Stage
from satchel.testing.suite import StoreSuite
from satchel.testing.suites import bound_to
from tests.servers.postgres import emptied_database

pytestmark = pytest.mark.asyncio(loop_scope="module")


class Times:
    """The clock of the test that is running."""

    of_test = SettableClock()

    def __call__(self) -> Clock:
        return self.of_test()


class Stores(list[PostgresStore]):
    times = Times()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stores() -> AsyncIterator[Stores]:
    times = Times()
    made = Stores(PostgresStore(emptied_database("conformance", once_for=None), clock=times) for _ in range(2))
    made.times = times
    for store in made:
        await store.open()
    yield made
    for store in made:
        await store.close()


class PostgresStores(StoreSuite):
    def make_store(self, clock: SettableClock, folder: Path) -> Store:
        return PostgresStore(emptied_database("conformance", once_for=folder), clock=clock)

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


globals().update(bound_to(PostgresStores))
