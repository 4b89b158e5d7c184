"""Which index each statement takes on tables that are not small, and that each names the session it is about."""

from __future__ import annotations

import asyncio
import hashlib
import re
import subprocess
from collections.abc import Iterator

import pytest

import satchel
from satchel.stores.mysql.literals import literal, rows
from satchel.stores.mysql.queries import SQL
from tests.servers.mysql import new_database, server

_FILL = """
INSERT INTO sessions
SELECT
    'acme', concat('sess_', seq), concat('user_', seq % 500), concat('user_', seq % 500), 'ACTIVE', seq, seq + 1000000, NULL, 1,
    if(seq % 50 = 0, 'coding', NULL), seq + 4000000000000000, if(seq % 50 = 1, seq + 4000000000000000, NULL), if(seq % 50 = 1, 'server', NULL), repeat('{}', 300)
FROM seq_1_to_5000;
INSERT INTO events (tenant_id, session_id, seq, version, kind, at, actor, refers_to, body)
SELECT
    'acme', concat('sess_', seq % 20), seq DIV 20, seq,
    elt(1 + seq % 5, 'message', 'message', 'run_step', 'tool_call_started', 'message_retracted'), seq, 'a',
    if(seq % 5 = 4, seq, NULL), repeat('x', 100)
FROM seq_1_to_10000;
INSERT INTO retractions
SELECT tenant_id, session_id, refers_to, seq FROM events WHERE refers_to IS NOT NULL;
INSERT INTO tool_calls (
    tenant_id, session_id, seq, version, tool, arguments_hash, status, start_time, end_time, run_id, result_seq, result_kind,
    step
)
SELECT
    'acme', concat('sess_', seq % 20), seq DIV 20, seq, 't', unhex(md5(seq % 50)), 'succeeded', 1, 2,
    concat('run_', seq % 9), seq, 'event', 'step'
FROM seq_1_to_5000;
INSERT INTO runs (tenant_id, session_id, run_id, number, status, input_seq, record)
SELECT 'acme', concat('sess_', seq % 20), concat('run_', seq), seq DIV 20, 'COMPLETED', seq, '{}' FROM seq_1_to_5000;
INSERT INTO idempotency_records
SELECT 'acme', concat('sess_', seq % 20), unhex(md5(seq)), 'f', '[1,1]' FROM seq_1_to_5000;
INSERT INTO working_memory SELECT 'acme', concat('sess_', seq), '{}' FROM seq_1_to_5000;
INSERT INTO metadata SELECT 'acme', concat('sess_', seq), '{}' FROM seq_1_to_5000;
INSERT INTO partials (tenant_id, session_id, run_id, attempt, message, `offset`, body)
SELECT 'acme', concat('sess_', seq % 20), concat('run_', seq), 1, 1, 0, 'x' FROM seq_1_to_5000;
INSERT INTO settings SELECT concat('name_', seq), 1, '{}' FROM seq_1_to_5000;
"""
_TABLES = "sessions, events, retractions, tool_calls, runs, idempotency_records, working_memory, metadata, partials"

_ONE = ("acme", "sess_7")
_TWO = rows([_ONE, ("acme", "sess_9")])
_HASHES = [hashlib.md5(str(n).encode(), usedforsecurity=False).digest() for n in range(3)]
_SEQS = rows([(*_ONE, 3), ("acme", "sess_9", 7)])
_EVENTS = (*_ONE, 3, 900, None, False, 50)
_CALLS = (*_ONE, 3, 900, None, None, None, None, 50)
_LIST = (100, 4000, "sess_9", None, 10**6, 50)

