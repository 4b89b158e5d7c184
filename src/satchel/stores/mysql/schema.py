"""Brings a database's schema up to date, under one lock, so that ten servers may start at once. Steps go forward only.

A server commits each statement that makes a table by itself: a step that is cut off leaves some of its tables. Its number is
written after its last statement, and each statement may be repeated, so whoever starts next completes it.
"""

from __future__ import annotations

import hashlib
import re
import time

from satchel.errors import SchemaMismatch, StoreBusy
from satchel.store import Schema
from satchel.stores.migrations import load_migrations, schema_of_steps
from satchel.stores.mysql.connection import Line
from satchel.stores.mysql.literals import literal

LOCK_PATIENCE = 60  # seconds: a step may take its time on large tables

MIGRATIONS = load_migrations(__package__)
KNOWN = max(MIGRATIONS)

_VERSIONS = b"""\
CREATE TABLE IF NOT EXISTS schema_version (
    version    BIGINT NOT NULL PRIMARY KEY,
    applied_at BIGINT NOT NULL
) ENGINE = InnoDB"""


async def prepare(line: Line, database: str) -> None:
    """Raises SchemaMismatch and StoreBusy (nothing was changed), and the driver's errors."""
    found = await schema_of(line)
    if found < KNOWN:
        name = literal(f"satchel:{hashlib.sha256(database.encode()).hexdigest()[:32]}")
        (locked,) = await line.run(b"SELECT GET_LOCK(" + name + b", %d)" % LOCK_PATIENCE)
        if locked.rows[0][0] != 1:
            raise StoreBusy("another server has been migrating the database for a minute")
        try:
            found = await _migrate(line)
        finally:
            if not line.is_closed():
                await line.run(b"DO RELEASE_LOCK(" + name + b")")
    if found > KNOWN:
        raise SchemaMismatch(found=found, known=KNOWN)


async def _migrate(line: Line) -> int:
    await line.run(_VERSIONS)
    while (found := await schema_of(line)) < KNOWN:
        for statement in statements_of(MIGRATIONS[found + 1]):
            await line.run(statement.encode())
        # Where the lock is not everybody's (each node of a cluster has its own), another may have been as quick.
        await line.run(
            b"INSERT INTO schema_version (version, applied_at) VALUES (%d, %d)"
            b" ON DUPLICATE KEY UPDATE version = version" % (found + 1, time.time_ns() // 1000)
        )
    return found


async def schema_of(line: Line) -> int:
    """0 for a new database."""
    (tables,) = await line.run(
        b"SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name = 'schema_version'"
    )
    if not tables.rows[0][0]:
        return 0
    (versions,) = await line.run(b"SELECT COALESCE(MAX(version), 0) FROM schema_version")
    return int(versions.rows[0][0])


def statements_of(script: str) -> list[str]:
    """Each ends with a semicolon at a line's end; comments have lines of their own."""
    text = "\n".join(line for line in script.splitlines() if not line.startswith("--"))
    return [part.strip() for part in re.split(r";\n", f"{text}\n") if part.strip()]


async def look(line: Line) -> Schema:
    """What the database has, and what is to come. Nothing is changed."""
    applied: dict[int, int] = {}
    if await schema_of(line):
        (found,) = await line.run(b"SELECT version, applied_at FROM schema_version")
        applied = dict(found.rows)
    return schema_of_steps(MIGRATIONS, applied, pasteable=_pasteable)


def _pasteable(version: int, script: str) -> str:
    return (
        f"{_VERSIONS.decode()};\n\n{script.rstrip()}\n\n"
        "INSERT INTO schema_version (version, applied_at)\n"
        f"VALUES ({version}, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)));\n"
    )
