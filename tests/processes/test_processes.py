"""Several processes on one SQLite file."""

from __future__ import annotations

import asyncio
import collections
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import satchel
from satchel import OpenStore, Principal, SessionManager

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


async def written(manager: SessionManager, session_ids: list[str]) -> int:
    return sum([(await manager.get_session(session_id, include=())).last_seq for session_id in session_ids])


@pytest.mark.slow
async def test_nothing_acknowledged_is_lost_when_writers_are_killed(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/shared.db"
    ledger = Ledger()
    random.seed(5)
    async with satchel.open(url) as store:
        manager = SessionManager(store, ADA)
        session_ids = [(await manager.create_session()).session_id for _ in range(4)]
        stored: collections.Counter[str] = collections.Counter()
        for kill in range(5):
            writers = [start(url, f"{kill}-{number}", 8, session_ids) for number in range(3)]
            readers = [asyncio.create_task(asyncio.to_thread(writer.communicate)) for writer in writers]
            while await written(manager, session_ids) < len(stored) + 30:  # noqa: ASYNC110  # they are other processes
                await asyncio.sleep(0.02)
            await asyncio.sleep(random.random() * 0.5)
            for writer in writers:
                writer.send_signal(signal.SIGKILL)
            for reader in readers:
                output, _ = await reader
                ledger.read(output)
            assert all(writer.returncode == -signal.SIGKILL for writer in writers)
            stored = await check(manager, session_ids, ledger)
            assert set(ledger.acknowledged) <= set(stored)
        assert len(ledger.acknowledged) > 100, "the writers hardly wrote: this shows nothing"
        # Who does not know asks again with the same key: each write is there once.
        unknown = [key for key in ledger.intended if key not in ledger.acknowledged]
        for key in unknown:
            message = await manager.append_message(
                ledger.intended[key], {"role": "user", "content": key}, idempotency_key=key
            )
            assert message.replayed == (key in stored)
        stored = await check(manager, session_ids, ledger)
        assert set(stored) == set(ledger.intended)
        assert set(stored.values()) == {1}


async def lone_writes(store: OpenStore, session_id: str, count: int) -> None:
    manager = SessionManager(store, ADA)
    for turn in range(count):
        await manager.append_message(session_id, {"role": "user", "content": f"lone-{turn}"})


@pytest.mark.slow
async def test_a_lone_writer_gets_its_turn_beside_a_process_that_commits_without_pause(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/shared.db"
    async with satchel.open(url) as store:
        manager = SessionManager(store, ADA)
        busy = [(await manager.create_session()).session_id for _ in range(8)]
        lone = (await manager.create_session()).session_id
        rival = start(url, "rival", 64, busy)
        try:
            reader = asyncio.create_task(asyncio.to_thread(rival.communicate))
            async for _ in manager.follow(busy[0], after=0):
                break  # the rival has begun
            await asyncio.wait_for(lone_writes(store, lone, 200), timeout=60)
        finally:
            rival.send_signal(signal.SIGKILL)
        output, _ = await reader
        ledger = Ledger()
        ledger.read(output)
        assert len(ledger.acknowledged) > 500, "the rival hardly wrote: this shows nothing"
        assert await contents(manager, lone) == [f"lone-{turn}" for turn in range(200)]
        await check(manager, busy, ledger)


@pytest.mark.slow
async def test_two_processes_never_both_win_on_one_version(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/shared.db"
    program = """
import asyncio, sys
import satchel
from satchel import Principal, SessionManager, VersionConflict

async def main() -> None:
    async with satchel.open(sys.argv[1]) as store:
        manager = SessionManager(store, Principal.agent(sys.argv[3], tenant_id="acme", acting_for="ada"))
        won = []
        for turn in range(150):
            seen = (await manager.get_session(sys.argv[2], include=())).version
            try:
                message = await manager.append_message(
                    sys.argv[2], {"role": "user", "content": sys.argv[3]}, expected_version=seen
                )
            except VersionConflict as conflict:
                assert conflict.current > conflict.expected == seen
            else:
                assert message.version == seen + 1
                won.append(message.version)
        print(*won)

asyncio.run(main())
"""
    async with satchel.open(url) as store:
        manager = SessionManager(store, ADA)
        session_id = (await manager.create_session()).session_id
        processes = [
            await asyncio.create_subprocess_exec(
                sys.executable, "-c", program, url, session_id, name, stdout=asyncio.subprocess.PIPE
            )
            for name in ("left", "right")
        ]
        outputs = [(await process.communicate())[0] for process in processes]
        assert [process.returncode for process in processes] == [0, 0]
        left, right = ({int(version) for version in output.split()} for output in outputs)
        assert left, "left never won: they did not meet"
        assert right, "right never won: they did not meet"
        assert not left & right
        said = await contents(manager, session_id)
        assert [version for version, name in enumerate(said, 1) if name == "left"] == sorted(left)
