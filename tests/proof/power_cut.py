"""A power cut. The database is on a disk in a file; its writers, and its server, are stopped in the middle of their work, and the
machine goes on with what the file holds at this moment. Kill -9 cannot show a missing fsync, for what was written lives on in
the memory of the system; this does."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time

import satchel
from satchel import RunManager, SessionManager
from tests.proof.disks import disk
from tests.proof.kills import WriterProcess, more
from tests.proof.ledger import Ledger
from tests.proof.program import Program, Report, Task
from tests.proof.stores import Database
from tests.proof.writer import ADA

WRITERS = 2


async def power_cut(task: Task) -> Report:
    began = time.monotonic()
    luck = random.Random(task.bounds["seed"])
    ledger = Ledger()
    unknown = 0
    with (
        disk(task.folder, megabytes=task.store.megabytes) as made,
        task.store.make(made.path, not task.weak) as database,
    ):
        async with satchel.open(database.url) as store:
            sessions = SessionManager(store, ADA)
            session_ids = [(await sessions.create_session()).session_id for _ in range(2 + WRITERS)]
        for cut in range(task.bounds["cuts"]):
            made.flush()  # what was done before is on the disk: what is written from now on is what this is about
            writers = await started(database, ledger, session_ids, name=f"c{cut}")
            try:
                await more(ledger, 50)
                await asyncio.sleep(luck.uniform(0.2, 1.2))
                stop(database, writers)
                left = await asyncio.to_thread(made.cut)
            finally:
                await asyncio.gather(*(writer.kill() for writer in writers))
            if database.server is not None:
                await asyncio.to_thread(database.server.kill)
            await asyncio.to_thread(made.replace, left)
            if database.server is not None:
                await asyncio.to_thread(database.server.start_again)
            async with satchel.open(database.url) as store:
                sessions = SessionManager(store, ADA)
                await ledger.prove(sessions, session_ids)
                if not task.weak:
                    unknown += await ledger.ask_again(sessions, RunManager(store, ADA), session_ids)
            task.say(f"{cut + 1} cuts, {len(ledger.done)} acknowledged, faults: {len(ledger.faults)}")
            if task.weak and ledger.faults:
                break
    return Report(
        figures={
            "cuts": cut + 1,
            "acknowledged": len(ledger.done),
            "lost": sum("is lost" in fault for fault in ledger.faults),
            "unknown, then once": unknown,
        },
        faults=ledger.faults,
        seconds=time.monotonic() - began,
    )


async def started(database: Database, ledger: Ledger, session_ids: list[str], *, name: str) -> list[WriterProcess]:
    return list(
        await asyncio.gather(
            *(
                WriterProcess.start(
                    database.url,
                    ledger,
                    name=f"{name}-{number}",
                    planted=database.weak_writers,
                    run_session=session_ids[number],
                    session_ids=session_ids[WRITERS:],
                )
                for number in range(WRITERS)
            )
        )
    )


def stop(database: Database, writers: list[WriterProcess]) -> None:
    """All at once, as far as one can: those that acknowledge first."""
    for pid in (*(writer.process.pid for writer in writers), *database.pids()):
        os.kill(pid, signal.SIGSTOP)


POWER_CUT = Program(
    name="power_cut",
    shows="nothing that was acknowledged is lost to a power cut",
    run=power_cut,
    bounds={"cuts": 10, "seed": 3},
    weak=("weak_setting",),
    weak_bounds={"cuts": 4},
)
