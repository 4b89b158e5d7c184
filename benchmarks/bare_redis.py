"""The limit for writes on Redis: the bare driver that writes the same rows into the same keys.

``python -m benchmarks.bare_redis URL SESSION WRITERS EACH`` is a process of writers on one hot session: load, decide, compare
and set, one append at a time, and again when it was too late.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from typing import Any, NamedTuple

from redis.asyncio import BlockingConnectionPool, Redis

from benchmarks.appends import message
from satchel.domain.ids import SessionRef
from satchel.stores.redis.names import Keys, Names

KEYS = Keys("satchel")
TENANT, USER = "acme", "ada"

_APPEND = """
redis.call('HSET', KEYS[1], 'revision', ARGV[1], 'record', ARGV[2])
redis.call('RPUSH', KEYS[2], ARGV[3])
redis.call('RPUSH', KEYS[3], ARGV[4])
redis.call('HSET', KEYS[4], ARGV[5], ARGV[6])
redis.call('ZADD', KEYS[5], ARGV[7], ARGV[8])
redis.call('ZADD', KEYS[6], ARGV[7], ARGV[8])
return 1
"""
_SWAP = (
    """
if redis.call('HGET', KEYS[1], 'revision') ~= ARGV[9] then return 0 end
"""
    + _APPEND
)


class Append(NamedTuple):
    keys: tuple[bytes, ...]
    values: tuple[Any, ...]


class Rows:
    """What satchel wrote, turn by turn: for each append the keys and values of the script."""

    def __init__(self, sessions: dict[bytes, dict[bytes, bytes]], turns: list[list[Append]]) -> None:
        self.sessions = sessions
        self.turns = turns

    @classmethod
    async def read(cls, url: str, session_ids: list[str]) -> Rows:
        sessions: dict[bytes, dict[bytes, bytes]] = {}
        turns: list[list[Append]] = []
        async with Redis.from_url(url) as client:
            client_any: Any = client  # its types say both what it gives and what it would give decoded
            for session_id in session_ids:
                names = KEYS.names(SessionRef(TENANT, session_id))
                kept = sessions[names.session] = await client_any.hgetall(names.session)
                events = await client_any.lrange(names.events, 0, -1)
                keys = list((await client_any.hgetall(names.keys)).items())
                keys = keys[len(keys) - len(events) :]  # the first is the creation's
                score = json.loads(kept[b"record"])["updated_at"]
                for index, (event, key) in enumerate(zip(events, keys, strict=True)):
                    if index == len(turns):
                        turns.append([])
                    values = (index, kept[b"record"], event, index + 1, *key, score + index, session_id.encode())
                    turns[index].append(Append(_keys(names), values))
        return cls(sessions, turns)

    @property
    def count(self) -> int:
        return sum(len(turn) for turn in self.turns)


def _keys(names: Names) -> tuple[bytes, ...]:
    listed = KEYS.user_list(names.bucket, TENANT, USER)
    return names.session, names.events, names.messages, names.keys, listed, names.tenant_list


async def together(url: str, rows: Rows) -> float:
    """Seconds for all rows on one connection: the appends of a turn, each to another session, in one pipeline."""
    async with Redis.from_url(url) as client:
        client_any: Any = client
        for name, fields in rows.sessions.items():
            await client_any.hset(name, mapping=fields)
        sha = await client_any.script_load(_APPEND)
        began = time.perf_counter()
        for turn in rows.turns:
            pipeline: Any = client.pipeline(transaction=False)
            for append in turn:
                pipeline.evalsha(sha, len(append.keys), *append.keys, *append.values)
            await pipeline.execute()
        return time.perf_counter() - began


async def compare_and_set(url: str, session_id: str, writers: int, each: int) -> None:
    pool = BlockingConnectionPool.from_url(url, max_connections=16, timeout=60)
    client: Any = Redis(connection_pool=pool)
    sha = await client.script_load(_SWAP)
    names = KEYS.names(SessionRef(TENANT, session_id))
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.readline)

    async def append(turn: int) -> None:
        body = json.dumps(message(turn))
        while True:
            revision, kept = await client.hmget(names.session, "revision", "record")
            record = json.loads(kept)
            record["last_seq"] = record.get("last_seq", 0) + 1
            record["updated_at"] += 1
            values = (
                *(int(revision) + 1, json.dumps(record), body, record["last_seq"], os.urandom(16), "[1,1]"),
                *(record["updated_at"], session_id, revision),
            )
            if await client.evalsha(sha, 6, *_keys(names), *values):
                return

    async def writer() -> None:
        for turn in range(each):
            await append(turn)

    await asyncio.gather(*(writer() for _ in range(writers)))
    await client.aclose()
    await pool.disconnect()


if __name__ == "__main__":
    url, session_id, writers, each = sys.argv[1:]
    asyncio.run(compare_and_set(url, session_id, int(writers), int(each)))
