"""`satchel migrate`, with a later step than there is: forward only, once, whoever starts, and refused by older programs."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType

import pytest

from satchel.stores.postgres import schema as postgres_schema
from satchel.stores.sqlite import schema as sqlite_schema
from tests.cli.shell import STORE, TENANT, Cli, Work, make_session
from tests.servers.postgres import new_database, server

LATER = "-- Adds a table that nobody reads; older code can run on it.\nCREATE TABLE later (a INTEGER);\n"

DIALECTS: dict[str, ModuleType] = {"sqlite": sqlite_schema, "postgres": postgres_schema}


@pytest.fixture
def tomorrow(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """The command as a program knows it that has one step more."""

    def call(dialect: str, *arguments: str) -> str:
        schema = DIALECTS[dialect]
        with monkeypatch.context() as patch:
            patch.setitem(schema.MIGRATIONS, schema.KNOWN + 1, LATER)
            patch.setattr(schema, "KNOWN", schema.KNOWN + 1)
            answer = cli(*arguments)
        assert answer.code == 0, answer.err
        return answer.text

    return call


def test_status_tells_the_steps_and_changes_nothing(cli: Cli, work: Work, tomorrow: Callable[..., str]) -> None:
    answer = cli("migrate", "status")
    assert answer.code == 0, answer.err
    assert answer.text.splitlines()[0] == f"schema {sqlite_schema.KNOWN}, up to date"
    assert "0001_initial  applied 20" in answer.text
    before = Path("agent.db").read_bytes()
    shown = tomorrow("sqlite", "migrate", "status")
    assert f"schema {sqlite_schema.KNOWN}; 1 step to come" in shown
    assert "Adds a table that nobody reads" in shown
    assert Path("agent.db").read_bytes() == before
    found = cli("migrate", "status", "--json").json
    assert (found["found"], found["up_to_date"]) == (sqlite_schema.KNOWN, True)
    assert [step["number"] for step in found["steps"]] == list(sqlite_schema.MIGRATIONS)


def test_a_store_that_is_missing_is_not_made_by_looking(cli: Cli) -> None:
    assert cli("migrate", "status").code == 5
    assert "CREATE TABLE sessions" in cli("migrate", "sql").text
    assert not Path("agent.db").exists()


def test_up_makes_a_new_store_and_says_what_it_did(cli: Cli) -> None:
    answer = cli("migrate", "up", "--json")
    assert answer.code == 0, answer.err
    assert answer.json["applied"] == list(sqlite_schema.MIGRATIONS)
    assert cli("migrate", "up", "--json").json["applied"] == []
    assert "up to date" in cli("migrate", "up").text
    assert make_session()


def test_a_later_step_keeps_everything_and_older_programs_are_refused(
    cli: Cli, work: Work, tomorrow: Callable[..., str]
) -> None:
    before = cli("sessions", "export").out
    assert f"{sqlite_schema.KNOWN + 1:04}" in tomorrow("sqlite", "migrate", "up")
    assert tomorrow("sqlite", "sessions", "export").encode() == before
    for command in (("sessions", "list"), ("migrate", "up"), ("migrate", "status"), ("migrate", "sql")):
        answer = cli(*command)
        assert answer.code == 5, command
        known = sqlite_schema.KNOWN
        assert f"the database has schema {known + 1}, this program knows {known}; update Satchel" in answer.err
    report = cli("doctor", "--json")
    assert report.code == 1
    assert [one["level"] for one in report.json["findings"]] == ["error"]


def run_sqlite(script: str) -> None:
    connection = sqlite3.connect("agent.db", isolation_level=None)
    connection.executescript(script)
    connection.close()


def run_postgres(url: str) -> Callable[[str], None]:
    def run(script: str) -> None:
        shell = server().shell(url.rpartition("/")[2])
        out, _ = shell.communicate(b"\\set ON_ERROR_STOP on\n" + script.encode(), timeout=60)
        assert shell.returncode == 0, out.decode()

    return run


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, shell: None) -> tuple[str, str, Callable[[str], None]]:
    if request.param == "sqlite":
        return "sqlite", STORE, run_sqlite
    url = new_database()
    return "postgres", url, run_postgres(url)


def test_the_printed_sql_does_what_opening_the_store_does(
    cli: Cli,
    tomorrow: Callable[..., str],
    place: tuple[str, str, Callable[[str], None]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    dialect, url, run = place
    monkeypatch.setenv("SATCHEL_STORE", url)
    run(cli("migrate", "sql").text)
    assert cli("migrate", "sql").text.startswith("-- nothing to do")
    answer = cli("migrate", "status", "--json")
    assert answer.json["up_to_date"] is True
    assert all(step["applied_at"].startswith("20") for step in answer.json["steps"])
    line = b'{"session_id": "x", "messages": [{"role": "user", "content": "hello"}]}\n'
    assert cli("sessions", "import", "-", "--user", "ada", stdin=line).code == 0
    run(tomorrow(dialect, "migrate", "sql", "--store", url))
    assert tomorrow(dialect, "sessions", "list", "--json", "--store", url).count('"session_id"') == 1
    assert cli("sessions", "list").code == 5


MORE_FILES = [f"more-{number}.db" for number in range(9)]  # ten starts are needed for two to meet inside a step
APART = 0.15  # seconds

# A server that starts: of tomorrow, or of today.
_SERVER = f"""
import asyncio, sys, time
from satchel.errors import SchemaMismatch
from satchel.stores.{{dialect}} import schema, {{store}}
later, *urls = sys.argv[1:]
if later == "later":
    schema.MIGRATIONS[schema.KNOWN + 1] = {LATER!r}
    schema.KNOWN += 1

