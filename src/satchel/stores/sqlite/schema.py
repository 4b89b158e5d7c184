"""Brings a file's schema up to date. Each step is one transaction, so none is ever half applied."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from importlib.resources import files

from satchel.errors import SchemaMismatch, StoreBusy
from satchel.stores.sqlite.connection import begin, is_busy, roll_back

PATIENCE = 10.0  # several processes may open a new file at once, and each step waits for the one before


def _migrations() -> dict[int, str]:
    folder = files(__package__).joinpath("migrations")
    return {
        int(entry.name[:4]): entry.read_text("utf-8")
        for entry in sorted(folder.iterdir(), key=lambda entry: entry.name)
        if entry.name.endswith(".sql")
    }


MIGRATIONS = _migrations()
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
