"""A process of writers on one hot session: ``python -m benchmarks.rivals satchel|bare URL SESSION WRITERS EACH``.

``bare`` loads, decides and compares the revision one append at a time, and tries again when it was too late.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Any

import asyncpg

import satchel
from benchmarks import bare_mysql
from benchmarks.appends import ADA, message
from satchel import SessionManager

_SWAP = """
WITH changed AS (
    UPDATE sessions SET revision = $3 + 1, record = $4, updated_at = $5
    WHERE tenant_id = $1 AND session_id = $2 AND revision = $3
    RETURNING revision
),
kept AS (
    INSERT INTO idempotency_records (tenant_id, session_id, key_hash, fingerprint, answer)
    SELECT $1, $2, $6, $6, '[1,1]' FROM changed
),
said AS (
    INSERT INTO events (tenant_id, session_id, seq, version, kind, at, actor, body)
    SELECT $1, $2, $3 + 1, $3 + 1, 'message', $5, 'agent:shop', $7 FROM changed
)
SELECT revision FROM changed
"""


async def with_satchel(url: str, session_id: str, writers: int, each: int) -> None:
    async with satchel.open(url) as store:
        manager = SessionManager(store, ADA)
        await manager.get_session(session_id)
        await _begin()

        async def writer() -> None:
            for turn in range(each):
                await manager.append_message(session_id, message(turn))

        await asyncio.gather(*(writer() for _ in range(writers)))


async def with_asyncpg(url: str, session_id: str, writers: int, each: int) -> None:
    pool = await asyncpg.create_pool(url, min_size=16, max_size=16)

    async def append(connection: Any, turn: int) -> None:
        body = json.dumps(message(turn))
        while True:
            row = await connection.fetchrow(
                "SELECT revision, updated_at, record FROM sessions WHERE tenant_id = 'acme' AND session_id = $1",
                session_id,
            )
            record = json.dumps(json.loads(row["record"]))
            values = ("acme", session_id, row["revision"], record, row["updated_at"] + 1, os.urandom(16), body)
            if await connection.fetch(_SWAP, *values):
                return

    async def writer() -> None:
        for turn in range(each):
            async with pool.acquire() as connection:
                await append(connection, turn)

    await _begin()
    await asyncio.gather(*(writer() for _ in range(writers)))
    await pool.close()


async def with_asyncmy(url: str, session_id: str, writers: int, each: int) -> None:
    lines: asyncio.Queue[Any] = asyncio.Queue()
    for _ in range(16):
        lines.put_nowait(await bare_mysql.connect(url))

    async def append(line: Any, turn: int) -> None:
        body, key = json.dumps(message(turn)), os.urandom(16)
        async with line.cursor() as cursor:
            while True:
                await cursor.execute(
                    "SELECT revision, updated_at, record FROM sessions WHERE tenant_id = 'acme' AND session_id = %s",
                    (session_id,),
                )
                ((revision, updated_at, record),) = await cursor.fetchall()
                await line.commit()  # the next look is another snapshot
                changed = await cursor.execute(
                    "UPDATE sessions SET revision = %s, record = %s, updated_at = %s"
                    " WHERE tenant_id = 'acme' AND session_id = %s AND revision = %s",
                    (revision + 1, json.dumps(json.loads(record)), updated_at + 1, session_id, revision),
                )
                if not changed:
                    await line.rollback()
                    continue
                await cursor.execute(
                    "INSERT INTO idempotency_records (tenant_id, session_id, key_hash, fingerprint, answer)"
                    " VALUES ('acme', %s, %s, %s, '[1,1]')",
                    (session_id, key, key),
                )
                await cursor.execute(
                    "INSERT INTO events (tenant_id, session_id, seq, version, kind, at, actor, body)"
                    " VALUES ('acme', %s, %s, %s, 'message', %s, 'agent:shop', %s)",
                    (session_id, revision + 1, revision + 1, updated_at + 1, body),
                )
                await line.commit()
                return

    async def writer() -> None:
        for turn in range(each):
            line = await lines.get()
            await append(line, turn)
            lines.put_nowait(line)

    await _begin()
    await asyncio.gather(*(writer() for _ in range(writers)))
    while not lines.empty():
        lines.get_nowait().close()


async def _begin() -> None:
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.readline)


if __name__ == "__main__":
    kind, url, session_id, writers, each = sys.argv[1:]
    bare = with_asyncmy if url.startswith("mysql:") else with_asyncpg
    main = with_satchel if kind == "satchel" else bare
    asyncio.run(main(url, session_id, int(writers), int(each)))
