"""Followers that are cut again and again assemble exactly the log, and show nothing that is not in it."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

import satchel
from satchel import Attempt, Principal, RunManager, SessionManager
from tests.streams.reader import Reader

AGENT = Principal.agent("shop", tenant_id="acme", acting_for="ada")
USER = Principal.user("ada", tenant_id="acme")


@pytest.mark.parametrize("seed", range(3))
async def test_a_follower_that_is_cut_50_times_assembles_the_log_and_the_text(tmp_path: Path, seed: int) -> None:
    luck = random.Random(seed)
    url = f"sqlite:///{tmp_path}/agent.db"
    async with satchel.open(url) as store, satchel.open(url) as elsewhere:
        sessions, runs = SessionManager(store, AGENT), RunManager(store, AGENT)
        session_id = (await sessions.create_session()).session_id
        reader, cuts = Reader(), 0
        done = asyncio.Event()

        async def speak() -> None:
            for turn in range(1_000):  # however busy the machine is, the reader gets to see enough
                run = await runs.add_run(session_id, start=True)
                attempt = Attempt(run.run_id, run.attempt)
                numbers = range(1, luck.randint(1, 3) + 1)
                texts = dict.fromkeys(numbers, "")
                for _ in range(luck.randint(1, 12)):
                    number = luck.choice(numbers)
                    piece = luck.choice(["修", "a ", "😀", "word "]) * luck.randint(1, 4)
                    end = await runs.add_text(session_id, attempt, piece, message=number, offset=len(texts[number]))
                    texts[number] += piece
                    assert end == len(texts[number])
                for number in numbers:
                    if texts[number] and luck.random() < 0.6:
                        answer = {"role": "assistant", "content": texts[number] + "." * luck.randint(0, 2)}
                        await runs.end_text(session_id, attempt, answer, message=number)
                await runs.complete_run(session_id, attempt)
                if cuts >= 50 and turn > 20 and len(reader.said) > 20:
                    break
            done.set()

        async def read() -> None:
            nonlocal cuts
            watching = SessionManager(elsewhere, USER)
            last = False
            while not last:
                last = done.is_set()
                position = reader.position if luck.random() < 0.5 else None
                items = watching.follow(session_id, after=reader.last_seq, text=True, position=position)
                enough = luck.randint(1, 12)
                try:
                    async with asyncio.timeout(0.3 if last else luck.choice([0.002, 0.02, 1])):
                        async for item in items:
                            reader.take(item)
                            enough -= 1
                            if enough <= 0 and not last:
                                break
                except TimeoutError:
                    pass
                cuts += 1

        await asyncio.gather(speak(), read())
        log = [event async for event in all_events(sessions, session_id)]
        reader.check_whole(log)
        assert cuts >= 50
        assert len(reader.said) > 20, "hardly a message was seen while it was said: this shows nothing"


async def all_events(sessions: SessionManager, session_id: str):  # type: ignore[no-untyped-def]  # AsyncIterator[Event]
    after = 0
    while page := (await sessions.events(session_id, after=after, limit=500)).items:
        for event in page:
            yield event
        after = page[-1].seq
