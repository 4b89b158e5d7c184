"""Many followers of many sessions in one process: none loses anything, and each hears soon."""

from __future__ import annotations

import asyncio
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence

import msgspec
import psutil

import satchel
from benchmarks.figures import Figure, bounded
from satchel import Principal, SessionManager

ADA = Principal.user("ada", tenant_id="acme")
FOLLOWERS = 1_000
SESSIONS = 100
RATE = 200  # appends per second, half of them from each of two processes
MIB = 1024 * 1024


class Heard(msgspec.Struct):
    """What the process of the followers tells. ``delays`` in milliseconds, of every arrival."""

    delays: list[float]
    lost: int
    idle: float
    most: float


def stamped() -> dict[str, str]:
    """A message that says when it was handed in."""
    return {"role": "user", "content": f"{time.monotonic_ns():020d} {'x' * 400}"}


def since(content: str) -> float:
    """Milliseconds."""
    return (time.monotonic_ns() - int(content[:20])) / 1e6


async def thousand(*, seconds: float) -> list[Figure]:
    """1,000 followers on 100 sessions in one process; half of the appends are made there, half in this one."""
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{folder}/followed.db"
        async with satchel.open(url) as store:
            sessions = SessionManager(store, ADA)
            ids = [(await sessions.create_session()).session_id for _ in range(SESSIONS)]
            followers = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "benchmarks.followers", url, str(seconds), *ids),
                stdout=asyncio.subprocess.PIPE,
                limit=64 * MIB,
            )
            assert followers.stdout is not None
            try:
                await followers.stdout.readline()  # all of them follow
                await append_steadily(sessions, ids, seconds=seconds)
                heard = msgspec.json.decode(await followers.stdout.read(), type=Heard)
            except BaseException:
                followers.kill()
                raise
            finally:
                await followers.wait()
    arrivals = int(seconds * RATE) * FOLLOWERS // SESSIONS
    assert len(heard.delays) + heard.lost == arrivals
    return [
        bounded("follow.1000", "events lost", heard.lost, bound=0),
        bounded("follow.1000", "ms, p99", statistics.quantiles(heard.delays, n=100)[98], bound=500),
        bounded("follow.1000", "MiB above idle", heard.most - heard.idle, bound=60),
    ]


async def append_steadily(sessions: SessionManager, ids: Sequence[str], *, seconds: float) -> None:
    """Half of the appends, session after session, each at its time, however long the others take."""
    began = time.monotonic()
    appending: list[asyncio.Task[object]] = []
    for number in range(int(seconds * RATE) // 2):
        await asyncio.sleep(max(0.0, began + number * 2 / RATE - time.monotonic()))
        append = sessions.append_message(ids[number % len(ids)], stamped())
        appending.append(asyncio.ensure_future(append))
    await asyncio.gather(*appending)


async def follow_many(url: str, seconds: float, ids: Sequence[str]) -> None:
    delays: list[float] = []
    resident: list[int] = []
    process = psutil.Process()

    def look() -> None:
        resident.append(process.memory_info().rss)

    async with satchel.open(url) as store:
        sessions = SessionManager(store, ADA)
        for session_id in ids:
            await sessions.get_session(session_id)
        look()
        idle = resident[0]
        expected = int(seconds * RATE) // SESSIONS

        async def follow(session_id: str) -> int:
            """How many of the events did not come, or came in another order."""
            seen = 0
            async for event in sessions.follow(session_id, after=0):
                delays.append(since(event.data["content"]))
                seen += 1
                assert event.seq == seen
                if seen == expected:
                    break
            return seen

        following = [asyncio.create_task(follow(ids[number % SESSIONS])) for number in range(FOLLOWERS)]
        await asyncio.sleep(1)
        os.write(1, b"ready\n")
        appending = asyncio.create_task(append_steadily(sessions, ids, seconds=seconds))
        end = time.monotonic() + seconds + 20
        while time.monotonic() < end and not all(task.done() for task in following):
            await asyncio.sleep(0.1)
            look()
        await appending
        for task in following:
            task.cancel()
        await asyncio.gather(*following, return_exceptions=True)
    lost = int(seconds * RATE) * FOLLOWERS // SESSIONS - len(delays)
    os.write(1, msgspec.json.encode(Heard(delays=delays, lost=lost, idle=idle / MIB, most=max(resident) / MIB)))


if __name__ == "__main__":
    asyncio.run(follow_many(sys.argv[1], float(sys.argv[2]), sys.argv[3:]))
