"""A disk that says that it could not write: fsync fails under the writers for a while, again and again, and some of them are
killed while it does."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import satchel
from satchel import RunManager, SessionManager
from tests.proof.keeping import Keeper
from tests.proof.kills import WriterProcess, more
from tests.proof.ledger import Ledger
from tests.proof.program import NotHere, Program, Report, Task
from tests.proof.stores import Database
from tests.proof.writer import ADA, opened

SOURCE = Path(__file__).with_name("failing_sync.c")
WRITERS = 2


class Sync:
    """What fails while ``failing``, in each process that has ``environment``."""

    def __init__(self, folder: Path) -> None:
        compiler = shutil.which("cc") or shutil.which("gcc")
        if compiler is None:
            raise NotHere("there is no C compiler here, which makes fsync fail")
        library = folder / "failing_sync.so"
        made = subprocess.run(
            [compiler, "-shared", "-fPIC", "-O1", "-o", library, SOURCE, "-ldl"], capture_output=True, check=False
        )
        if made.returncode != 0:
            raise NotHere(
                f"what makes fsync fail cannot be compiled here: {made.stderr.decode(errors='replace')[:200]}"
            )
        library.chmod(0o755)
        self._flag = folder / "fsync-fails"
        self.environment: Mapping[str, str] = {"LD_PRELOAD": str(library), "SATCHEL_FAILING_SYNC": str(self._flag)}

    @property
    def fails(self) -> bool:
        return self._flag.exists()

    def fail(self) -> None:
        self._flag.touch()

    def work(self) -> None:
        self._flag.unlink(missing_ok=True)

    @contextmanager
    def inherited(self) -> Iterator[None]:
        """By every process that is started meanwhile."""
        os.environ.update(self.environment)
        try:
            yield
        finally:
            for name in self.environment:
                os.environ.pop(name, None)


async def failing_sync(task: Task) -> Report:
    began = time.monotonic()
    luck = random.Random(task.bounds["seed"])
    sync = Sync(task.folder)
    ledger = Ledger()
    with contextlib.ExitStack() as stack:
        with sync.inherited():
            database: Database = stack.enter_context(task.store.make(task.folder, True))
        async with satchel.open(database.url) as store:
            sessions = SessionManager(store, ADA)
            session_ids = [(await sessions.create_session()).session_id for _ in range(2 + WRITERS)]
        writers: list[WriterProcess] = []
        keeper = Keeper(database, is_time=lambda: not sync.fails, starting=sync.inherited)
        keeping = asyncio.create_task(keeper.keep())
        try:
            with sync.inherited():
                writers = [
                    await start(database, ledger, session_ids, number, 0, task.weak) for number in range(WRITERS)
                ]
            for failure in range(task.bounds["failures"]):
                await more(ledger, 50)
                sync.fail()
                await asyncio.sleep(luck.uniform(0.3, 1.5))
                victim = luck.randrange(WRITERS)
                if failure % 2:
                    await writers[victim].kill()
                sync.work()
                if failure % 2:
                    with sync.inherited():
                        writers[victim] = await start(database, ledger, session_ids, victim, failure, task.weak)
                await more(ledger, 50)  # by itself
                async with await opened(database.url, "") as store:
                    await ledger.prove(SessionManager(store, ADA), session_ids)
                task.say(f"{failure + 1} failures, {len(ledger.done)} acknowledged, faults: {len(ledger.faults)}")
                if task.weak and ledger.faults:
                    break
            for writer in writers:
                if writer.process.returncode is not None:
                    ledger.faults.append(f"a writer ended by itself, with {writer.process.returncode}")
        finally:
            sync.work()
            keeping.cancel()
            await asyncio.gather(keeping, *(writer.kill() for writer in writers), return_exceptions=True)
        async with satchel.open(database.url) as store:
            sessions = SessionManager(store, ADA)
            await ledger.prove(sessions, session_ids)
            unknown = 0 if task.weak else await ledger.ask_again(sessions, RunManager(store, ADA), session_ids)
    return Report(
        figures={
            "failures": failure + 1,
            "acknowledged": len(ledger.done),
            "lost": sum("is lost" in fault for fault in ledger.faults),
            "unknown, then once": unknown,
            **({"server restarts": keeper.restarts} if database.server is not None else {}),
        },
        faults=ledger.faults,
        seconds=time.monotonic() - began,
    )


async def start(
    database: Database, ledger: Ledger, session_ids: list[str], number: int, turn: int, planted: str
) -> WriterProcess:
    return await WriterProcess.start(
        database.url,
        ledger,
        name=f"f{turn}-{number}",
        planted=planted,
        run_session=session_ids[number],
        session_ids=session_ids[WRITERS:],
    )


FAILING_SYNC = Program(
    name="failing_sync",
    shows="an fsync that fails is no acknowledgement, and nobody has to start anything again",
    run=failing_sync,
    bounds={"failures": 10, "seed": 4},
    weak=("answers_before_commit",),
    weak_bounds={"failures": 4},
)
