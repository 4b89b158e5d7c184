"""A cluster of six servers keeps every promise of the conformance suite. A second store is another one on the same cluster."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from satchel.domain.state import Clock
from satchel.servers import RedisCluster
from satchel.store import Store
from satchel.stores.redis import RedisStore
from satchel.testing.clock import SettableClock
from satchel.testing.stage import Stage
from satchel.testing.suite import StoreSuite
from satchel.testing.suites import bound_to
from tests.servers.shared import started

pytestmark = [pytest.mark.full, pytest.mark.asyncio(loop_scope="module"), pytest.mark.xdist_group("redis-cluster")]


class Times:
    """The clock of the test that is running."""

    of_test = SettableClock()

    def __call__(self) -> Clock:
        return self.of_test()


class Stores(list[RedisStore]):
    times: Times
    cluster: RedisCluster
    emptied_for: object = None

    def empty(self, once_for: object) -> None:
        if once_for != self.emptied_for:
            for master in self.cluster.masters():
                master.ask("FLUSHALL", "SYNC")
        self.emptied_for = once_for


@pytest.fixture(scope="module")
def cluster() -> Iterator[RedisCluster]:
    made = RedisCluster()
    started(made, "redis-server")
    yield made
    made.stop()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stores(cluster: RedisCluster) -> AsyncIterator[Stores]:
    times = Times()
    made = Stores(RedisStore(cluster.url(), clock=times) for _ in range(2))
    made.times, made.cluster = times, cluster
    for store in made:
        await store.open()
    yield made
    for store in made:
        await store.close()


class RedisClusterStores(StoreSuite):
    @pytest.fixture(autouse=True)
    def _of_this_cluster(self, stores: Stores, tmp_path: Path) -> None:
        self.stores = stores
        stores.empty(tmp_path)

    def make_store(self, clock: SettableClock, folder: Path) -> Store:
        return RedisStore(self.stores.cluster.url(), clock=clock)

    @pytest_asyncio.fixture(loop_scope="module")
    async def stage(  # type: ignore[override]  # a fixture: pytest gives what it names
        self, stores: Stores, clock: SettableClock, tmp_path: Path
    ) -> AsyncIterator[Stage]:
        stores.empty(tmp_path)
        stores.times.of_test = clock
        for store in stores:
            store._live().nothing_ready.clear()  # noqa: SLF001  # what the test before this one had found
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


globals().update(bound_to(RedisClusterStores))
