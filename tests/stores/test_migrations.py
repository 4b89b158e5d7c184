"""Databases as each released schema wrote them: opened by a program that has a later one, they read as they did, and go on."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from satchel.domain.ids import SessionRef, derived_session_id
from satchel.domain.run import Attempt
from satchel.errors import SchemaMismatch
from satchel.store import Store
from satchel.stores.memory import MemoryStore
from satchel.stores.migrations import load_migrations
from satchel.stores.mysql import MysqlStore
from satchel.stores.mysql import schema as mysql_schema
from satchel.stores.postgres import PostgresStore
from satchel.stores.postgres import schema as postgres_schema
from satchel.stores.sqlite import SqliteStore
from satchel.stores.sqlite import schema as sqlite_schema
from satchel.testing.clock import SettableClock
from satchel.testing.copying import move
from satchel.testing.stage import ADA, ADAS_AGENT, OPERATOR, TENANT, Stage, said
from tests.servers import mysql, postgres

FIXTURES = Path(__file__).parents[1] / "data" / "schemas"
DIALECTS: dict[str, ModuleType] = {
    "sqlite": sqlite_schema,
    "postgres": postgres_schema,
    "mysql": mysql_schema,
}
NAMES = sorted(path.stem for path in FIXTURES.glob("*.sql"))

# As a later release may add: something to every event, and a table.
LATER = """-- Adds who approved an event, and approvals; older code can run on it.
ALTER TABLE events ADD COLUMN approved_by TEXT;
CREATE TABLE approvals (name VARCHAR(64) NOT NULL PRIMARY KEY);
"""

Make = Callable[[SettableClock], Store]


def restored(name: str, folder: Path) -> Make:
    """A store on a database that holds what the fixture holds."""
    dump = (FIXTURES / f"{name}.sql").read_text("utf-8")
    if name.startswith("sqlite"):
        path = folder / "old.db"
        connection = sqlite3.connect(path)
        connection.executescript(dump)
        connection.close()
        return lambda clock: SqliteStore(path, clock=clock)
    if name.startswith("mysql"):
        url = mysql.new_database()
        shell = mysql.server().shell(url.rpartition("/")[2].partition("?")[0])
        said_back, _ = shell.communicate(dump.encode())
        assert b"ERROR" not in said_back, said_back.decode()
        return lambda clock: MysqlStore(url, clock=clock)
    url = postgres.new_database()
    shell = postgres.server().shell(url.rpartition("/")[2])
    said_back, _ = shell.communicate(b"\\set ON_ERROR_STOP on\n" + dump.encode())
    assert shell.returncode == 0, said_back.decode()
    return lambda clock: PostgresStore(url, clock=clock)


def test_every_schema_that_was_released_has_its_fixture() -> None:
    for dialect, schema in DIALECTS.items():
        assert list(schema.MIGRATIONS) == list(range(1, schema.KNOWN + 1))
        assert [name for name in NAMES if name.startswith(dialect)] == [
            f"{dialect}-{number:04}" for number in schema.MIGRATIONS
        ], "python -m tools.make_fixtures writes that of the newest"


@pytest.mark.parametrize("package", [f"satchel.stores.{dialect}" for dialect in DIALECTS])
def test_every_step_has_a_name_and_says_what_it_changes(package: str) -> None:
    steps = load_migrations(package)
    assert set(steps.names) == set(steps)
    for number, script in steps.items():
        assert steps.names[number].startswith(f"{number:04}_")
        assert script.startswith("-- ")
        assert "code" in script.splitlines()[0], "can older code run on it?"


@pytest.mark.parametrize("later", [False, True], ids=["as-it-was", "with-a-later-step"])
@pytest.mark.parametrize("name", NAMES)
async def test_what_an_earlier_schema_wrote_reads_right_and_goes_on(
    name: str, later: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema = DIALECTS[name.partition("-")[0]]
    clock = SettableClock()
    make = restored(name, tmp_path)
    with monkeypatch.context() as patch:
        if later:
            patch.setitem(schema.MIGRATIONS, schema.KNOWN + 1, LATER)
            patch.setattr(schema, "KNOWN", schema.KNOWN + 1)
        found = await make(clock).schema()
        assert found is not None
        assert (found.found, len(found.pending)) == (int(name[-4:]), schema.KNOWN - int(name[-4:]))
        stage = Stage(make(clock), clock)
        async with stage.opened:
            await reads_right(stage, (FIXTURES / f"{name}.jsonl").read_bytes())
            await goes_on(stage)
        found = await make(clock).schema()
        assert found is not None
        assert (found.found, found.pending) == (schema.KNOWN, ())
    if later:
        with pytest.raises(SchemaMismatch):
            await make(clock).open()


async def reads_right(stage: Stage, wanted: bytes) -> None:
    exported = b"".join([piece async for piece in stage.sessions(OPERATOR).export_sessions()])
    assert exported == wanted
    kept = await stage.store.setting("greeting")
    assert kept is not None
    assert kept.value == '{"say":"你好"}'.encode()
    # Rows and log agree, of every session: a copy is made from the log, and compared by the rows.
    copy = Stage(MemoryStore(clock=stage.clock), stage.clock)
    results = await move(stage.opened, copy.opened)
    assert sorted(results.values()) == ["copied"] * 3 + ["tombstone"]


def named(name: str) -> str:
    return derived_session_id("external", TENANT, "ada", name, "0")


async def goes_on(stage: Stage) -> None:
    """What was open is open: its lease, its question, what was half said."""
    working, asking = named("working"), named("asking")
    agent, runs = stage.sessions(ADAS_AGENT), stage.runs()
    turn = (await stage.record(working)).turn
    assert turn is not None
    attempt = Attempt(turn.run_id, turn.attempt)
    page = await stage.store.partial(SessionRef(TENANT, working), turn.run_id, attempt=1, message=1, limit=9)
    assert len(page.pieces) == 1
    await runs.add_text(working, attempt, " and the rest", message=1, offset=len("half of it"))
    await agent.update_working_memory(working, {"append": {"plan": "b"}}, attempt=attempt)
    await runs.complete_run(working, attempt)
    shown = await agent.get_session(working)
    assert shown.working_memory is not None
    assert shown.working_memory.plan == ("a 步", "b")
    assert "half of it and the rest" in str([message.content for message in shown.messages])
    asked = (await stage.record(asking)).turn
    assert asked is not None
    answered = await stage.runs(ADA).answer_run(asking, asked.run_id, "large")
    assert answered.status == "READY"
    busy = await stage.sessions().create_session(external_id="chat-1")
    assert busy.version > 0  # found, not made
    message = await agent.append_message(busy.session_id, said("更多"))
    assert message.version == busy.version + 1
