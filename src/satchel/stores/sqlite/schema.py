"""Brings a file's schema up to date. Each step is one transaction, so none is ever half applied."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

from satchel.errors import SchemaMismatch, StoreBusy
from satchel.store import Schema
from satchel.stores.migrations import load_migrations, schema_of_steps
from satchel.stores.sqlite.connection import begin, connect, is_busy, roll_back, translated

PATIENCE = 10.0  # several processes may open a new file at once, and each step waits for the one before


MIGRATIONS = load_migrations(__package__)
KNOWN = max(MIGRATIONS)

_VERSIONS = """\
CREATE TABLE IF NOT EXISTS schema_version (
    version    INTEGER NOT NULL PRIMARY KEY,
    applied_at INTEGER NOT NULL
) STRICT"""


def prepare(connection: sqlite3.Connection) -> None:
    """Raises SchemaMismatch (nothing was changed), StoreBusy."""
    deadline = time.monotonic() + PATIENCE
    while True:  # before the file has its write-ahead log, a writer keeps readers out too
        try:
            _check(schema_of(connection))
            if _uses_wal(connection):
                break
        except sqlite3.OperationalError as error:
            if not is_busy(error):
                raise
        if time.monotonic() >= deadline:
            raise StoreBusy("the database could not be switched to its write-ahead log; nothing was stored")
        time.sleep(0.005)
    while (found := schema_of(connection)) < KNOWN:
        begin(connection, deadline)
        try:
            if schema_of(connection) == found:  # else another process was first
                _apply(connection, found + 1)
            connection.execute("COMMIT")
        except BaseException:
            roll_back(connection)
            raise
    _check(found)


def schema_of(connection: sqlite3.Connection) -> int:
    """0 for a new file."""
    known = connection.execute("SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'schema_version'")
    if known.fetchone() is None:
        return 0
    (version,) = connection.execute("SELECT coalesce(max(version), 0) FROM schema_version").fetchone()
    return int(version)


def look(path: Path) -> Schema:
    """What the file has, and what is to come. Nothing is changed, nor made."""
    applied: dict[int, int] = {}
    if path.exists():
        with translated():
            connection = connect(path, read_only=True)
            try:
                if schema_of(connection):
                    applied = dict(connection.execute("SELECT version, applied_at FROM schema_version").fetchall())
            finally:
                connection.close()
    return schema_of_steps(MIGRATIONS, applied, pasteable=_pasteable)


def _pasteable(version: int, script: str) -> str:
    return (
        f"BEGIN IMMEDIATE;\n{_VERSIONS};\n\n{script.rstrip()}\n\n"
        "INSERT INTO schema_version (version, applied_at)\n"
        f"VALUES ({version}, CAST(strftime('%s', 'now') AS INTEGER) * 1000000);\nCOMMIT;\n"
    )


# Columns of tables, and the indexes that a step makes. Comments and spaces of a step that was pasted do not matter.
_PARTS = """\
SELECT s.name, c.name
FROM sqlite_schema AS s
JOIN pragma_table_xinfo(s.name) AS c
WHERE s.type = 'table'
UNION ALL
SELECT name, NULL
FROM sqlite_schema
WHERE type = 'index' AND sql IS NOT NULL"""


def missing_parts(connection: sqlite3.Connection) -> list[str]:
    """What the steps make and this file lacks, though it says that it has them all."""
    made = sqlite3.connect(":memory:", isolation_level=None)
    try:
        made.text_factory = connection.text_factory
        for version in MIGRATIONS:
            _apply(made, version)
        wanted, found = (set(each.execute(_PARTS).fetchall()) for each in (made, connection))
    finally:
        made.close()
    return sorted(b".".join(part for part in parts if part is not None).decode() for parts in wanted - found)


def _check(found: int) -> None:
    if found > KNOWN:
        raise SchemaMismatch(found=found, known=KNOWN)


def _apply(connection: sqlite3.Connection, version: int) -> None:
    connection.execute(_VERSIONS)
    for statement in statements(MIGRATIONS[version]):
        connection.execute(statement)
    connection.execute(
        "INSERT INTO schema_version (version, applied_at) VALUES (?1, ?2)", (version, time.time_ns() // 1000)
    )


def statements(script: str) -> Iterator[str]:
    """One by one (``executescript`` would commit before the first), and without comments: the file keeps the text."""
    pending = ""
    for line in script.splitlines(keepends=True):
        if line.startswith("--"):
            continue
        pending += line
        if line.rstrip().endswith(";") and sqlite3.complete_statement(pending):
            yield pending.strip()
            pending = ""


def _uses_wal(connection: sqlite3.Connection) -> bool:
    """Switches to it if nobody is in the way: the switch takes a lock that no busy timeout waits for."""
    (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
    return bool(mode == b"wal")
