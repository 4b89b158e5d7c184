"""A disk that runs full under its writers, again and again, and has room again."""

from __future__ import annotations

import asyncio
import collections
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

import satchel
from satchel import RunManager, SatchelError, SessionManager
from satchel.errors import OutcomeUnknown, StoreBusy, StoreUnavailable
from tests.proof.disks import disk
from tests.proof.keeping import Keeper
from tests.proof.kills import AWAITED, more
from tests.proof.ledger import Ledger
from tests.proof.planted import open_planted
from tests.proof.program import EVERYWHERE, Program, Report, Task
from tests.proof.stores import Database
from tests.proof.writer import ADA, Writer

ROOM = 1 << 20  # bytes that are left when it gets tight
TASKS = 8
REFUSALS = 20  # that are waited for: the disk is full


class Refusals:
    """What the writers hear while the disk is full."""

    def __init__(self, sessions: SessionManager) -> None:
        self._sessions = sessions
        self.heard: collections.Counter[str] = collections.Counter()

    async def probe(self, session_id: str) -> None:
        try:
            await self._sessions.append_message(session_id, {"role": "user", "content": ""})
        except (StoreUnavailable, OutcomeUnknown, StoreBusy) as error:
            self.heard[error.code] += 1
        except SatchelError as error:
            self.heard[f"WRONG {error.code}"] += 1

    async def until_full(self, session_id: str) -> None:
        target = self.heard.total() + REFUSALS
        async with asyncio.timeout(AWAITED):
            while self.heard.total() < target:
                await self.probe(session_id)
                await asyncio.sleep(0.01)


async def full_disk(task: Task) -> Report:
    size = task.store.megabytes + task.bounds["megabytes"]
    with disk(task.folder, megabytes=size) as made, task.store.make(made.path, True) as database:
        report = await filled(task, database, fill=lambda: made.fill(but=ROOM), make_room=made.make_room)
        if not task.store.has_server:
            check_file(made.path / "proof.db", report)
    return report


async def filled(
    task: Task, database: Database, *, fill: Callable[[], object], make_room: Callable[[], object]
) -> Report:
    """What happens to those who write and read while it is filled, and has room again."""
    began = time.monotonic()
    ledger = Ledger()
    is_full = False
    reads, refused_reads = 0, 0
    async with satchel.open(database.url) as store:
        *session_ids, probed = [(await SessionManager(store, ADA).create_session()).session_id for _ in range(4)]
    keeper = Keeper(database, is_time=lambda: not is_full)
    keeping = asyncio.create_task(keeper.keep())
    async with open_planted(database.url, task.weak) as store:
        sessions = SessionManager(store, ADA)
        refusals = Refusals(sessions)
        writer = Writer(sessions, RunManager(store, ADA), lambda entry: ledger.feed(msgspec.json.encode(entry)))
        writing = [asyncio.create_task(writer.go_on(f"d-{number}", session_ids)) for number in range(TASKS)]
        try:
            for number in range(task.bounds["fills"]):
                await more(ledger, 100)
                is_full = True
                await asyncio.to_thread(fill)
                await (asyncio.sleep(2) if task.weak else refusals.until_full(probed))  # the weak one refuses none
                for error in await read_all(sessions, session_ids):
                    reads += 1
                    refused_reads += error is not None
                task.say(f"full: {number + 1}, {len(ledger.done)} acknowledged, {dict(refusals.heard)}")
                await asyncio.to_thread(make_room)
                is_full = False
                if task.weak:
                    break
                await more(ledger, 100)  # by itself
        finally:
            keeping.cancel()
            for one in writing:
                one.cancel()
            await asyncio.gather(keeping, *writing, return_exceptions=True)
    # What was handed in is finished by now. From the files alone, as another process finds them:
    async with satchel.open(database.url) as store:
        sessions, runs = SessionManager(store, ADA), RunManager(store, ADA)
        await ledger.prove(sessions, session_ids)
        unknown = 0 if task.weak else await ledger.ask_again(sessions, runs, session_ids)
    if refused_reads and not keeper.restarts:  # a server that ends itself answers nobody until it is started again
        ledger.faults.append(f"{refused_reads} reads were refused while it was full")
    ledger.faults += [f"a writer heard {code}" for code in refusals.heard if code.startswith("WRONG")]
    return Report(
        figures={
            "fills": number + 1,
            "acknowledged": len(ledger.done),
            "lost": sum("is lost" in fault for fault in ledger.faults),
            "refused": refusals.heard.total(),
            "reads while full": reads,
            "of them refused": refused_reads,
            "unknown, then once": unknown,
            **({"server restarts": keeper.restarts} if task.store.has_server else {}),
        },
        faults=ledger.faults,
        seconds=time.monotonic() - began,
    )


async def read_all(sessions: SessionManager, session_ids: list[str]) -> list[SatchelError | None]:
    """What each read was refused with, if it was."""
    found: list[SatchelError | None] = []
    for session_id in session_ids:
        for read in (
            sessions.get_session(session_id),
            sessions.messages(session_id, order="desc"),
            sessions.events(session_id, limit=1000),
            sessions.list_sessions(),
        ):
            try:
                await read
            except SatchelError as error:
                found.append(error)
            else:
                found.append(None)
    return found


def check_file(path: Path, report: Report) -> None:
    connection = sqlite3.connect(path)
    ((found,),) = connection.execute("PRAGMA integrity_check").fetchall()
    connection.close()
    if found != "ok":
        report.faults.append(f"the file is damaged: {found}")


FULL_DISK = Program(
    name="full_disk",
    shows="a full disk refuses writes, loses nothing, and needs nobody once it has room; reads go on while the server does",
    run=full_disk,
    stores=(*EVERYWHERE, "redis-relaxed"),
    bounds={"fills": 5, "megabytes": 16},
    weak=("answers_before_commit",),
)
