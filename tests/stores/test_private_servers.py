"""`satchel.servers`: what all private servers do alike."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import asyncpg
import pytest

import satchel
from satchel.servers import RedisServer
from tests.servers import mysql, postgres, redis

SERVERS: dict[str, Callable[[], Any]] = {"postgres": postgres.server, "mysql": mysql.server, "redis": redis.server}


@pytest.mark.parametrize("kind", SERVERS)
async def test_a_database_is_made_once_and_one_is_there_from_the_start(kind: str) -> None:
    server = SERVERS[kind]()
    assert server.create_database("satchel") == server.url()
    option = "?durability=relaxed" if kind == "mysql" else ""  # the server for tests does not wait for its disk
    url = server.create_database('it\'s "mine"')
    assert url != server.url()
    async with satchel.open(url.replace(" ", "%20") + option) as store:
        await store.store.setting("a", value=b"1")
    assert server.create_database('it\'s "mine"') == url
    async with satchel.open(url.replace(" ", "%20") + option) as store:
        assert await store.store.setting("a") is not None
    server.drop_database('it\'s "mine"')
    server.drop_database('it\'s "mine"')
    assert server.create_database('it\'s "mine"') == url
    async with satchel.open(url.replace(" ", "%20") + option) as store:
        assert await store.store.setting("a") is None
    server.drop_database('it\'s "mine"')


async def test_a_postgres_server_keeps_its_shared_memory_in_its_own_folder() -> None:
    """Which is removed, also when the server was killed; what lies in /dev/shm would stay."""
    connection = await asyncpg.connect(postgres.server().url())
    assert await connection.fetchval("SHOW dynamic_shared_memory_type") == "mmap"
    await connection.close()


def test_a_redis_server_says_that_it_has_no_database_left() -> None:
    server = RedisServer(settings={"databases": "2"})
    server.create_database("one")
    with pytest.raises(RuntimeError, match="no database is left for 'two': the server has 2"):
        server.create_database("two")
