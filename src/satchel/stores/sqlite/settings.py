"""What is kept beside all sessions, by name."""

from __future__ import annotations

import sqlite3

from satchel.errors import OutcomeUnknown
from satchel.store import Setting
from satchel.stores.sqlite.connection import UNBINDABLE, begin, roll_back, translated, unbindable
from satchel.stores.sqlite.queries import SQL
from satchel.stores.sqlite.writer import CommitFailed, Writer


def read_setting(connection: sqlite3.Connection, name: str) -> Setting | None:
    found = connection.execute(SQL["setting"], (name,)).fetchone()
    return None if found is None else Setting(found[0], found[1])


def write_setting(writer: Writer, name: str, base: int | None, value: bytes) -> Setting | None:
    """If it is at revision ``base``; what is kept then."""
    connection = writer.connection
    with translated(), writer.turn() as deadline:
        begin(connection, deadline)
        try:
            if base is None:
                connection.execute(SQL["insert_setting"], (name, value))
            else:
                connection.execute(SQL["update_setting"], (name, value, base))
            kept = read_setting(connection, name)
            writer.commit_open()
        except CommitFailed as failed:
            raise OutcomeUnknown("SQLite failed at the COMMIT") from failed
        except UNBINDABLE as error:
            roll_back(connection)
            raise unbindable(error) from error
        except BaseException:
            roll_back(connection)
            raise
        return kept
