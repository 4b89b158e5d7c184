"""``python -m benchmarks.footprint [--stores NAME…] [--sessions N] [--each N]``: the table of docs/scale.md, made again.

What a session, a message of 500 bytes with its key and a run cost a store: rows, bytes at rest, bytes of its log, and
how many appends share one commit. Sizes are what the server says of itself, less what it said before.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import sqlite3
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import NamedTuple

import asyncmy
import asyncpg

import satchel
from benchmarks.appends import ADA, message
from benchmarks.cycles import AT_ONCE, run_cycles
from satchel import OpenStore, SessionManager
from satchel.domain.ids import SessionRef
from satchel.domain.state import Want
from satchel.opening import store_at
from satchel.servers import MariadbServer, PostgresServer, RedisServer, ServerMissing
from satchel.store import Change, Loaded, Outcome, Store
from satchel.testing.wrappers import StoreWrapper

TABLES = (
    "sessions",
    "events",
    "idempotency_records",
    "tool_calls",
    "runs",
    "working_memory",
    "metadata",
    "partials",
)
PARTITION = Path(__file__).parents[1] / "docs" / "partition.sql"
_REST = """\
SELECT sum(pg_total_relation_size(relid))::bigint
FROM (SELECT $1::regclass AS relid UNION SELECT relid FROM pg_partition_tree($1::regclass)) AS parts"""
WARM = 8  # appends of each writer before the clock starts


class Size(NamedTuple):
    rows: int  # of Redis, keys
    rest: int  # bytes of tables and indexes; of Redis, memory
    log: int | None  # bytes written to the server's log since it started; None: nobody counts them


class Place(NamedTuple):
    """A store that is empty, and how to ask for its size."""

    url: str
    size: Callable[[], Awaitable[Size]]


class BatchesCounted(StoreWrapper):
    """One ``transact`` is one batch, and one commit of the database."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.batches = 0

    async def transact(
        self, wanted: Mapping[SessionRef, Want], decide: Callable[[Loaded], Sequence[Change]]
    ) -> list[Outcome]:
        self.batches += 1
        return await self.inner.transact(wanted, decide)


@contextmanager
def sqlite_place() -> Iterator[Place]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "footprint.db"

        async def size() -> Size:
            with closing(sqlite3.connect(path)) as connection:
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
                rows = sum(connection.execute(f"SELECT count(*) FROM {name}").fetchone()[0] for name in TABLES)  # noqa: S608  # fixed names
                used = "SELECT (page_count - freelist_count) * page_size FROM pragma_page_count, pragma_freelist_count, pragma_page_size"
                return Size(rows, connection.execute(used).fetchone()[0], None)

        yield Place(f"sqlite:///{path}", size)


async def make_schema(url: str) -> None:
    async with satchel.open(url):
        pass


@contextmanager
def postgres_place(*, partitioned: bool = False) -> Iterator[Place]:
    with PostgresServer() as server:
        url = server.create_database("footprint")
        if partitioned:
            asyncio.run(make_schema(url))
            server.shell("footprint").communicate(PARTITION.read_bytes())

        async def size() -> Size:
            connection = await asyncpg.connect(url)
            try:
                await connection.execute("VACUUM")
                rows = [await connection.fetchval(f"SELECT count(*) FROM {name}") for name in TABLES]  # noqa: S608  # fixed names
                rest = [await connection.fetchval(_REST, name) for name in TABLES]
                log = await connection.fetchval("SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::bigint")
            finally:
                await connection.close()
            return Size(sum(rows), sum(rest), log)

        yield Place(url, size)


@contextmanager
def mysql_place() -> Iterator[Place]:
    with MariadbServer() as server:
        url = server.create_database("footprint")

        async def size() -> Size:
            connection = await asyncmy.connect(host="127.0.0.1", port=server.port, user="satchel", db="footprint")
            try:
                async with connection.cursor() as cursor:

                    async def ask(statement: str) -> int:
                        await cursor.execute(statement)
                        return int((await cursor.fetchone())[-1])

                    rows = [await ask(f"SELECT count(*) FROM {name}") for name in TABLES]  # noqa: S608  # fixed names
                    rest = await ask(
                        "SELECT sum(file_size) FROM information_schema.innodb_sys_tablespaces WHERE name LIKE 'footprint/%'"
                    )
                    log = await ask("SHOW GLOBAL STATUS LIKE 'Innodb_os_log_written'")
            finally:
                connection.close()
            return Size(sum(rows), rest, log)

        yield Place(url, size)


