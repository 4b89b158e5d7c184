"""What every class of the conformance suite has in common: how its store is made."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from satchel.domain.limits import DEFAULT_LIMITS, Limits
from satchel.store import Store
from satchel.testing.clock import SettableClock
from satchel.testing.stage import Stage


class StoreFactory:
    """How a store is made. Put a subclass before a suite: ``class TestRuns(MyStores, RunSuite): ...``"""

    def make_store(self, clock: SettableClock, folder: Path) -> Store:
        """A new store, not open yet, whose time is ``clock``; it may keep its data in ``folder``."""
        raise NotImplementedError

    def make_second_store(self, first: Store, clock: SettableClock, folder: Path) -> Store:
        """A store on the same data, as another process would open it. A store of one process is shared as it is."""
        assert not first.capabilities.shared
        return first


class StoreSuite(StoreFactory):
    """Fixtures: ``clock``, ``stage`` (the store, open), ``store`` (it by itself), ``second`` (another open door to the same data)."""

    limits: Limits = DEFAULT_LIMITS

    @pytest.fixture
    def clock(self) -> SettableClock:
        return SettableClock()

    @pytest.fixture
    async def stage(self, clock: SettableClock, tmp_path: Path) -> AsyncIterator[Stage]:
        made = Stage(self.make_store(clock, tmp_path), clock, limits=self.limits)
        async with made.opened:
            yield made

    @pytest.fixture
    def store(self, stage: Stage) -> Store:
        return stage.store

    @pytest.fixture
    async def second(self, stage: Stage, tmp_path: Path) -> AsyncIterator[Stage]:
        """A second committer on the data of ``stage``."""
        made = Stage(self.make_second_store(stage.store, stage.clock, tmp_path), stage.clock, limits=self.limits)
        await made.opened.open()
        yield made
        await made.opened.committer.close()
        if made.store is not stage.store:
            await made.store.close()
