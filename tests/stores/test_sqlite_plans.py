"""Which index each hot statement takes. SQLite chooses by itself where it is not told, and it does choose wrongly."""

from __future__ import annotations

import asyncio
import re
import sqlite3
from pathlib import Path

import pytest

from satchel.stores.sqlite import SqliteStore
from satchel.stores.sqlite.queries import SQL


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "agent.db"


def new_database(path: Path) -> sqlite3.Connection:
    async def make() -> None:
        store = SqliteStore(path)
        await store.open()
        await store.close()

    asyncio.run(make())
    return sqlite3.connect(path)


def plan(connection: sqlite3.Connection, name: str) -> str:
    count = max((int(found) for found in re.findall(r"\?(\d+)", SQL[name])), default=0)
    rows = connection.execute("EXPLAIN QUERY PLAN " + SQL[name], [None] * count).fetchall()
    return "\n".join(row[3] for row in rows)


_KEY = "(tenant_id=? AND session_id=?)"
_RETRACTIONS = "SEARCH back USING INDEX events_retractions (tenant_id=? AND session_id=? AND refers_to=?)"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("record", [f"SEARCH sessions USING INDEX sqlite_autoindex_sessions_1 {_KEY}"]),
        ("revision", [f"SEARCH sessions USING INDEX sqlite_autoindex_sessions_1 {_KEY}"]),
        ("working_memory", [f"SEARCH working_memory USING PRIMARY KEY {_KEY}"]),
        ("metadata", [f"SEARCH metadata USING PRIMARY KEY {_KEY}"]),
        (
            "idempotency_record",
            ["SEARCH idempotency_records USING PRIMARY KEY (tenant_id=? AND session_id=? AND key_hash=?)"],
        ),
        ("run", ["SEARCH run USING PRIMARY KEY (tenant_id=? AND session_id=? AND run_id=?)"]),
        ("tool_call", ["SEARCH call USING PRIMARY KEY (tenant_id=? AND session_id=? AND seq=?)"]),
        (
            "newest_equal_call",
            [
                (
                    "SEARCH tool_calls USING COVERING INDEX tool_calls_repeated"
                    " (tenant_id=? AND session_id=? AND arguments_hash=?)"
                ),
            ],
        ),
        (
            "newest_call_of_step",
            [
                (
                    "SEARCH tool_calls USING COVERING INDEX tool_calls_steps"
                    " (tenant_id=? AND session_id=? AND run_id=? AND step=?)"
                ),
            ],
        ),
        ("event", ["SEARCH events USING PRIMARY KEY (tenant_id=? AND session_id=? AND seq=?)"]),
        (
            "retractions",
            ["SEARCH events USING INDEX events_retractions (tenant_id=? AND session_id=? AND refers_to=?)"],
        ),
        ("update_session", [f"SEARCH sessions USING INDEX sqlite_autoindex_sessions_1 {_KEY}"]),
        ("update_session_widely", [f"SEARCH sessions USING INDEX sqlite_autoindex_sessions_1 {_KEY}"]),
        ("newest_messages", [f"SEARCH events USING INDEX events_messages {_KEY}", _RETRACTIONS]),
        *(
            (
                f"messages_{order}",
                [
                    "SEARCH events USING INDEX events_messages (tenant_id=? AND session_id=? AND seq>? AND seq<?)",
                    _RETRACTIONS,
                ],
            )
            for order in ("ascending", "descending")
        ),
        *(
            (
                f"events_{order}",
                [
                    ("SEARCH events USING PRIMARY KEY (tenant_id=? AND session_id=? AND seq>? AND seq<?)"),
                    _RETRACTIONS,
                ],
            )
            for order in ("ascending", "descending")
        ),
        *(
            (
                f"tool_calls_{order}",
                ["SEARCH call USING PRIMARY KEY (tenant_id=? AND session_id=? AND seq>? AND seq<?)"],
            )
            for order in ("ascending", "descending")
        ),
        *(
            (
                f"equal_calls_{order}",
                [
                    (
                        "SEARCH call USING INDEX tool_calls_repeated"
                        " (tenant_id=? AND session_id=? AND arguments_hash=? AND seq>? AND seq<?)"
                    ),
                ],
            )
            for order in ("ascending", "descending")
        ),
        *(
            (
                f"runs_{order}",
                [
                    "SEARCH run USING INDEX runs_numbered (tenant_id=? AND session_id=? AND number>? AND number<?)",
                    "SEARCH said USING PRIMARY KEY (tenant_id=? AND session_id=? AND seq=?)",
                ],
            )
            for order in ("ascending", "descending")
        ),
        (
            "sessions_of_user",
            [
                (
                    "SEARCH sessions USING COVERING INDEX sessions_listed"
                    " (tenant_id=? AND user_id=? AND updated_at>? AND updated_at<?)"
                ),
                f"SEARCH one USING INDEX sqlite_autoindex_sessions_1 {_KEY}",
            ],
        ),
        ("sessions_of_tenant", ["SEARCH sessions USING COVERING INDEX sessions_listed (tenant_id=?)"]),
        (
            "ready_for_agent",
            ["SEARCH sessions USING COVERING INDEX sessions_ready (ready_agent=? AND (tenant_id,session_id)>(?,?))"],
        ),
        ("ready", ["SEARCH sessions USING COVERING INDEX sessions_ready (ready_agent>?)"]),
        ("refs", ["SEARCH sessions USING COVERING INDEX sqlite_autoindex_sessions_1 ((tenant_id,session_id)>(?,?))"]),
        (
            "swept",
            [
                "SEARCH sessions USING COVERING INDEX sessions_swept (sweep_at<?)",
                "SEARCH sessions USING COVERING INDEX sessions_leased (lease_until>?)",
            ],
        ),
        ("newest", [f"SEARCH events USING PRIMARY KEY {_KEY}"]),
    ],
)
def test_every_hot_statement_takes_its_index(path: Path, name: str, expected: list[str]) -> None:
    connection = new_database(path)
    try:
        found = plan(connection, name)
    finally:
        connection.close()
    for step in expected:
        assert step in found
    assert "SCAN" not in found.replace("SCAN CONSTANT ROW", "").replace("SCAN page", "").replace("SCAN (subquery", "")
    if not name.startswith(("sessions_of", "ready", "swept")):
        assert "TEMP B-TREE" not in found


def test_a_list_is_read_in_the_order_of_its_index(path: Path) -> None:
    connection = new_database(path)
    found = plan(connection, "sessions_of_user")
    connection.close()
    inner = found[: found.index("SCAN")]
    assert "TEMP B-TREE" not in inner  # the page's own rows are put in order once more after the join


def test_an_append_touches_no_index_of_time_but_updated_at(path: Path) -> None:
    connection = new_database(path)
    names = dict(connection.execute("SELECT rootpage, name FROM sqlite_schema"))
    program = connection.execute("EXPLAIN " + SQL["update_session"], [None] * 6).fetchall()
    connection.close()
    assert {names[row[3]] for row in program if row[1] == "OpenWrite"} <= {
        "sessions",
        "sessions_listed",
        "sqlite_autoindex_sessions_1",
    }
