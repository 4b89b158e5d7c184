"""The PostgreSQL store keeps every promise through a pgbouncer in transaction mode, too."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio

from satchel.stores.postgres import PostgresStore
from satchel.testing.suites import bound_to
from tests.conformance.test_postgres import PostgresStores, Stores, Times
from tests.servers.pgbouncer import PgBouncer
from tests.servers.postgres import emptied_database, server
from tests.servers.shared import started

pytestmark = [pytest.mark.full, pytest.mark.asyncio(loop_scope="module"), pytest.mark.xdist_group("pgbouncer")]


@pytest.fixture(scope="module")
def pooler() -> Iterator[PgBouncer]:
    with PgBouncer(server().port) as made:
        started(made, "pgbouncer")
        yield made


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stores(pooler: PgBouncer) -> AsyncIterator[Stores]:
    url = pooler.before(emptied_database("conformance", once_for=None))
    times = Times()
    made = Stores(PostgresStore(url, clock=times) for _ in range(2))
    made.times = times
    for store in made:
        await store.open()
    yield made
    for store in made:
        await store.close()


class PooledStores(PostgresStores):
    pass


globals().update(bound_to(PooledStores))
del globals()["TestRace"]  # it wants each of three calls to win some, which is a matter of their round trips
