"""Brings a database's schema up to date. Each step is one transaction under one lock, so ten servers may start at once and
none is ever half applied. Steps go forward only."""

from __future__ import annotations

import time

from satchel.errors import InvalidInput, SchemaMismatch
from satchel.store import Schema
from satchel.stores.migrations import load_migrations, schema_of_steps
from satchel.stores.postgres.connection import Fetch, Line

LOCK = 0x5A7C4E1  # the advisory lock of who migrates; any number that nobody else takes
LOCK_PATIENCE = 60  # seconds: a step may take its time on large tables


MIGRATIONS = load_migrations(__package__)
KNOWN = max(MIGRATIONS)

_VERSIONS = """\
CREATE TABLE IF NOT EXISTS schema_version (
    version    bigint NOT NULL PRIMARY KEY,
    applied_at bigint NOT NULL
)"""


async def prepare(line: Line) -> None:
    """Raises SchemaMismatch, InvalidInput (nothing was changed), and the driver's errors."""
    encoding = (await line.fetch("SELECT current_setting('server_encoding')"))[0][0]
    if encoding != "UTF8":
        raise InvalidInput(f"the database's encoding is {encoding}; it must be UTF8", field="url")
    while (found := await schema_of(line)) < KNOWN:
        async with line.transaction():
            await line.connection.execute(f"SET LOCAL lock_timeout = '{LOCK_PATIENCE}s'")
            await line.connection.fetch("SELECT pg_advisory_xact_lock($1::bigint)", LOCK)
            # This also makes the server's process hear of tables that another made while it waited for the lock.
            await line.connection.execute(_VERSIONS)
            if await _version(line.fetch_inside) == found:  # else another server was first
                await line.connection.execute(MIGRATIONS[found + 1])
                await line.connection.execute(
                    "INSERT INTO schema_version (version, applied_at) VALUES ($1, $2)",
                    found + 1,
                    time.time_ns() // 1000,
                )
    if found > KNOWN:
        raise SchemaMismatch(found=found, known=KNOWN)


async def schema_of(line: Line) -> int:
    """0 for a new database."""
    return await _version(line.fetch)


async def _version(fetch: Fetch) -> int:
    if not (await fetch("SELECT to_regclass('schema_version') IS NOT NULL"))[0][0]:
        return 0
    return int((await fetch("SELECT coalesce(max(version), 0) FROM schema_version"))[0][0])


async def look(line: Line) -> Schema:
    """What the database has, and what is to come. Nothing is changed."""
    applied: dict[int, int] = {}
    if await schema_of(line):
        applied = dict(await line.fetch("SELECT version, applied_at FROM schema_version"))
    return schema_of_steps(MIGRATIONS, applied, pasteable=_pasteable)


def _pasteable(version: int, script: str) -> str:
    return (
        f"BEGIN;\nSELECT pg_advisory_xact_lock({LOCK});\n{_VERSIONS};\n\n{script.rstrip()}\n\n"
        "INSERT INTO schema_version (version, applied_at)\n"
        f"VALUES ({version}, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint);\nCOMMIT;\n"
    )
