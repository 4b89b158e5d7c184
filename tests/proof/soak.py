"""A service that works for a while: clients come, speak and go, followers stall, sessions expire, are closed, deleted and swept.
After its first part nothing grows any more: not its memory, not the database's file, not the log beside it."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
import statistics
import time
from pathlib import Path
from typing import Any

import psutil

import satchel
from satchel import SatchelError
from tests.proof.program import Program, Report, Task
from tests.proof.served import Served

MIB = 1 << 20
IDLE, RETENTION = "15s", "3s"
MEMORY_SLACK = 8 * MIB
FILE_SLACK = 8 * MIB
WAL_MOST = 64 * MIB
AGENTS = ("--agent", "tests.http.agents:echo")
SETTINGS = "[server]\nrequests_per_second = 0\nstreams_per_user = 10000\nheartbeat_seconds = 1\nruns_per_user = 0\nsessions_per_user = 0\n"


class Samples:
    """One a second, of what may not grow."""

    def __init__(self, served: Served, folder: Path) -> None:
        self._served = psutil.Process(served.pid)
        self._folder = folder
        self.memory: list[int] = []
        self.file: list[int] = []
        self.wal: list[int] = []

    async def take(self) -> None:
        while True:
            self.memory.append(self._served.memory_info().rss)
            self.file.append(_size(self._folder / "proof.db"))
            self.wal.append(_size(self._folder / "proof.db-wal"))
            await asyncio.sleep(1)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


class Crowd:
    """Clients over HTTP, and what they did."""

    def __init__(self, served: Served, key: str, clients: int) -> None:
        self._served = served
        self._key = key
        self._clients = clients
        self.counts = {"sessions": 0, "writes": 0, "runs": 0, "stalled": 0}
        self.faults: list[str] = []

    async def work(self) -> None:
        async with satchel.connect(self._served.url, self._key) as service:
            stalling = (self._stall(number) for number in range(max(2, self._clients // 4)))
            speaking = (self._speak(service, number) for number in range(self._clients))
            await asyncio.gather(*speaking, *stalling)

    async def _speak(self, service: Any, number: int) -> None:
        luck = random.Random(number)
        for turn in itertools.count():
            try:
                await self._one_session(service, luck, f"{number}-{turn}")
            except SatchelError as error:
                if error.code not in (
                    "session_expired",
                    "session_closed",
                    "not_found",
                    "session_not_found",
                    "session_deleted",
                ):
                    self.faults.append(f"a client heard {error.code}: {error}"[:300])
            await asyncio.sleep(luck.random())

    async def _one_session(self, service: Any, luck: random.Random, name: str) -> None:
        sessions, runs = service.sessions, service.runs
        session_id = (await sessions.create_session(title=name, metadata={"client": name})).session_id
        self.counts["sessions"] += 1
        for said in range(luck.randint(3, 12)):
            content = f"{name}-{said} " + "x" * luck.randint(0, 2000)
            await sessions.append_message(session_id, {"role": "user", "content": content})
            self.counts["writes"] += 1
        await sessions.update_working_memory(session_id, {"append": {"plan": name}})
        await sessions.messages(session_id, order="desc", limit=10)
        if luck.random() < 0.3:
            await runs.add_run(session_id, agent="echo", input="say it", on_busy="queue")
            self.counts["runs"] += 1
        await sessions.get_session(session_id)
        if luck.random() < 0.1:
            await sessions.list_sessions(limit=20)
        end = luck.choice(("delete", "close", "leave"))  # who is left expires; the closed and the expired are erased
        if end == "delete":
            await sessions.delete_session(session_id)
        elif end == "close":
            await sessions.close_session(session_id)

    async def _stall(self, number: int) -> None:
        """Follow a session that says much, and read nothing of it."""
        async with satchel.connect(self._served.url, self._key) as service:
            while True:
                session_id = (await service.sessions.create_session(title=f"stalled-{number}")).session_id
                reader, writer = await asyncio.open_connection("127.0.0.1", self._served.port, limit=1024)
                try:
                    writer.write(
                        f"GET /v1/sessions/{session_id}/events HTTP/1.1\r\nHost: x\r\nAccept: text/event-stream\r\n"
                        f"Authorization: Bearer {self._key}\r\n\r\n".encode()
                    )
                    await writer.drain()
                    self.counts["stalled"] += 1
                    for _ in range(8):
                        said = {"role": "user", "content": "y" * 50_000}
                        await service.sessions.append_message(session_id, said)
                        await asyncio.sleep(0.5)
                    await reader.read(1)
                finally:
                    writer.transport.abort()
                await service.sessions.delete_session(session_id)


async def soak(task: Task) -> Report:
    began = time.monotonic()
    seconds = task.bounds["seconds"]
    with task.store.make(task.folder, True) as database:
        served = Served(
            database.url, task.folder, "--idle", IDLE, "--retention", RETENTION, agents=AGENTS, settings=SETTINGS,
            module="tests.proof.leaking" if task.weak else "tests.proof.trimmed",
        )  # fmt: skip
        await asyncio.to_thread(served.start)
        try:
            crowd = Crowd(served, await asyncio.to_thread(served.key), task.bounds["clients"])
            samples = Samples(served, task.folder)
            going = [asyncio.create_task(crowd.work()), asyncio.create_task(samples.take())]
            for _ in range(6):
                await asyncio.wait(going, timeout=seconds / 6, return_when=asyncio.FIRST_EXCEPTION)
                task.say(
                    f"{samples.memory[-1] / MIB:.0f} MiB of memory, {samples.file[-1] / MIB:.0f} MiB in the file, {crowd.counts}"
                )
            for one in going:
                if one.done() and not one.cancelled() and (error := one.exception()) is not None:
                    crowd.faults.append(f"it broke off: {error!r}"[:300])
                one.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.gather(*going, return_exceptions=True)
        finally:
            served.stop()
    return _judge(crowd, samples, seconds, time.monotonic() - began)


def _judge(crowd: Crowd, samples: Samples, seconds: int, took: float) -> Report:
    """The middle third against the last: the first is for what is filled once."""
    faults = list(dict.fromkeys(crowd.faults))[:20]
    figures: dict[str, int | float | str] = dict(crowd.counts)
    for name, values, slack in (
        ("memory", samples.memory, MEMORY_SLACK),
        ("file", samples.file, FILE_SLACK),
    ):
        if not any(values):  # the store keeps no file of its own here
            continue
        third = len(values) // 3
        middle, last = statistics.median(values[third : 2 * third]), statistics.median(values[2 * third :])
        figures[f"{name} MiB, middle"] = round(middle / MIB, 1)
        figures[f"{name} MiB, end"] = round(last / MIB, 1)
        if last > middle * 1.05 + slack:
            faults.append(f"{name} grew from {middle / MIB:.1f} to {last / MIB:.1f} MiB between the middle and the end")
    if any(samples.wal):
        figures["wal MiB, most"] = round(max(samples.wal) / MIB, 1)
    if max(samples.wal) > WAL_MOST:
        faults.append(f"the log beside the file grew to {max(samples.wal) / MIB:.1f} MiB")
    if crowd.counts["writes"] < seconds:
        faults.append("the clients hardly wrote: this shows nothing")
    return Report(figures=figures, faults=faults, seconds=took)


SOAK = Program(
    name="soak",
    shows="a service that works on neither grows nor slows for what is gone: memory, file, log",
    run=soak,
    bounds={"seconds": 300, "clients": 200},
    weak=("leaking",),
    weak_bounds={"seconds": 60},
)