# Of each statement values as they are, and the indexes of its tables in the order of the plan; for each the columns that it is
# entered by.
_PAGE = "events PRIMARY"
_BODIES = ("began PRIMARY", "ended PRIMARY")
_PLANS: dict[str, tuple[tuple[object, ...], tuple[str, ...]]] = {
    "record": (_ONE, ("sessions PRIMARY",)),
    "working_memory": (_ONE, ("working_memory PRIMARY",)),
    "metadata": (_ONE, ("metadata PRIMARY",)),
    "events_ascending": (_EVENTS, ("event PRIMARY", "back PRIMARY", "back PRIMARY")),
    "events_descending": (_EVENTS, ("event PRIMARY", "back PRIMARY", "back PRIMARY")),
    "kind_ascending": ((*_EVENTS, "message"), ("event events_kinds", "back PRIMARY", "back PRIMARY")),
    "kind_descending": ((*_EVENTS, "message"), ("event events_kinds", "back PRIMARY", "back PRIMARY")),
    "tool_calls_ascending": (_CALLS, ("call_ PRIMARY", *_BODIES)),
    "tool_calls_descending": (_CALLS, ("call_ PRIMARY", *_BODIES)),
    "equal_calls_ascending": ((*_CALLS, _HASHES[0]), ("call_ tool_calls_repeated", *_BODIES)),
    "equal_calls_descending": ((*_CALLS, _HASHES[0]), ("call_ tool_calls_repeated", *_BODIES)),
    "runs_ascending": ((*_ONE, 3, 900, None, 50, None), ("run runs_numbered", "said PRIMARY")),
    "runs_descending": ((*_ONE, 3, 900, None, 50, None), ("run runs_numbered", "said PRIMARY")),
    "run": ((*_ONE, "run_27", 0, 900, None, 50, None), ("run PRIMARY", "said PRIMARY")),
    "partial": ((*_ONE, "run_7", 1, 1, 0, 50), ("piece PRIMARY",)),
    "newest": ((_TWO,), ("one PRIMARY", "event PRIMARY")),
    "clock": ((), ()),
    "sessions_of_user": (("acme", "user_7", *_LIST), ("one sessions_listed", "metadata PRIMARY")),
    "sessions_of_tenant": (("acme", None, *_LIST), ("one sessions_listed", "metadata PRIMARY")),
    "ready_for_agent": ((*_ONE, "coding", 50), ("sessions sessions_ready",) * 2),
    "refs": ((*_ONE, 50), ("sessions PRIMARY",) * 2),
    "ready": ((*_ONE, 50), ("sessions sessions_ready",)),
    "swept": (
        (*_ONE, None, None, "server", 50),
        ("sessions sessions_swept", *["sessions sessions_leased"] * 3),
    ),
    "load_records": ((_TWO,), ("one PRIMARY",)),
    "load_keys": ((rows([(*_ONE, _HASHES[0]), (*_ONE, _HASHES[1])]),), ("kept PRIMARY",)),
    "load_runs": ((rows([(*_ONE, "run_7"), (*_ONE, "run_27")]),), ("run PRIMARY", "said PRIMARY")),
    "load_calls": ((_SEQS,), ("call_ PRIMARY", *_BODIES)),
    "load_equal": ((*_ONE, _HASHES[0]), ("tool_calls tool_calls_repeated",)),
    "load_step": ((*_ONE, "run_7", "step"), ("call_ tool_calls_steps", *_BODIES)),
    "load_events": ((_SEQS,), ("event PRIMARY",)),
    "load_retractions": ((_SEQS,), ("back PRIMARY", "event PRIMARY")),
    "load_pieces": ((rows([(*_ONE, "run_7", 1, 1), (*_ONE, "run_27", 1, 1)]),), ("piece PRIMARY",)),
    "load_working_memory": ((_TWO,), ("working_memory PRIMARY",)),
    "load_metadata": ((_TWO,), ("metadata PRIMARY",)),
    "lock": ((_TWO,), ("sessions PRIMARY",)),
    "find_keys": ((rows([(*_ONE, _HASHES[0]), (*_ONE, _HASHES[1])]),), ("idempotency_records PRIMARY",)),
    "drop_partials": ((*_ONE, "run_7", 1, 1), ("partials PRIMARY",)),
    "drop_working_memory": (_ONE, ("working_memory PRIMARY",)),
    "drop_metadata": (_ONE, ("metadata PRIMARY",)),
    "tombstone": (_ONE, ("sessions PRIMARY",)),
    "forget_retractions": ((*_ONE, 50), ("retractions PRIMARY",)),
    **{
        f"erase_{table}": ((*_ONE, 50), (f"{table} PRIMARY",))
        for table in (
            "events",
            "tool_calls",
            "runs",
            "partials",
            "idempotency_records",
            "working_memory",
            "metadata",
        )
    },
    "setting": (("name_7",), ("settings PRIMARY",)),
    "update_setting": (("name_7", "{}", 1), ("settings PRIMARY",)),
}
# An admin's list, and what is due to anybody: few rows, of several places of the index.
_SORTED = ("sessions_of_tenant", "ready")
# Rows that are put where they belong look for nothing.
_PUT = {name for name in SQL if name.startswith(("insert_", "replace_"))}


