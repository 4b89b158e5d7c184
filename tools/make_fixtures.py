"""Writes `tests/data/schemas/` anew for the newest schema: a store with a session that holds something of everything, as SQL
for each dialect, and what an export of it says.

A fixture is kept as it is once its schema was released: it stands for the databases that are out there. `python -m
tools.make_fixtures` needs a PostgreSQL server on this machine.
"""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import tempfile
from pathlib import Path

from satchel.domain.principal import Principal
from satchel.servers import PostgresServer
from satchel.servers.postgres import programs
from satchel.sessions import SessionManager
from satchel.store import Store
from satchel.stores.postgres import PostgresStore
from satchel.stores.postgres import schema as postgres_schema
from satchel.stores.sqlite import SqliteStore
from satchel.stores.sqlite import schema as sqlite_schema
from satchel.testing.clock import SettableClock
from satchel.testing.stage import ADAS_AGENT, TENANT, Stage
from satchel.testing.transfer import busy_session

FOLDER = Path(__file__).parents[1] / "tests" / "data" / "schemas"


async def fill(store: Store, clock: SettableClock) -> bytes:
    """What an export says then."""
    stage = Stage(store, clock)
    async with stage.opened:
        await busy_session(stage)
        gone = await stage.session(title="gone")
        await stage.sessions().delete_session(gone)
        await open_session(stage)
        await store.setting("greeting", value='{"say":"你好"}'.encode())
        manager = SessionManager(stage.opened, Principal.operator(tenant_id=TENANT))
        return b"".join([piece async for piece in manager.export_sessions()])


async def open_session(stage: Stage) -> None:
    """A run that works, says something, and has a child and a memory of its own; one that waits for an answer; one that waits
    for its turn."""
    working, asking = await stage.session(external_id="working"), await stage.session(external_id="asking")
    agent, runs = stage.sessions(ADAS_AGENT), stage.runs()
    _, attempt = await stage.started_run(working, input="one", memory="run", max_attempts=2)
    await agent.update_working_memory(working, {"append": {"plan": "a 步"}}, attempt=attempt)
    await agent.start_tool_call(working, "t", {"a": 1}, tool_call_id="c1", attempt=attempt, step="look")
    await runs.add_text(working, attempt, "half of it", message=1, offset=0)
    await runs.add_child_run(working, attempt, goal="a part")
    await runs.add_run(working, input="two", on_busy="queue", agent="coding")
    _, attempt = await stage.started_run(asking, input="size?")
    await runs.ask_question(asking, attempt, "size", "多大?")


def sqlite_dump(path: Path) -> str:
    connection = sqlite3.connect(path)
    try:
        return "\n".join(connection.iterdump()) + "\n"
    finally:
        connection.close()


def postgres_dump(server: PostgresServer) -> str:
    """Without the lines that differ from one server to the next."""
    done = subprocess.run(
        [programs() / "pg_dump", "--inserts", "--no-owner", "--no-privileges", "-d", server.url()],
        capture_output=True,
        check=True,
    )
    lines = done.stdout.decode().splitlines()
    left_out = ("--", "\\restrict", "\\unrestrict", "SET ", "SELECT pg_catalog.set_config")
    return "\n".join(line for line in lines if line and not line.startswith(left_out)) + "\n"


def main() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    clock = SettableClock()
    with tempfile.TemporaryDirectory() as folder, PostgresServer() as server:
        path = Path(folder) / "fixture.db"
        exported = asyncio.run(fill(SqliteStore(path, clock=clock), clock))
        write(f"sqlite-{sqlite_schema.KNOWN:04}", sqlite_dump(path), exported)
        exported = asyncio.run(fill(PostgresStore(server.url(), clock=clock), clock))
        write(f"postgres-{postgres_schema.KNOWN:04}", postgres_dump(server), exported)


def write(name: str, dump: str, exported: bytes) -> None:
    (FOLDER / f"{name}.sql").write_text(dump, encoding="utf-8")
    (FOLDER / f"{name}.jsonl").write_bytes(exported)
    print(f"tests/data/schemas/{name}.sql, and .jsonl")


if __name__ == "__main__":
    main()
