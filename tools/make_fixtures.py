"""Writes `tests/data/schemas/` anew for the newest schema: a store with a session that holds something of everything, as SQL
for each dialect (as commands, for Redis), and what an export of it says.

A fixture is kept as it is once its schema was released: it stands for the databases that are out there. `python -m
tools.make_fixtures` needs PostgreSQL, MariaDB and Redis on this machine.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from redis import Redis

from satchel.domain.principal import Principal
from satchel.servers import MariadbServer, PostgresServer, RedisServer
from satchel.servers.mariadb import DATABASE, program
from satchel.servers.postgres import programs
from satchel.sessions import SessionManager
from satchel.store import Store
from satchel.stores.mysql import MysqlStore
from satchel.stores.mysql import schema as mysql_schema
from satchel.stores.postgres import PostgresStore
from satchel.stores.postgres import schema as postgres_schema
from satchel.stores.redis import RedisStore
from satchel.stores.redis import schema as redis_schema
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


def mysql_dump(server: MariadbServer) -> str:
    """A statement for each row, in the order of the keys; bytes as hexadecimal digits."""
    options = [
        "--skip-opt",
        "--order-by-primary",
        "--hex-blob",
        "--complete-insert",
        "--skip-comments",
        "--create-options",
    ]
    done = subprocess.run(
        [program("mariadb-dump"), "--no-defaults", f"--socket={server.socket}", "--user=root", *options, DATABASE],
        capture_output=True,
        check=True,
    )
    lines = done.stdout.decode().splitlines()
    return "\n".join(line for line in lines if line and not line.startswith(("/*", "--"))) + "\n"


def redis_dump(server: RedisServer) -> str:
    """Commands, one a line; bytes as the characters of their numbers."""
    with Redis(host=server.host, port=server.port) as client:
        driver: Any = client  # its types say both what it gives and what it would give decoded
        commands = [redis_command(driver, key) for key in sorted(driver.keys())]
    return "".join(json.dumps([word.decode("latin-1") for word in command]) + "\n" for command in commands)


def redis_command(client: Any, key: bytes) -> list[bytes]:
    kind = client.type(key)
    if kind == b"string":
        return [b"SET", key, client.get(key)]
    if kind == b"list":
        return [b"RPUSH", key, *client.lrange(key, 0, -1)]
    if kind == b"set":
        return [b"SADD", key, *sorted(client.smembers(key))]
    if kind == b"zset":
        pairs = client.zrange(key, 0, -1, withscores=True)
        return [b"ZADD", key, *(part for member, score in pairs for part in (b"%d" % score, member))]
    assert kind == b"hash", kind
    return [b"HSET", key, *(part for pair in sorted(client.hgetall(key).items()) for part in pair)]


def main() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    clock = SettableClock()
    with tempfile.TemporaryDirectory() as folder, PostgresServer() as server, MariadbServer() as mariadb:
        path = Path(folder) / "fixture.db"
        exported = asyncio.run(fill(SqliteStore(path, clock=clock), clock))
        write(f"sqlite-{sqlite_schema.KNOWN:04}", sqlite_dump(path), exported)
        exported = asyncio.run(fill(PostgresStore(server.url(), clock=clock), clock))
        write(f"postgres-{postgres_schema.KNOWN:04}", postgres_dump(server), exported)
        exported = asyncio.run(fill(MysqlStore(mariadb.url(), clock=clock), clock))
        write(f"mysql-{mysql_schema.KNOWN:04}", mysql_dump(mariadb), exported)
    with RedisServer() as redis:
        exported = asyncio.run(fill(RedisStore(redis.url(), clock=clock), clock))
        write(f"redis-{redis_schema.KNOWN:04}", redis_dump(redis), exported, kind="commands")


def write(name: str, dump: str, exported: bytes, *, kind: str = "sql") -> None:
    (FOLDER / f"{name}.{kind}").write_text(dump, encoding="utf-8")
    (FOLDER / f"{name}.jsonl").write_bytes(exported)
    print(f"tests/data/schemas/{name}.{kind}, and .jsonl")


if __name__ == "__main__":
    main()
