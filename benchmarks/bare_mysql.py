"""The limit for writes on MySQL and MariaDB: bare asyncmy that writes the same rows into the same tables and indexes."""

from __future__ import annotations

import asyncio
import time
from typing import Any
from urllib.parse import urlsplit

import asyncmy

from benchmarks.bare_rows import Row, in_rounds
from satchel.domain.idempotency import decode_answer

_SESSION = (
    "tenant_id, session_id, user_id, listed_for, status, updated_at, turns_at, retention, revision, ready_agent,"
    " sweep_at, lease_until, lease_clock, record"
)
_EVENT = (
    "tenant_id, session_id, seq, version, kind, at, actor, run_id, refers_to, status, format, outcome, tokens,"
    " streamed, metadata, body"
)
_UPDATE = "UPDATE sessions SET updated_at = %s, revision = %s, record = %s WHERE tenant_id = %s AND session_id = %s"


def _insert(table: str, columns: str) -> str:
    places = ", ".join(["%s"] * (columns.count(",") + 1))
    return f"INSERT INTO {table} ({columns}) VALUES ({places})"  # noqa: S608  # fixed names


# Of all ways to update many rows at once the quickest: the rows are there, so of each only what changed is written.
_MANY = _insert("sessions", _SESSION) + (
    " ON DUPLICATE KEY UPDATE updated_at = VALUES(updated_at), revision = VALUES(revision), record = VALUES(record)"
)
_SAY = _insert("events", _EVENT)
_KEEP = _insert("idempotency_records", "tenant_id, session_id, key_hash, fingerprint, answer")


async def connect(url: str) -> Any:
    parts = urlsplit(url)
    return await asyncmy.connect(
        host=parts.hostname,
        port=parts.port,
        user=parts.username,
        database=parts.path.removeprefix("/"),
        autocommit=False,
        init_command="SET NAMES binary",
    )


class Rows:
    """The rows that satchel wrote, in the order in which it wrote them: of each append its session, event and key."""

    def __init__(self, sessions: list[Row], appends: list[tuple[Row, Row, Row]]) -> None:
        self.sessions = sessions
        self.appends = appends

    @classmethod
    async def read(cls, url: str) -> Rows:
        connection = await connect(url)
        async with connection.cursor() as cursor:
            await cursor.execute(f"SELECT {_SESSION} FROM sessions")  # noqa: S608  # fixed names
            sessions = {row[:2]: row for row in await cursor.fetchall()}
            await cursor.execute("SELECT * FROM idempotency_records")
            keys: dict[Row, Row] = {}
            for row in await cursor.fetchall():
                seqs = decode_answer(row[4]).seqs
                if seqs:
                    keys[(*row[:2], seqs[0])] = row
            await cursor.execute(f"SELECT {_EVENT} FROM events ORDER BY at, seq, session_id")  # noqa: S608  # fixed names
            events = await cursor.fetchall()
        connection.close()
        appends = []
        for event in events:
            session = list(sessions[event[:2]])
            # updated_at and the revision move with each append, as they do for us.
            session[5], session[8] = event[5], event[2]
            appends.append((tuple(session), event, keys[event[:3]]))
        return cls(list(sessions.values()), appends)

    async def fill(self, url: str) -> None:
        """The sessions, and nothing else."""
        connection = await connect(url)
        async with connection.cursor() as cursor:
            await cursor.executemany(_insert("sessions", _SESSION), self.sessions)
        await connection.commit()
        connection.close()


async def one_by_one(url: str, rows: Rows, *, connections: int) -> float:
    """Seconds for all rows, each append a commit of three statements; on ``connections`` at once."""
    lines = [await connect(url) for _ in range(connections)]
    left = iter(rows.appends)

    async def writer(line: Any) -> None:
        async with line.cursor() as cursor:
            for session, event, key in left:
                await cursor.execute(_UPDATE, (session[5], session[8], session[13], *session[:2]))
                await cursor.execute(_SAY, event)
                await cursor.execute(_KEEP, key)
                await line.commit()

    began = time.perf_counter()
    await asyncio.gather(*(writer(line) for line in lines))
    took = time.perf_counter() - began
    for line in lines:
        line.close()
    return took


async def together(url: str, rows: Rows, *, per_commit: int) -> float:
    """Seconds for all rows on one connection, ``per_commit`` appends to different sessions in one commit of three statements."""
    line = await connect(url)
    batches = in_rounds(rows.appends, per_commit, turn=lambda append: append[1][2])
    began = time.perf_counter()
    async with line.cursor() as cursor:
        for batch in batches:
            sessions, events, keys = zip(*batch, strict=True)
            await cursor.executemany(_MANY, sessions)
            await cursor.executemany(_SAY, events)
            await cursor.executemany(_KEEP, keys)
            await line.commit()
    took = time.perf_counter() - began
    line.close()
    return took
