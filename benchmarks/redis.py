"""Appends and reads on Redis, beside the bare driver on the same server, which writes each append to its disk."""

from __future__ import annotations

import asyncio
import re
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import satchel
from benchmarks import bare_redis
from benchmarks.appends import ADA, BODY_BYTES, message, write_from
from benchmarks.figures import Figure, bounded, compared, in_turn
from benchmarks.reads import long_sessions
from satchel import SessionManager
from satchel.servers import RedisServer

Group = Callable[[], Awaitable[list[Figure]]]

WARM = 8  # appends of each writer before the clock starts


class Databases:
    """An empty one at a time, on one private server, which is started when the first is asked for."""

    def __init__(self) -> None:
        self._server: RedisServer | None = None

    def emptied(self) -> str:
        if self._server is None:
            self._server = RedisServer()
            self._server.start()
        self._server.ask("FLUSHALL", "SYNC")
        return self._server.url()

    def used(self) -> int:
        """Bytes of memory."""
        assert self._server is not None
        found = re.search(rb"used_memory:(\d+)", self._server.ask("INFO", "memory"))
        assert found is not None
        return int(found[1])

    def stop(self) -> None:
        if self._server is not None:
            self._server.stop()


async def appends(databases: Databases, *, writers: int, each: int, rounds: int) -> Figure:
    async def ours() -> float:
        async with satchel.open(databases.emptied()) as store:
            took = await write_from(store, writers=writers, sessions=writers, each=each, warm=WARM)
        return took / (writers * each) * 1e6

    sample = databases.emptied()
    async with satchel.open(sample) as store:
        await write_from(store, writers=writers, sessions=writers, each=each)
        listed = await SessionManager(store, ADA).list_sessions(limit=writers)
    rows = await bare_redis.Rows.read(sample, [session.session_id for session in listed])
    assert rows.count == writers * each

    async def limit() -> float:
        return await bare_redis.together(databases.emptied(), rows) / rows.count * 1e6

    return compared("redis.append.64x64", "µs/append", *await in_turn(ours, limit, rounds=rounds), reach=0.35)


async def hot(databases: Databases, *, each: int, rounds: int) -> Figure:
    """50 writers in two processes on one session, beside the same by load, decide, compare and set."""

    async def measure(*program: str) -> float:
        url = databases.emptied()
        async with satchel.open(url) as store:
            manager = SessionManager(store, ADA)
            session_id = (await manager.create_session()).session_id
            processes = [
                await asyncio.create_subprocess_exec(
                    *(sys.executable, "-m", *program, url, session_id, "25", str(each)),
                    stdin=asyncio.subprocess.PIPE,
                    stdout=asyncio.subprocess.PIPE,
                )
                for _ in range(2)
            ]
            for process in processes:
                assert process.stdout is not None
                assert await process.stdout.readline() == b"ready\n"
            began = time.perf_counter()
            await asyncio.gather(*(process.communicate(b"go\n") for process in processes))
            took = time.perf_counter() - began
            assert [process.returncode for process in processes] == [0, 0]
            if "satchel" in program:
                session = await manager.get_session(session_id, include=())
                assert session.message_count == session.last_seq == session.version == 50 * each, "an append is lost"
        return took / (50 * each) * 1e6

    figures = await in_turn(
        lambda: measure("benchmarks.rivals", "satchel"), lambda: measure("benchmarks.bare_redis"), rounds=rounds
    )
    return compared("redis.append.50x1", "µs/append", *figures, reach=3.0)


async def memory(databases: Databases) -> Figure:
    """What 1,000 messages of 500 bytes take of the server's memory, a key on each, beside the bytes of their JSON."""
    async with satchel.open(databases.emptied()) as store:
        manager = SessionManager(store, ADA)
        session_id = (await manager.create_session()).session_id
        before = databases.used()
        calls = (manager.append_message(session_id, message(n), idempotency_key=str(n)) for n in range(1_000))
        await asyncio.gather(*calls)
        return bounded(
            "redis.bytes", "memory ÷ message bytes", (databases.used() - before) / (1_000 * BODY_BYTES), bound=1.8
        )


@asynccontextmanager
async def opened(databases: Databases) -> AsyncIterator[satchel.OpenStore]:
    async with satchel.open(databases.emptied()) as store:
        yield store


def groups(databases: Databases, *, quick: bool) -> dict[str, Group]:
    rounds = 3 if quick else 9
    each = 30 if quick else 60

    async def many() -> list[Figure]:
        return [await appends(databases, writers=64, each=2 * each, rounds=rounds)]

    async def on_one() -> list[Figure]:
        return [await hot(databases, each=each, rounds=min(rounds, 5))]

    async def size() -> list[Figure]:
        return [await memory(databases)]

    async def long() -> list[Figure]:
        return await long_sessions(
            lambda: opened(databases), prefix="redis.", rounds=rounds, calls=30 if quick else 60, reach_of_page=0.7
        )

    return {"redis.append.64x64": many, "redis.append.50x1": on_one, "redis.bytes": size, "redis.long": long}
