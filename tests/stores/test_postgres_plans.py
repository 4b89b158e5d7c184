"""Which index each statement takes on tables that are not small, and that each names the session it is about."""

from __future__ import annotations

import asyncio
import re
import subprocess
from collections.abc import Iterator

import pytest

import satchel
from satchel.stores.postgres.queries import SQL
from tests.servers.postgres import new_database, server

FILL = """
INSERT INTO sessions
SELECT
    'acme', 'sess_' || n, 'user_' || n % 500, 'ACTIVE', false, n, n + 1000000, NULL, 1, CASE WHEN n % 50 = 0 THEN 'coding' END,
    n, CASE WHEN n % 50 = 1 THEN n END, CASE WHEN n % 50 = 1 THEN 'server' END, repeat('{}', 300)
FROM generate_series(1, 10000) AS n;
INSERT INTO events (tenant_id, session_id, seq, version, kind, at, actor, refers_to, body)
SELECT
    'acme', 'sess_' || n % 20, n / 20, n,
    (ARRAY['message', 'message', 'run_step', 'tool_call_started', 'message_retracted'])[1 + n % 5], n, 'a',
    CASE WHEN n % 5 = 4 THEN n END, repeat('x', 100)
FROM generate_series(1, 20000) AS n;
INSERT INTO tool_calls (
    tenant_id, session_id, seq, version, tool, arguments_hash, status, start_time, end_time, run_id, result_seq, result_kind,
    step
)
SELECT
    'acme', 'sess_' || n % 20, n / 20, n, 't', decode(md5((n % 50)::text), 'hex'), 'succeeded', 1, 2, 'run_' || n % 9,
    n, 'event', 'step'
FROM generate_series(1, 10000) AS n;
INSERT INTO runs (tenant_id, session_id, run_id, number, status, input_seq, record)
SELECT 'acme', 'sess_' || n % 20, 'run_' || n, n / 20, 'COMPLETED', n, '{}'
FROM generate_series(1, 10000) AS n;
INSERT INTO idempotency_records
SELECT 'acme', 'sess_' || n % 20, decode(md5(n::text), 'hex'), '\\x00', '[1,1]' FROM generate_series(1, 10000) AS n;
INSERT INTO working_memory SELECT 'acme', 'sess_' || n, '{}' FROM generate_series(1, 10000) AS n;
INSERT INTO metadata SELECT 'acme', 'sess_' || n, '{}' FROM generate_series(1, 10000) AS n;
INSERT INTO partials (tenant_id, session_id, run_id, attempt, message, "offset", body)
SELECT 'acme', 'sess_' || n % 20, 'run_' || n, 1, 1, 0, 'x' FROM generate_series(1, 10000) AS n;
INSERT INTO settings SELECT 'name_' || n, 1, '{}' FROM generate_series(1, 10000) AS n;
ANALYZE;
SET plan_cache_mode = force_generic_plan;
"""
# Across sessions, or of none: these alone may leave out the session.
_LISTS = (
    "setting",
    "insert_setting",
    "update_setting",
    "sessions_of_user",
    "sessions_of_tenant",
    "ready_for_agent",
    "ready",
    "swept",
    "refs",
)

