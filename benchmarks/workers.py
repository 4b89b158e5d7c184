"""How soon a worker in another process begins with a run."""

from __future__ import annotations

import asyncio
import os
import random
import statistics
import sys
import tempfile
import time
from pathlib import Path

import satchel
from benchmarks.figures import Figure, bounded
from satchel import Principal, RunManager, SessionManager

AGENT = """
import os, time

async def agent(ctx):
    os.write(1, b"%d\\n" % time.monotonic_ns())
"""


async def pickup(*, runs: int) -> list[Figure]:
    """From the answer to ``add_run`` to the first line of agent code; the worker has nothing else to do."""
    ada = Principal.user("ada", tenant_id="acme")
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "timed.py").write_text(AGENT, encoding="utf-8")  # noqa: ASYNC240  # a small local file
        async with satchel.open(f"sqlite:///{folder}/agent.db") as store:
            sessions, queue = SessionManager(store, ada), RunManager(store, ada)
            worker = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "satchel", "worker", "--agent", "timed:agent", "--store"),
                f"sqlite:///{folder}/agent.db",
                cwd=folder,
                env={name: value for name, value in os.environ.items() if not name.startswith("SATCHEL_")},
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
            )
            assert worker.stdout is not None
            try:
                delays: list[float] = []
                for number in range(runs + 1):
                    session_id = (await sessions.create_session()).session_id
                    await asyncio.sleep(random.uniform(0.03, 0.06))  # at no particular moment of the worker's rhythm
                    await queue.add_run(session_id, agent="agent")
                    added = time.monotonic_ns()
                    began = int(await worker.stdout.readline())
                    if number:  # the first waited for the worker's start
                        delays.append((began - added) / 1e6)
            finally:
                worker.kill()
                await worker.wait()
    return [
        bounded("run.pickup", "ms, p50", statistics.median(delays), bound=50),
        bounded("run.pickup", "ms, p99", statistics.quantiles(delays, n=100)[98], bound=250),
    ]
