"""The conformance suite through the client: each store is served, and whoever comes to it comes over HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from satchel import Limits, Principal, RunManager, SessionManager
from satchel.store import Store
from satchel.testing.clock import SettableClock
from satchel.testing.stage import ADA, ADAS_AGENT, Stage
from satchel.testing.suite import StoreSuite
from tests.client.served import Connections, served


class ServedStage(Stage):
    """Its managers are those of a client; the store, its log and the sweeper stay at hand."""

    connections: Connections
    draws_keys = True

    def sessions(self, who: Principal = ADA) -> SessionManager:
        return self.connections[who].sessions

    def runs(self, who: Principal = ADAS_AGENT) -> RunManager:
        return self.connections[who].runs


@asynccontextmanager
async def on_stage(store: Store, clock: SettableClock, limits: Limits) -> AsyncIterator[ServedStage]:
    made = ServedStage(store, clock, limits=limits)
    await made.opened.open()
    async with served(made.opened) as url:
        made.connections = Connections(url, limits=limits)
        try:
            yield made
        finally:
            await made.connections.close()


class ServedStores(StoreSuite):
    @pytest.fixture
    async def stage(self, clock: SettableClock, tmp_path: Path) -> AsyncIterator[Stage]:
        async with on_stage(self.make_store(clock, tmp_path), clock, self.limits) as made:
            yield made
            await made.opened.close()

    @pytest.fixture
    async def second(self, stage: Stage, tmp_path: Path) -> AsyncIterator[Stage]:
        store = self.make_second_store(stage.store, stage.clock, tmp_path)
        async with on_stage(store, stage.clock, self.limits) as made:
            yield made
            await made.opened.committer.close()
            if store is not stage.store:
                await store.close()