async def start(url):
    store = {{store}}(url)
    try:
        await store.open()
    except SchemaMismatch as refused:
        print("refused", refused.found)
    else:
        print("open", (await store.schema()).found)
        await store.close()

print("here", flush=True)
began = float(sys.stdin.read())  # when all are
for number, url in enumerate(urls):
    time.sleep(max(0.0, began + {APART} * number - time.time()))
    asyncio.run(start(url))
"""


def start_ten(dialect: str, store: str, urls: Sequence[str]) -> list[list[str]]:
    """What they said of each of the stores, where they met at an instant: seven of tomorrow, and three that know one step less."""
    script = _SERVER.format(dialect=dialect, store=store)
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", script, "today" if number % 3 == 2 else "later", *urls],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number in range(10)
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "here\n"
    began = str(time.time() + 0.1)
    said = []
    for process in processes:
        assert process.stdin is not None
        process.stdin.write(began)
        process.stdin.close()
        process.stdin = None
    for process in processes:
        out, err = process.communicate(timeout=100)
        assert process.returncode == 0, err
        said.append(out.splitlines())
    return [list(of_one) for of_one in zip(*said, strict=True)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("dialect", "store"), [("sqlite", "SqliteStore"), pytest.param("postgres", "PostgresStore", marks=pytest.mark.full)]
)
def test_ten_processes_that_start_at_once_take_each_step_once_and_older_ones_give_way(
    cli: Cli, tomorrow: Callable[..., str], dialect: str, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = STORE if dialect == "sqlite" else new_database()
    known = DIALECTS[dialect].KNOWN
    for said in start_ten(dialect, store, ["agent.db", *MORE_FILES] if dialect == "sqlite" else [url]):
        assert [one for number, one in enumerate(said) if number % 3 != 2] == [f"open {known + 1}"] * 7
        assert set(said) <= {f"open {known + 1}", f"open {known}", f"refused {known + 1}"}
    monkeypatch.setenv("SATCHEL_STORE", url)
    assert f"schema {known + 1}, up to date" in tomorrow(dialect, "migrate", "status")
    assert cli("sessions", "list", "--tenant", TENANT, "--json").error["code"] == "schema_mismatch"
