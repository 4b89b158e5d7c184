"""The PostgreSQL server of this test process: started when the first test asks for it, stopped when the last has ended."""

from __future__ import annotations

import functools
from typing import Any

import asyncpg

from satchel.servers import PostgresServer
from tests.servers.shared import Databases, started

_started: list[PostgresServer] = []

# DELETE, because TRUNCATE makes forty new files, and a test leaves few rows.
_EMPTY = b"""
DO $$
DECLARE
    name text;
BEGIN
    FOR name IN SELECT tablename FROM pg_tables WHERE schemaname = 'public' AND tablename <> 'schema_version' LOOP
        EXECUTE 'DELETE FROM ' || quote_ident(name);
    END LOOP;
END
$$;
\\echo done
"""


@functools.cache
def server() -> PostgresServer:
    made = PostgresServer(settings={"fsync": "off"})  # whoever tests durability has a server of its own
    started(made, "postgresql")
    _started.append(made)
    return made


_databases = Databases(server, _EMPTY)
new_database = _databases.new
emptied_database = _databases.emptied


async def ask(url: str, statement: str) -> Any:
    """The first value of its answer."""
    connection = await asyncpg.connect(url)
    try:
        return await connection.fetchval(statement)
    finally:
        await connection.close()


def stop_all() -> None:
    _databases.close()
    while _started:
        _started.pop().stop()
