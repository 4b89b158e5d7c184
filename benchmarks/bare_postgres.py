"""The limit for writes on PostgreSQL: bare asyncpg that writes the same rows into the same tables and indexes."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import asyncpg

from benchmarks.bare_rows import Row, in_rounds
from satchel.domain.idempotency import decode_answer

_COLUMNS = (
    "tenant_id, session_id, seq, version, kind, at, actor, run_id, refers_to, status, format, outcome, tokens,"
    " streamed, metadata, body"
)
_ONE = f"""
WITH changed AS (
    UPDATE sessions SET updated_at = $3, turns_at = $4, revision = $5, record = $6
    WHERE tenant_id = $1 AND session_id = $2
),
kept AS (
    INSERT INTO idempotency_records (tenant_id, session_id, key_hash, fingerprint, answer)
    VALUES ($1, $2, $7, $8, $9)
)
INSERT INTO events ({_COLUMNS}) VALUES ($1, $2, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23)
"""  # noqa: S608  # fixed columns
_MANY = f"""
WITH changed AS (
    UPDATE sessions AS session
    SET updated_at = new.updated_at, turns_at = new.turns_at, revision = new.revision, record = new.record
    FROM unnest($1::text[], $2::text[], $3::bigint[], $4::bigint[], $5::bigint[], $6::text[])
        AS new (tenant_id, session_id, updated_at, turns_at, revision, record)
    WHERE session.tenant_id = new.tenant_id AND session.session_id = new.session_id
),
kept AS (
    INSERT INTO idempotency_records (tenant_id, session_id, key_hash, fingerprint, answer)
    SELECT * FROM unnest($1::text[], $2::text[], $7::bytea[], $8::bytea[], $9::text[])
)
INSERT INTO events ({_COLUMNS})
SELECT * FROM unnest(
    $1::text[], $2::text[], $10::bigint[], $11::bigint[], $12::text[], $13::bigint[], $14::text[], $15::text[],
    $16::bigint[], $17::text[], $18::text[], $19::text[], $20::bigint[], $21::bigint[], $22::text[], $23::text[]
)
"""  # noqa: S608  # fixed columns


class Rows:
    """The rows that satchel wrote, in the order in which it wrote them: for each append what the statements take."""

    def __init__(self, sessions: list[Row], appends: list[Row]) -> None:
        self.sessions = sessions
        self.appends = appends

    @classmethod
    async def read(cls, url: str) -> Rows:
        connection = await asyncpg.connect(url)
        sessions = [tuple(row) for row in await connection.fetch("SELECT * FROM sessions")]
        records = {
            (row["tenant_id"], row["session_id"]): (row["turns_at"], row["record"])
            for row in await connection.fetch("SELECT tenant_id, session_id, turns_at, record FROM sessions")
        }
        keys = {}
        for row in await connection.fetch("SELECT * FROM idempotency_records"):
            seqs = decode_answer(row["answer"]).seqs
            if seqs:
                keys[(row["tenant_id"], row["session_id"], seqs[0])] = tuple(row)[2:]
        events = await connection.fetch(f"SELECT {_COLUMNS} FROM events ORDER BY at, seq, session_id")  # noqa: S608
        await connection.close()
        appends = []
        for event in events:
            ref = (event["tenant_id"], event["session_id"])
            turns_at, record = records[ref]
            key = keys[(*ref, event["seq"])]
            # updated_at and the revision move with each append, as they do for us.
            appends.append((*ref, event["at"], turns_at, event["seq"], record, *key, *tuple(event)[2:]))
        return cls(sessions, appends)

    async def fill(self, url: str) -> None:
        """The sessions, and nothing else."""
        connection = await asyncpg.connect(url)
        await connection.copy_records_to_table("sessions", records=self.sessions)
        await connection.close()


async def one_by_one(url: str, rows: Rows, *, connections: int) -> float:
    """Seconds for all rows, each append a statement and a commit; ``connections`` writers, each with one of its own."""
    pool = await asyncpg.create_pool(url, min_size=connections, max_size=connections)
    left = iter(rows.appends)

    async def writer() -> None:
        async with pool.acquire() as connection:
            for row in left:
                await connection.execute(_ONE, *row)

    await asyncio.gather(*(_warm(pool) for _ in range(connections)))
    began = time.perf_counter()
    await asyncio.gather(*(writer() for _ in range(connections)))
    took = time.perf_counter() - began
    await pool.close()
    return took


async def from_pool(url: str, rows: Rows, *, connections: int) -> float:
    """Seconds for all rows, each append a statement and a commit; a writer for each session, who takes a connection from the
    driver's pool for each statement and gives it back, as a program does that has more writers than connections."""
    pool = await asyncpg.create_pool(url, min_size=connections, max_size=connections)
    by_session: dict[Row, list[Row]] = {}
    for row in rows.appends:
        by_session.setdefault(row[:2], []).append(row)

    async def writer(appends: list[Row]) -> None:
        for row in appends:
            await pool.execute(_ONE, *row)

    await asyncio.gather(*(_warm(pool) for _ in range(connections)))
    began = time.perf_counter()
    await asyncio.gather(*(writer(appends) for appends in by_session.values()))
    took = time.perf_counter() - began
    await pool.close()
    return took


async def _warm(pool: Any) -> None:
    async with pool.acquire() as connection:
        await connection.prepare(_ONE)
        await asyncio.sleep(0.01)


async def together(url: str, rows: Rows, *, per_commit: int) -> float:
    """Seconds for all rows on one connection, ``per_commit`` appends to different sessions in one statement."""
    connection = await asyncpg.connect(url)
    await connection.execute("SET plan_cache_mode = force_generic_plan")
    await connection.prepare(_MANY)
    batches = in_rounds(rows.appends, per_commit, turn=lambda row: row[9])
    began = time.perf_counter()
    for batch in batches:
        await connection.execute(_MANY, *zip(*batch, strict=True))
    took = time.perf_counter() - began
    await connection.close()
    return took
