"""Connections to the file, and what its errors mean."""

from __future__ import annotations

import os
import sqlite3
import time
from pathlib import Path
from urllib.parse import quote

from satchel.errors import InvalidInput, SatchelError, StoreBusy, StoreCorrupt, StoreUnavailable

PATIENCE = 5.0  # seconds that a transaction waits for its turn
CACHE_KIB = 16 * 1024  # a batch fits, so that nothing reaches the files before its COMMIT
CHECKPOINT_PAGES = (
    1000  # a longer log is extended for longer, and a commit that extends it waits for the file system too
)
JOURNAL_LIMIT = 16 * 1024 * 1024
STATEMENTS = 128

# What a value raises that no statement can take: a number beyond 64 bits, half a character, no text at all.
UNBINDABLE = (
    sqlite3.ProgrammingError,
    sqlite3.InterfaceError,
    sqlite3.DataError,
    OverflowError,
    UnicodeEncodeError,
)

_BUSY = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})
_NO_RIGHT = frozenset({sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH})


def connect(path: Path, *, read_only: bool = False) -> sqlite3.Connection:
    """In autocommit mode; texts come back as the bytes they are. Never creates the file."""
    connection = sqlite3.connect(
        f"file:{quote(str(path))}?mode=rw",
        uri=True,
        timeout=PATIENCE,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=STATEMENTS,
    )
    try:
        connection.text_factory = bytes
        connection.execute("PRAGMA foreign_keys = OFF")
        if read_only:
            connection.execute("PRAGMA query_only = ON")
        else:
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("PRAGMA secure_delete = ON")
            connection.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
            connection.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}")
            connection.execute(f"PRAGMA journal_size_limit = {JOURNAL_LIMIT}")
    except BaseException:
        connection.close()
        raise
    return connection


def create_file(path: Path) -> None:
    """For its owner's eyes only; a file that is there is not touched (to close it would drop SQLite's locks on it).

    Raises InvalidInput, StoreUnavailable.
    """
    if not path.parent.is_dir():
        raise InvalidInput(f"there is no folder {path.parent}", field="path")
    if path.is_dir():
        raise InvalidInput(f"{path} is a folder", field="path")
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        pass
    except OSError as error:
        raise StoreUnavailable(f"the database file cannot be created: {error.strerror}") from error


def begin(connection: sqlite3.Connection, deadline: float) -> None:
    """A write transaction. Raises StoreBusy when somebody else writes until ``deadline`` (monotonic)."""
    while True:
        try:
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as error:
            if not is_busy(error):
                raise
            if time.monotonic() >= deadline:
                raise StoreBusy("another process kept the database; nothing was stored") from error
            time.sleep(0.001)
        else:
            return


def roll_back(connection: sqlite3.Connection) -> None:
    """Whatever happened before, no transaction is open after this."""
    if connection.in_transaction:
        connection.execute("ROLLBACK")


class _Edge:
    """A class: a generator costs several times as much, and each transaction passes here."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if isinstance(error, sqlite3.Error):
            raise meaning_of(error) from error


_EDGE = _Edge()


def translated() -> _Edge:
    """The edge at which the driver's errors end."""
    return _EDGE


def unbindable(error: Exception) -> InvalidInput:
    """What the caller hears who asked for such a value: nothing can be stored under it."""
    return InvalidInput(f"holds a value that this store cannot look for ({type(error).__name__})", field="request")


def meaning_of(error: sqlite3.Error) -> SatchelError:
    code = _primary_code(error)
    if code in _BUSY:
        return StoreBusy("another process kept the database; nothing was stored")
    if code == sqlite3.SQLITE_NOTADB:
        mend = "name another file in the store's address, or move this one away"
        return StoreCorrupt("the database file", trouble="is no SQLite database", mend=mend)
    if code == sqlite3.SQLITE_CORRUPT:
        mend = "take the last good copy; or what is left of this file: sqlite3 FILE .recover | sqlite3 NEW_FILE"
        return StoreCorrupt("the database file", trouble="is damaged", mend=mend)
    if code == sqlite3.SQLITE_FULL:
        return StoreUnavailable("the disk is full")
    name = getattr(error, "sqlite_errorname", None) or type(error).__name__
    if code in _NO_RIGHT:
        mend = "see that this account may read and write the file and its folder: ls -ld FOLDER FILE"
        return StoreUnavailable(f"the database file cannot be opened, or not be written ({name})", mend=mend)
    return StoreUnavailable(f"SQLite says {name}")


def named(failed: StoreCorrupt | StoreUnavailable, path: Path) -> SatchelError:
    """The same, of the file that could not be opened."""
    if isinstance(failed, StoreCorrupt):
        return StoreCorrupt(f"the database file {path}", trouble=failed.trouble, mend=failed.mend)
    return StoreUnavailable(f"{failed.reason}: {path}", mend=failed.mend)


def is_busy(error: sqlite3.Error) -> bool:
    return _primary_code(error) in _BUSY


def is_full(error: sqlite3.Error) -> bool:
    return _primary_code(error) == sqlite3.SQLITE_FULL


def _primary_code(error: sqlite3.Error) -> int:
    code: int = getattr(error, "sqlite_errorcode", 0)
    return code & 0xFF
