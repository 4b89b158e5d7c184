"""What writers in other processes intended and were told, and what is there in the end."""

from __future__ import annotations

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
        said = await contents(manager, session_id)
        session = await manager.get_session(session_id, include=())
        assert session.version == session.last_seq == len(said)
        stored.update(said)
        for key, (where, seq) in ledger.acknowledged.items():
            if where == session_id:
                assert said[seq - 1] == key
    return stored
