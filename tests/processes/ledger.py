"""What writers in other processes intended and were told, and what is there in the end."""

from __future__ import annotations

import asyncio
import collections
import os
import subprocess
import sys
from pathlib import Path

from satchel import Principal, SessionManager

WRITER = Path(__file__).with_name("writer.py")
ADA = Principal.agent("writer", tenant_id="acme", acting_for="ada")


class Ledger:
    """What the writers intended, and what was acknowledged to them."""

    def __init__(self) -> None:
        self.intended: dict[str, str] = {}
        self.acknowledged: dict[str, tuple[str, int]] = {}

    def read(self, output: bytes) -> None:
        for line in output.split(b"\n")[:-1]:  # the last is empty, or cut off by the kill
            kind, key, session_id, *seq = line.decode().split()
            if kind == "I":
                self.intended[key] = session_id
            else:
                self.acknowledged[key] = (session_id, int(seq[0]))


def start(url: str, name: str, tasks: int, session_ids: list[str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, str(WRITER), url, name, str(tasks), *session_ids],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )


async def contents(manager: SessionManager, session_id: str) -> list[str]:
    """Of all messages; and that their seqs have no gap."""
    found: list[str] = []
    cursor: str | None = None
    while True:
        page = await manager.messages(session_id, limit=1000, cursor=cursor)
        assert [message.seq for message in page] == list(range(len(found) + 1, len(found) + len(page) + 1))
        found.extend(message.content for message in page)
        cursor = page.next
        if cursor is None:
            return found


async def check(manager: SessionManager, session_ids: list[str], ledger: Ledger) -> collections.Counter[str]:
    """Each acknowledged append is where it was said to be; how often each key is stored."""
    stored: collections.Counter[str] = collections.Counter()
    for session_id in session_ids:
        while True:  # what a killed writer had handed to its server may land after it, and between two looks
            before = await manager.get_session(session_id, include=())
            said = await contents(manager, session_id)
            session = await manager.get_session(session_id, include=())
            if session.version == before.version:
                break
        assert session.version == session.last_seq == len(said)
        stored.update(said)
        for key, (where, seq) in ledger.acknowledged.items():
            if where == session_id:
                assert said[seq - 1] == key
    return stored


async def until_written(manager: SessionManager, session_ids: list[str], count: int) -> None:
    """In all sessions together; however busy the machine is."""
    async with asyncio.timeout(60):
        while True:
            sessions = [await manager.get_session(session_id, include=()) for session_id in session_ids]
            if sum(session.message_count for session in sessions) >= count:
                return
            await asyncio.sleep(0.1)


async def until_each_has_written(manager: SessionManager, session_id: str, count: int) -> None:
    """The writers "0" and "1", since both are there: however busy the machine is, and whichever of them has to wait for it."""
    async with asyncio.timeout(60):
        while min(written_together(await contents(manager, session_id)).values()) < count:  # noqa: ASYNC110  # other processes
            await asyncio.sleep(0.2)


def written_together(said: list[str]) -> dict[str, int]:
    """How much each of the writers "0" and "1" wrote since the second of them began."""
    writers = [key.split("-")[0] for key in said]
    if len(set(writers)) < 2:
        return {"0": 0, "1": 0}
    both = writers[max(writers.index("0"), writers.index("1")) :]
    return {name: both.count(name) for name in ("0", "1")}