@contextmanager
def redis_place() -> Iterator[Place]:
    with RedisServer(settings={"auto-aof-rewrite-percentage": "0"}) as server:

        def figure(section: str, name: str) -> int:
            found = re.search(rf"{name}:(\d+)".encode(), server.ask("INFO", section))
            assert found is not None
            return int(found[1])

        async def size() -> Size:
            keys = re.search(rb":(\d+)", server.ask("DBSIZE"))
            assert keys is not None
            return Size(int(keys[1]), figure("memory", "used_memory"), figure("persistence", "aof_current_size"))

        yield Place(server.url(), size)


PLACES: Mapping[str, Callable[[], AbstractContextManager[Place]]] = {
    "sqlite": sqlite_place,
    "postgres": postgres_place,
    "postgres-partitioned": lambda: postgres_place(partitioned=True),
    "mysql": mysql_place,
    "redis": redis_place,
}
HEAD = """\
| store | what | rows | bytes at rest | bytes of log | a second | in one commit |
|---|---|---|---|---|---|---|"""


async def append(manager: SessionManager, ids: Sequence[str], turns: range) -> float:
    """Seconds for one writer on each of ``ids``, which may be the same, with a key on each message."""

    async def writer(number: int, session_id: str) -> None:
        for turn in turns:
            await manager.append_message(session_id, message(turn), idempotency_key=f"{number}-{turn}")

    began = time.perf_counter()
    await asyncio.gather(*(writer(number, session_id) for number, session_id in enumerate(ids)))
    return time.perf_counter() - began


async def measure(name: str, place: Place, *, sessions: int, each: int) -> list[str]:
    """Lines of the table, of ``sessions`` writers who append ``each``."""
    counting = BatchesCounted(store_at(place.url))
    lines: list[str] = []

    def add(what: str, before: Size, after: Size, *, count: int, speed: str = "", together: str = "") -> None:
        rows, rest = (after.rows - before.rows) / count, (after.rest - before.rest) / count
        log = "" if after.log is None or before.log is None else f"{(after.log - before.log) / count:,.0f}"
        lines.append(f"| {name} | {what} | {rows:.2f} | {rest:,.0f} | {log} | {speed} | {together} |")

    async with OpenStore(counting) as store:
        manager = SessionManager(store, ADA)
        before, count = await place.size(), 64 * sessions  # of which the last 64 are written to
        ids: list[str] = []
        for _ in range(sessions):
            ids = [made.session_id for made in await asyncio.gather(*(manager.create_session() for _ in range(64)))]
        add("a session, empty", before, await place.size(), count=count)

        await append(manager, ids[:sessions], range(WARM))
        before, count, counting.batches = await place.size(), sessions * each, 0
        seconds = await append(manager, ids[:sessions], range(WARM, WARM + each))
        speed, together = f"{count / seconds:,.0f}", f"{count / counting.batches:.0f}"
        add(f"a message, {sessions} writers", before, await place.size(), count=count, speed=speed, together=together)

        for what, writers in (
            (f"a message, {sessions} writers on one session", sessions),
            ("a message, one writer", 1),
        ):
            counting.batches, count = 0, writers * each
            seconds = await append(manager, ids[-1:] * writers, range(writers * each, (writers + 1) * each))
            speed, together = f"{count / seconds:,.0f}", f"{count / counting.batches:.0f}"
            lines.append(f"| {name} | {what} | | | | {speed} | {together} |")

        before, count = await place.size(), AT_ONCE * each // 4
        counting.batches = 0
        seconds = await run_cycles(store, each=each // 4)
        speed, together = f"{count / seconds:,.0f}", f"{7 * count / counting.batches:.0f}"
        add("a session with one run", before, await place.size(), count=count, speed=speed, together=together)
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.footprint", description=__doc__)
    parser.add_argument("--stores", nargs="+", choices=PLACES, default=list(PLACES), help="which stores to measure")
    parser.add_argument(
        "--sessions", type=int, choices=range(1, 65), default=64, metavar="1…64", help="a writer on each"
    )
    parser.add_argument("--each", type=int, default=200, help="messages of each writer")
    options = parser.parse_args()
    lines: list[str] = []
    for name in options.stores:
        print(f"measuring {name} …", file=sys.stderr, flush=True)
        try:
            with PLACES[name]() as place:
                lines += asyncio.run(measure(name, place, sessions=options.sessions, each=options.each))
        except ServerMissing as missing:
            print(f"{name}: {missing}", file=sys.stderr)
    print("\n".join([HEAD, *lines]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