# The index by which each statement finds its rows, in the order of the plan; conditions where they matter.
_PAGE = ("(tenant_id = $1) AND (session_id = $2)", "sessions_pkey")
_EXPECTED = {
    "snapshot": ("events_messages", "events_retractions", "tool_calls_pkey", "runs_numbered", *_PAGE),
    **{
        f"messages_{order}": ("events_messages", "(seq > $3) AND (seq < $4)", "events_retractions", *_PAGE)
        for order in ("ascending", "descending")
    },
    **{
        f"events_{order}": ("events_pkey", "(seq > $3) AND (seq < $4)", "events_retractions", *_PAGE)
        for order in ("ascending", "descending")
    },
    **{
        f"tool_calls_{order}": ("tool_calls_pkey", "(seq > $3) AND (seq < $4)", "events_pkey", *_PAGE)
        for order in ("ascending", "descending")
    },
    **{
        f"equal_calls_{order}": ("tool_calls_repeated", "(arguments_hash = $10) AND (seq > $3)", *_PAGE)
        for order in ("ascending", "descending")
    },
    **{
        f"runs_{order}": ("runs_numbered", "(number > $3) AND (number < $4)", "events_pkey", *_PAGE)
        for order in ("ascending", "descending")
    },
    "run": ("runs_pkey", *_PAGE),
    "partial": ("partials_pkey", "(attempt = $4) AND (message = $5)", *_PAGE),
    "wakeable": ("sessions_pkey", "events_pkey"),
    "sessions_of_user": ("sessions_listed", "(user_id = $2) AND (updated_at >= $3) AND (updated_at <= $4)"),
    "sessions_of_tenant": ("sessions_listed",),
    "ready_for_agent": ("sessions_ready", "(ready_agent = $3) AND (ROW(tenant_id, session_id) > ROW($1, $2))"),
    "ready": ("sessions_ready",),
    "swept": ("sessions_swept", "sessions_leased", "(lease_clock = $5) AND (lease_until <="),
    "refs": ("sessions_pkey", "(ROW(tenant_id, session_id) > ROW($1, $2))"),
    "load": ("sessions_pkey", "idempotency_records_pkey"),
    "load_all": (
        "runs_pkey",
        "tool_calls_pkey",
        "tool_calls_repeated",
        "events_pkey",
        "events_retractions",
        "working_memory_pkey",
        "metadata_pkey",
        "partials_pkey",
        "tool_calls_steps",
    ),
    "append_one": ("LockRows", "sessions_pkey", "idempotency_records_pkey"),
    "append": ("LockRows", "sessions_pkey", "idempotency_records_pkey"),
    "commit": ("LockRows", "sessions_pkey", "idempotency_records_pkey", "working_memory_pkey", "metadata_pkey"),
    "lock": ("LockRows", "Sort", "sessions_pkey"),
    "tombstone": ("sessions_pkey",),
    **{
        f"erase_{table}": (f"{table}_pkey", "Tid Scan")
        for table in ("events", "tool_calls", "partials", "idempotency_records")
    },
    "erase_runs": ("Tid Scan",),
    "erase_working_memory": ("working_memory_pkey",),
    "erase_metadata": ("metadata_pkey",),
    "setting": ("settings_pkey",),
    "insert_setting": ("settings_pkey",),
    "update_setting": ("settings_pkey",),
}


@pytest.fixture(scope="module")
def shell() -> Iterator[subprocess.Popen[bytes]]:
    url = new_database()

    async def make() -> None:
        async with satchel.open(url):
            pass

    asyncio.run(make())
    opened = server().shell(url.rpartition("/")[2])
    said = ask(opened, FILL)
    assert "ERROR" not in said
    yield opened
    opened.communicate()


def ask(shell: subprocess.Popen[bytes], statements: str) -> str:
    assert shell.stdin is not None
    assert shell.stdout is not None
    shell.stdin.write(statements.encode() + b"\n\\echo answered\n")
    shell.stdin.flush()
    return "".join(iter(lambda: shell.stdout.readline().decode(), "answered\n"))  # type: ignore[union-attr]  # it has a pipe


def plan(shell: subprocess.Popen[bytes], name: str) -> str:
    count = max(int(number) for number in re.findall(r"\$(\d+)", SQL[name]))
    nulls = ", ".join(["NULL"] * count)
    return ask(shell, f"PREPARE {name} AS {SQL[name]};\nEXPLAIN EXECUTE {name}({nulls});")


def test_every_statement_is_looked_at() -> None:
    assert set(_EXPECTED) == set(SQL)


@pytest.mark.parametrize("name", sorted(SQL))
def test_every_statement_takes_its_index(shell: subprocess.Popen[bytes], name: str) -> None:
    found = plan(shell, name)
    assert "ERROR" not in found
    assert "Seq Scan" not in found
    for step in _EXPECTED[name]:
        assert step in found
    if name not in _LISTS:
        for condition in re.findall("Index Cond: (.*)", found):
            assert "tenant_id = " in condition
            assert "session_id = " in condition


def test_a_list_is_read_in_the_order_of_its_index(shell: subprocess.Popen[bytes]) -> None:
    ask(shell, f"PREPARE listed AS {SQL['sessions_of_user']};")
    found = ask(shell, "EXPLAIN EXECUTE listed(NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL);")
    page = found[found.index("CTE page") : found.index("->  CTE Scan on page")]
    assert "Index Scan Backward using sessions_listed" in page
    assert "Sort" not in page[: page.index("sessions_listed")]


def test_an_update_that_changes_no_key_touches_no_index(shell: subprocess.Popen[bytes]) -> None:
    """Housekeeping, say. PostgreSQL calls it HOT; an append is none, because a list is kept by updated_at."""
    found = ask(
        shell,
        """
        BEGIN;
        UPDATE sessions SET revision = revision + 1, turns_at = turns_at + 1, record = '{}' WHERE session_id = 'sess_7';
        SELECT 'hot: ' || pg_stat_get_xact_tuples_hot_updated('sessions'::regclass);
        ROLLBACK;
        """,
    )
    assert "hot: 1" in found
