"""How soon text that streams, and an event, reach a follower in another process."""

from __future__ import annotations

import asyncio
import random
import statistics
import sys
import tempfile
import time

import satchel
from benchmarks.figures import Figure, bounded
from satchel import Attempt, Principal, RunManager, SessionManager

FOLLOWER = """
import asyncio, sys, time
import satchel
from satchel import Principal, SessionManager

async def main() -> None:
    async with satchel.open(sys.argv[1]) as store:
        sessions = SessionManager(store, Principal.user("ada", tenant_id="acme"))
        async for item in sessions.follow(sys.argv[2], after=0, text=True):
            print(time.monotonic_ns(), flush=True)

asyncio.run(main())
"""


async def delays(*, count: int) -> list[Figure]:
    """From the answer to ``add_text`` and to ``append_message`` to the arrival in a process that does nothing else."""
    agent = Principal.agent("shop", tenant_id="acme", acting_for="ada")
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{folder}/agent.db"
        async with satchel.open(url) as store:
            sessions, runs = SessionManager(store, agent), RunManager(store, agent)
            session_id = (await sessions.create_session()).session_id
            run = await runs.add_run(session_id, start=True, lease=3_600)
            attempt = Attempt(run.run_id, run.attempt)
            follower = await asyncio.create_subprocess_exec(
                sys.executable, "-c", FOLLOWER, url, session_id, stdout=asyncio.subprocess.PIPE
            )
            assert follower.stdout is not None
            text: list[float] = []
            events: list[float] = []
            try:
                for _ in range(2):  # the run is added and started
                    await follower.stdout.readline()
                for number in range(count):
                    await asyncio.sleep(random.uniform(0.03, 0.06))  # at no particular moment of its rhythm
                    await runs.add_text(session_id, attempt, "word", message=1, offset=4 * number)
                    stored = time.monotonic_ns()
                    text.append((int(await follower.stdout.readline()) - stored) / 1e6)
                    await asyncio.sleep(random.uniform(0.03, 0.06))
                    await sessions.append_message(session_id, {"role": "user", "content": "x"})
                    stored = time.monotonic_ns()
                    events.append((int(await follower.stdout.readline()) - stored) / 1e6)
            finally:
                follower.kill()
                await follower.wait()
    return [
        bounded("follow.text", "ms, p50", statistics.median(text), bound=50),
        bounded("follow.delay", "ms, p50", statistics.median(events), bound=50),
    ]
