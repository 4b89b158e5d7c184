"""What is left of a deleted session goes: first its rows, in steps, then every trace of them in the files.

``secure_delete`` zeroes what is deleted, but not the copies that SQLite leaves behind when it moves rows inside and
between pages: 1 of 10 erased sessions of mixed row sizes could still be found in the file. Only VACUUM writes a file that
holds nothing but what lives. It costs time by the size of the file, so one serves all erasures whose rows are gone by then.
"""

from __future__ import annotations

import sqlite3

from satchel.domain.ids import SessionRef
from satchel.stores.sqlite.applying import before, new_mark
from satchel.stores.sqlite.connection import begin, roll_back, translated
from satchel.stores.sqlite.queries import SQL
from satchel.stores.sqlite.writer import Writer

_STATEMENTS = tuple(SQL[name] for name in SQL if name.startswith("erase_"))

Marks = dict[tuple[bytes, bytes], int]


def erase_rows(writer: Writer, ref: SessionRef, limit: int) -> int:
    """One step, one commit; 0 when there are no rows, or no tombstone."""
    connection = writer.connection
    with translated(), writer.turn() as deadline:
        begin(connection, deadline)
        try:
            if before(connection, ref).status != "DELETED":
                connection.execute("ROLLBACK")
                return 0
            erased = 0
            for statement in _STATEMENTS:
                erased += connection.execute(statement, (*ref, max(0, limit - erased))).rowcount
            if erased:
                connection.execute(SQL["mark_erasure"], (*ref, new_mark()))
            connection.execute("COMMIT")
        except BaseException:
            roll_back(connection)
            raise
        return erased


def marks(connection: sqlite3.Connection) -> Marks:
    """The tombstones whose text may still be in the files."""
    return {(row[0], row[1]): row[2] for row in connection.execute(SQL["erasures"]).fetchall()}


def rewrite(writer: Writer) -> Marks:
    """Write the file anew, without what is erased; the erasures that this covers once the log is emptied too."""
    with translated(), writer.turn():
        covered = marks(writer.connection)
        if covered:
            writer.connection.execute("VACUUM")
        return covered


def empty_log(writer: Writer, covered: Marks) -> bool:
    """The old pages leave the log, and with them the last traces; False when a reader is in the way."""
    connection = writer.connection
    with translated(), writer.turn() as deadline:
        if not writer.checkpoint():
            return False
        begin(connection, deadline)
        try:
            connection.executemany(
                SQL["end_erasure"], [(key[0].decode(), key[1].decode(), mark) for key, mark in covered.items()]
            )
            connection.execute("COMMIT")
        except BaseException:
            roll_back(connection)
            raise
        return True
