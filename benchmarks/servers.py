"""Appends and reads on database servers, each beside its bare driver on the same server."""

from __future__ import annotations

import asyncio
import itertools
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, NamedTuple, Protocol

import satchel
from benchmarks import bare_mysql, bare_postgres
from benchmarks.appends import ADA, write_from
from benchmarks.figures import Figure, compared, in_turn
from benchmarks.reads import long_sessions
from satchel import SessionManager
from satchel.servers import MariadbServer, PostgresServer

Group = Callable[[], Awaitable[list[Figure]]]

WARM = 8  # appends of each writer before the clock starts: connections and plans are there


class Server(Protocol):
    def start(self) -> None: ...
    def stop(self) -> None: ...
    def create_database(self, name: str) -> str: ...
    def drop_database(self, name: str) -> None: ...


class Bare(Protocol):
    """A module that writes rows by the driver alone."""

    @property
    def Rows(self) -> Any: ...  # noqa: N802  # a class: what satchel wrote, in order

    async def one_by_one(self, url: str, rows: Any, /, *, connections: int) -> float: ...

    async def together(self, url: str, rows: Any, /, *, per_commit: int) -> float: ...


class Kind(NamedTuple):
    """One kind of server, and how near to its bare driver the figures should come."""

    server: Callable[[], Server]
    bare: Bare
    serial: float
    together: float
    one_each: dict[str, tuple[Writing, float]]  # one statement for each append, on 16 connections


Writing = Callable[[str, Any], Awaitable[float]]  # all rows to the database at a URL: seconds


def one_each(bare: Bare) -> Writing:
    """16 writers, each with a connection of its own."""
    return lambda url, rows: bare.one_by_one(url, rows, connections=16)


def from_pool(url: str, rows: Any) -> Awaitable[float]:
    """As many writers as sessions, who share a pool of 16."""
    return bare_postgres.from_pool(url, rows, connections=16)


KINDS = {
    "postgres": Kind(
        server=lambda: PostgresServer(settings={"max_wal_size": "4GB"}),
        bare=bare_postgres,
        serial=0.6,
        together=0.45,
        one_each={"pool": (from_pool, 2.0), "connections": (one_each(bare_postgres), 1.2)},
    ),
    "mysql": Kind(
        server=lambda: MariadbServer(settings={"innodb_log_file_size": "1G"}),
        bare=bare_mysql,
        serial=0.5,
        together=0.3,
        one_each={"connections": (one_each(bare_mysql), 1.5)},
    ),
}


class Databases:
    """New ones on one private server of ``kind``, which is started when the first is asked for."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.bare = KINDS[kind].bare
        self._server: Server | None = None
        self._numbers = itertools.count(1)

    def new(self) -> str:
        if self._server is None:
            self._server = KINDS[self.kind].server()
            self._server.start()
        return self._server.create_database(f"bench_{next(self._numbers)}")

    def drop(self, url: str) -> None:
        assert self._server is not None
        self._server.drop_database(url.rpartition("/")[2])

    def stop(self) -> None:
        if self._server is not None:
            self._server.stop()


async def prepared(databases: Databases, rows: Any = None) -> str:
    """An empty database with our tables; with the sessions of ``rows``."""
    url = databases.new()
    async with satchel.open(url):
        pass
    if rows is not None:
        await rows.fill(url)
    return url


async def appends(
    databases: Databases, name: str, *, writers: int, sessions: int, each: int, rounds: int
) -> list[Figure]:
    """Against bare statements: with one writer one for each append, else one for ``writers`` appends, and one for each."""
    count = writers * each
    kind = KINDS[databases.kind]

    async def ours() -> float:
        url = await prepared(databases)
        async with satchel.open(url) as store:
            took = await write_from(store, writers=writers, sessions=sessions, each=each, warm=WARM)
        databases.drop(url)
        return took / count * 1e6

    sample = await prepared(databases)
    async with satchel.open(sample) as store:
        await write_from(store, writers=writers, sessions=sessions, each=each)
    rows = await databases.bare.Rows.read(sample)
    assert len(rows.appends) == count

    def bare(write: Writing) -> Callable[[], Awaitable[float]]:
        async def limit() -> float:
            url = await prepared(databases, rows)
            took = await write(url, rows)
            databases.drop(url)
            return took / count * 1e6

        return limit

    if writers == 1:
        alone = bare(lambda url, rows: kind.bare.one_by_one(url, rows, connections=1))
        return [compared(name, "µs/append", *await in_turn(ours, alone, rounds=rounds), reach=kind.serial)]
    in_one = bare(lambda url, rows: kind.bare.together(url, rows, per_commit=writers))
    figures = [compared(name, "µs/append", *await in_turn(ours, in_one, rounds=rounds), reach=kind.together)]
    for how, (write, reach) in kind.one_each.items():
        times = await in_turn(ours, bare(write), rounds=rounds)
        figures.append(compared(f"{name}.{how}", "µs/append", *times, reach=reach))
    return figures


async def hot(databases: Databases, *, each: int, rounds: int) -> Figure:
    """50 writers in two processes on one session, beside the same by load, decide, compare and set."""

    async def measure(kind: str) -> float:
        url = await prepared(databases)
        async with satchel.open(url) as store:
            manager = SessionManager(store, ADA)
            session_id = (await manager.create_session()).session_id
            processes = [
                await asyncio.create_subprocess_exec(
                    *(sys.executable, "-m", "benchmarks.rivals", kind, url, session_id, "25", str(each)),
                    stdin=asyncio.subprocess.PIPE,
                    stdout=asyncio.subprocess.PIPE,
                )
                for _ in range(2)
            ]
            for process in processes:
                assert process.stdout is not None
                assert await process.stdout.readline() == b"ready\n"
            began = time.perf_counter()
            codes = await asyncio.gather(*(_go(process) for process in processes))
            took = time.perf_counter() - began
            assert codes == [0, 0]
            if kind == "satchel":
                session = await manager.get_session(session_id, include=())
                assert session.message_count == session.last_seq == session.version == 50 * each, "an append is lost"
        databases.drop(url)
        return took / (50 * each) * 1e6

    figures = await in_turn(lambda: measure("satchel"), lambda: measure("bare"), rounds=rounds)
    return compared(f"{databases.kind}.append.50x1", "µs/append", *figures, reach=3.0)


async def _go(process: asyncio.subprocess.Process) -> int:
    await process.communicate(b"go\n")
    assert process.returncode is not None
    return process.returncode


@asynccontextmanager
async def opened(databases: Databases) -> AsyncIterator[satchel.OpenStore]:
    url = databases.new()
    async with satchel.open(url) as store:
        yield store
    databases.drop(url)


def groups(databases: Databases, *, quick: bool) -> dict[str, Group]:
    rounds = 3 if quick else 9
    each = 30 if quick else 60
    name = databases.kind

    async def serial() -> list[Figure]:
        return await appends(databases, f"{name}.append.serial", writers=1, sessions=1, each=20 * each, rounds=rounds)

    async def many() -> list[Figure]:
        return await appends(databases, f"{name}.append.64x64", writers=64, sessions=64, each=2 * each, rounds=rounds)

    async def on_one() -> list[Figure]:
        return [await hot(databases, each=each, rounds=min(rounds, 5))]

    async def long() -> list[Figure]:
        return await long_sessions(
            lambda: opened(databases), prefix=f"{name}.", rounds=rounds, calls=30 if quick else 60, reach_of_page=0.7
        )

    return {
        f"{name}.append.serial": serial,
        f"{name}.append.64x64": many,
        f"{name}.append.50x1": on_one,
        f"{name}.long": long,
    }
