"""Callers in several processes, over the library and over HTTP, and a checker over all that they were told."""

from __future__ import annotations

import asyncio
import collections
import os
import sys
import time
from pathlib import Path

import msgspec

from satchel import SessionManager
from tests.proof.caller import ADA, Order, ask_all, lines_of
from tests.proof.history import Call, Line, read_history
from tests.proof.linear import check
from tests.proof.planted import open_planted
from tests.proof.program import EVERYWHERE, Program, Report, Task
from tests.proof.served import ROOT, Served

TASKS = 12


async def linearisable(task: Task) -> Report:
    began = time.monotonic()
    bounds = task.bounds
    with task.store.make(task.folder, True) as database:
        async with open_planted(database.url, task.weak if task.store.is_private else "") as store:
            manager = SessionManager(store, ADA)
            session_ids = [(await manager.create_session()).session_id for _ in range(bounds["sessions"])]
            if task.weak and task.store.is_private:
                await asyncio.sleep(
                    1
                )  # they were made by the weak store itself, which may have answered before it did so
            served = Served(database.url, task.folder)
            try:
                doors = [database.url] * bounds["processes"]
                key = ""
                if bounds["http"] and not task.weak and not task.store.is_private:
                    await asyncio.to_thread(served.start)
                    key = await asyncio.to_thread(served.key)
                    doors += [served.url] * bounds["http"]
                each = max(1, bounds["events"] // (len(doors) * TASKS))
                orders = [
                    Order(
                        url=url,
                        name=f"p{number}",
                        output=str(task.folder / f"history-{number}"),
                        sessions=session_ids,
                        tasks=TASKS,
                        calls=each,
                        seed=bounds["seed"],
                        key=key if url == served.url else "",
                        planted=task.weak,
                    )
                    for number, url in enumerate(doors)
                ]
                watching = asyncio.create_task(say_how_far([Path(order.output) for order in orders], task))
                try:
                    if task.store.is_private:  # "processes" are groups of callers in this one
                        await asyncio.gather(*(ask_all(order, manager) for order in orders))
                    else:
                        await asyncio.gather(*(run(order, task) for order in orders))
                finally:
                    watching.cancel()
            finally:
                served.stop()
            logs = {session_id: await log_of(manager, session_id) for session_id in session_ids}
    calls: dict[str, list[Call]] = collections.defaultdict(list)
    for order in orders:
        for call in read_history(await asyncio.to_thread(Path(order.output).read_bytes)):
            calls[call.session].append(call)
    task.say("checking")
    checked = time.monotonic()
    faults = [fault for session_id in session_ids for fault in check(calls[session_id], logs[session_id])]
    return Report(figures=figures(calls, logs, len(doors)) | {"check_seconds": round(time.monotonic() - checked, 2)},
                  faults=faults, seconds=time.monotonic() - began)  # fmt: skip


async def say_how_far(outputs: list[Path], task: Task) -> None:
    """Until cancelled. What callers wrote down, a line for each answer."""
    told = 0
    read = dict.fromkeys(outputs, 0)
    while True:
        await asyncio.sleep(15)
        for path in outputs:
            if path.exists():  # local, and there at once
                with path.open("rb") as file:  # local, and a few megabytes
                    file.seek(read[path])
                    fresh = file.read()
                read[path] += len(fresh)
                told += fresh.count(b"\n")
        task.say(f"{told} of {task.bounds['events']} events")


async def run(order: Order, task: Task) -> None:
    command = [sys.executable, "-W", "ignore", "-m", "tests.proof.caller", msgspec.json.encode(order).decode()]
    process = await asyncio.create_subprocess_exec(
        *command, cwd=ROOT, env=dict(os.environ), stderr=asyncio.subprocess.PIPE
    )
    try:
        _, errors = await process.communicate()
    except BaseException:
        process.kill()
        raise
    if process.returncode:
        raise RuntimeError(errors.decode(errors="replace")[-3000:])
    task.say(f"{order.name} is done")


async def log_of(manager: SessionManager, session_id: str) -> list[Line]:
    found: list[Line] = []
    while True:
        page = await manager.events(session_id, after=len(found), limit=1000)
        found.extend(lines_of(page.items))
        if page.next is None:
            return found


def figures(calls: dict[str, list[Call]], logs: dict[str, list[Line]], processes: int) -> dict[str, int | float | str]:
    told = collections.Counter(call.code or call.told for history in calls.values() for call in history)
    return {
        "events": sum(len(history) for history in calls.values()),
        "processes": processes,
        "written": sum(log[-1].version for log in logs.values() if log),
        "replayed": sum(call.replayed for history in calls.values() for call in history),
        "conflicts": told["version_conflict"],
        "refused": told["session_closed"] + told["idempotency_mismatch"],
        "unknown": sum(call.told == "unknown" for history in calls.values() for call in history),
    }


LINEARISABLE = Program(
    name="linearisable",
    shows="each session is one order of calls, whoever asks, by whatever door",
    run=linearisable,
    stores=("memory", *EVERYWHERE, "redis-cluster"),
    bounds={"events": 200_000, "processes": 4, "http": 2, "sessions": 6, "seed": 1},
    weak=("answers_before_commit", "stale_reads", "applies_twice", "decides_on_stale"),
    weak_bounds={"events": 3_000, "processes": 3, "http": 0},
)
