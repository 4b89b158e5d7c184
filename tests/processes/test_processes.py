"""Several processes on one SQLite file."""

from __future__ import annotations

import asyncio
import collections
import random
import signal
from pathlib import Path

import pytest

import satchel
from satchel import OpenStore, SessionManager
from tests.processes.ledger import ADA, Ledger, check, contents, start
from tests.processes.rivals import rival_processes


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
    async with satchel.open(url) as store:
        manager = SessionManager(store, ADA)
        session_id = (await manager.create_session()).session_id
        left, right = await rival_processes(url, session_id)
        assert left, "left never won: they did not meet"
        assert right, "right never won: they did not meet"
        assert not left & right
        said = await contents(manager, session_id)
        assert [version for version, name in enumerate(said, 1) if name == "left"] == sorted(left)
