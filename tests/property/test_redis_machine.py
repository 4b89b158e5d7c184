"""The Redis store against the plain model: two stores on one database, as two processes would open it."""

from __future__ import annotations

import pytest
from hypothesis.stateful import run_state_machine_as_test

from satchel.store import Store
from satchel.stores.redis import RedisStore
from satchel.testing.clock import SettableClock
from tests.property.machine import Machine, patient, settings_for
from tests.servers.redis import emptied_database


class RedisMachine(Machine):
    def make_stores(self, clock: SettableClock) -> tuple[Store, Store]:
        url = patient(emptied_database("machine", once_for=self))
        return RedisStore(url, clock=clock), RedisStore(url, clock=clock)


def test_the_redis_store_agrees_with_the_model() -> None:
    run_state_machine_as_test(RedisMachine, settings=settings_for(30, 10))


@pytest.mark.full
@pytest.mark.timeout(3_600)
def test_the_redis_store_agrees_with_the_model_over_many_more_interleavings() -> None:
    run_state_machine_as_test(RedisMachine, settings=settings_for(300, 60))