@pytest.fixture(scope="module")
def shell() -> Iterator[subprocess.Popen[bytes]]:
    url = new_database()

    async def make() -> None:
        async with satchel.open(url):
            pass

    asyncio.run(make())
    opened = server().shell(url.rpartition("/")[2].partition("?")[0])
    said = ask(opened, f"SET NAMES binary;{_FILL} ANALYZE TABLE {_TABLES};")
    assert "ERROR" not in said
    yield opened
    opened.communicate()


def ask(shell: subprocess.Popen[bytes], statements: str | bytes) -> str:
    assert shell.stdin is not None
    assert shell.stdout is not None
    text = statements.encode() if isinstance(statements, str) else statements
    shell.stdin.write(text + b"\nSELECT 'answered';\n")
    shell.stdin.flush()
    return "".join(iter(lambda: shell.stdout.readline().decode(), "answered\n"))  # type: ignore[union-attr]  # it has a pipe


def plan(shell: subprocess.Popen[bytes], name: str) -> list[list[str]]:
    """Of each table: id, kind, table, access, possible keys, key, its length, what it is compared with, rows, more."""
    said = ask(shell, b"EXPLAIN " + SQL[name](*_PLANS[name][0]) + b";")
    assert "ERROR" not in said
    return [line.split("\t") for line in said.splitlines()]


def test_every_statement_is_looked_at() -> None:
    assert set(_PLANS) | _PUT == set(SQL)


@pytest.mark.parametrize("name", sorted(_PLANS))
def test_every_statement_takes_its_index(shell: subprocess.Popen[bytes], name: str) -> None:
    found = [step for step in plan(shell, name) if step[2] not in ("NULL", "<derived2>") and step[2][:6] != "<union"]
    # "Select tables optimized away": answered by one look into an index.
    assert [f"{step[2]} {step[5]}" for step in found] == list(_PLANS[name][1])
    for step in found:
        assert step[3] in ("const", "eq_ref", "ref", "range", "ref|filter"), step
        assert "Using filesort" not in step[-1] or name in _SORTED, step


@pytest.mark.parametrize("name", sorted(name for name, values in _PLANS.items() if values[0][:2] == _ONE))
def test_every_statement_about_a_session_names_it(name: str) -> None:
    """So that a server which places rows by their key finds all of them in one place."""
    bound = SQL[name](*_PLANS[name][0]).decode(errors="replace")
    across = ("swept", "ready", "ready_for_agent", "refs")
    tables = len(re.findall(r"\b(?:FROM|JOIN) [a-z_]+ ", bound.replace("\n", " ")))
    assert tables
    if name not in across:
        assert bound.count("tenant_id = ") >= tables
        assert bound.count("session_id = ") >= tables


def test_a_list_is_read_in_the_order_of_its_index_and_meets_no_tombstones(shell: subprocess.Popen[bytes]) -> None:
    ask(shell, "UPDATE sessions SET listed_for = NULL WHERE user_id = 'user_8' AND updated_at > 100;")
    bound = SQL["sessions_of_user"]("acme", "user_8", 0, 10**9, "", None, 10**6, 50)
    looked = ask(shell, b"FLUSH STATUS;" + bound + b";SHOW SESSION STATUS LIKE 'Handler_read_prev';")
    assert int(looked.splitlines()[-1].split("\t")[1]) <= 2


def test_sessions_are_locked_in_the_order_of_their_keys(shell: subprocess.Popen[bytes]) -> None:
    """Whatever the order in which they are named: the index is walked once."""
    names = rows([("acme", f"sess_{n}") for n in (9, 3, 77, 5)])
    found = ask(shell, SQL["lock"](names) + b";")
    assert [line.split("\t")[1] for line in found.splitlines()] == ["sess_3", "sess_5", "sess_77", "sess_9"]
    (step,) = [line.split("\t") for line in ask(shell, b"EXPLAIN " + SQL["lock"](names) + b";").splitlines()]
    assert (step[3], step[5]) == ("range", "PRIMARY")
    assert "sort" not in step[-1]
    assert literal("acme") in SQL["lock"](names)
