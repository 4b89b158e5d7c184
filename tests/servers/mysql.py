"""The MariaDB server of this test process: started when the first test asks for it, stopped when the last has ended."""

from __future__ import annotations

import functools

from satchel.servers import MariadbServer
from tests.servers.shared import Databases, started

_started: list[MariadbServer] = []

# DELETE, because TRUNCATE makes new files, and a test leaves few rows.
_TABLES = (
    "sessions",
    "working_memory",
    "metadata",
    "events",
    "retractions",
    "tool_calls",
    "runs",
    "partials",
    "idempotency_records",
    "settings",
)
_EMPTY = (
    "".join(
        f"DELETE FROM {table};\n"  # noqa: S608  # fixed names
        for table in _TABLES
    ).encode()
    + b"SELECT 'done';\n"
)
RELAXED = "?durability=relaxed"


@functools.cache
def server() -> MariadbServer:
    """Whoever tests durability has a server of its own."""
    made = MariadbServer(
        settings={
            "innodb_flush_log_at_trx_commit": "0",
            "innodb_doublewrite": "OFF",
            "max_allowed_packet": "16M",
        }
    )
    started(made, "mariadb-server")
    _started.append(made)
    return made


_databases = Databases(server, _EMPTY)


def new_database() -> str:
    return _databases.new() + RELAXED


def emptied_database(name: str, *, once_for: object) -> str:
    return _databases.emptied(name, once_for=once_for) + RELAXED


def stop_all() -> None:
    _databases.close()
    while _started:
        _started.pop().stop()
