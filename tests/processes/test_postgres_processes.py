"""Several processes on one PostgreSQL database, and a server that is killed under them."""

from __future__ import annotations

import asyncio

import asyncpg
import pytest

from satchel.servers import PostgresServer
from tests.processes.on_a_server import OnAServer
from tests.servers.postgres import new_database, server

pytestmark = pytest.mark.slow


class TestPostgres(OnAServer):
    def new_database(self) -> str:
        return new_database()

    def durable_server(self) -> PostgresServer:
        return PostgresServer()  # with fsync

    async def deadlocks(self, url: str) -> int:
        connection = await asyncpg.connect(url)
        try:
            await asyncio.sleep(0.6)  # the server counts now and then
            found: int = await connection.fetchval(
                "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
            )
            return found
        finally:
            await connection.close()


def test_the_servers_of_these_tests_are_private() -> None:
    assert server().url().startswith("postgresql://satchel@127.0.0.1:")
