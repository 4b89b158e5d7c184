"""Several processes on one MySQL database, and a server that is killed under them."""

from __future__ import annotations

import pytest

from satchel.servers import MariadbServer
from tests.processes.on_a_server import OnAServer
from tests.servers.mysql import new_database, server
from tests.stores.test_mysql import deadlocks

pytestmark = pytest.mark.slow


class TestMysql(OnAServer):
    def new_database(self) -> str:
        return new_database()

    def durable_server(self) -> MariadbServer:
        return MariadbServer()  # innodb_flush_log_at_trx_commit is 1 unless something else is said

    async def deadlocks(self, url: str) -> int:
        return await deadlocks(url)

    # What these two ask for, the conformance suite asks of two stores in one process.

    @pytest.mark.full
    async def test_two_processes_never_both_win_on_one_version(self) -> None:
        await super().test_two_processes_never_both_win_on_one_version()

    @pytest.mark.full
    async def test_a_hot_session_of_two_processes_keeps_every_write_once_and_nobody_starves(self) -> None:
        await super().test_a_hot_session_of_two_processes_keeps_every_write_once_and_nobody_starves()


def test_the_servers_of_these_tests_are_private() -> None:
    assert server().url().startswith("mysql://satchel@127.0.0.1:")
