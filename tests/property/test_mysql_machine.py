"""The MySQL store against the plain model: two stores on one database, as two processes would open it."""

from __future__ import annotations

import pytest
from hypothesis.stateful import run_state_machine_as_test

from satchel.store import Store
from satchel.stores.mysql import MysqlStore
from satchel.testing.clock import SettableClock
from tests.property.machine import Machine, patient, settings_for
from tests.servers.mysql import emptied_database


class MysqlMachine(Machine):
    def make_stores(self, clock: SettableClock) -> tuple[Store, Store]:
        url = patient(emptied_database("machine", once_for=self))
        return MysqlStore(url, clock=clock), MysqlStore(url, clock=clock)


@pytest.mark.timeout(600)
def test_the_mysql_store_agrees_with_the_model() -> None:
    run_state_machine_as_test(MysqlMachine, settings=settings_for(30, 15))


@pytest.mark.full
@pytest.mark.timeout(3_600)
def test_the_mysql_store_agrees_with_the_model_over_many_more_interleavings() -> None:
    run_state_machine_as_test(MysqlMachine, settings=settings_for(300, 60))
