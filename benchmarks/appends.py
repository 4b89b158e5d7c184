"""Appends: one writer, many writers on many sessions, many writers on one."""

from __future__ import annotations

import asyncio
import tempfile
import time
from pathlib import Path

import satchel
from benchmarks import bare
from benchmarks.figures import Figure, bounded, compared, in_turn
from satchel import OpenStore, Principal, SessionManager

BODY_BYTES = 500
ADA = Principal.agent("shop", tenant_id="acme", acting_for="ada")


def message(number: int) -> dict[str, str]:
    """A user's message of 500 bytes of JSON."""
    text = f"{number:08d} "
    return {"role": "user", "content": text + "x" * (BODY_BYTES - len('{"role":"user","content":""}') - len(text))}


async def run_writers(path: Path, *, writers: int, sessions: int, each: int) -> float:
    """Seconds for ``writers`` tasks that append ``each`` messages one after another, with keys."""
    async with satchel.open(f"sqlite:///{path}") as store:
        return await write_from(store, writers=writers, sessions=sessions, each=each)


async def write_from(store: OpenStore, *, writers: int, sessions: int, each: int, warm: int = 0) -> float:
    """The same on a store that is open; each writer appends ``warm`` messages before the clock starts."""
    manager = SessionManager(store, ADA)
    ids = [(await manager.create_session()).session_id for _ in range(sessions)]

    async def writer(number: int, said: list[tuple[dict[str, str], str]]) -> None:
        session_id = ids[number % sessions]
        for text, key in said:
            await manager.append_message(session_id, text, idempotency_key=key)

    def to_say(number: int, turns: range) -> list[tuple[dict[str, str], str]]:
        return [(message(turn), f"{number}-{turn}") for turn in turns]

    await asyncio.gather(*(writer(number, to_say(number, range(warm))) for number in range(writers)))
    # Made before the clock starts, as the bare loops' rows are.
    said = [to_say(number, range(warm, warm + each)) for number in range(writers)]
    began = time.perf_counter()
    await asyncio.gather(*(writer(number, texts) for number, texts in enumerate(said)))
    took = time.perf_counter() - began
    for session_id in ids:
        await check_log(manager, session_id, writers * (warm + each) // sessions)
    return took


async def check_log(manager: SessionManager, session_id: str, count: int) -> None:
    """None lost, none out of order."""
    session = await manager.get_session(session_id, include=())
    assert session.message_count == session.last_seq == session.version == count
    seqs: list[int] = []
    cursor: str | None = None
    while True:
        page = await manager.messages(session_id, limit=1000, cursor=cursor)
        seqs.extend(found.seq for found in page)
        cursor = page.next
        if cursor is None:
            break
    assert seqs == list(range(1, count + 1))


async def appends(name: str, *, writers: int, sessions: int, each: int, rounds: int, reach: float) -> Figure:
    """Against the bare loop, ``writers`` appends in one commit."""
    with tempfile.TemporaryDirectory() as folder:
        sample = Path(folder) / "sample.db"
        await run_writers(sample, writers=writers, sessions=sessions, each=each)
        rows = bare.Rows(sample)
        count = writers * each
        number = 0

        async def ours() -> float:
            nonlocal number
            number += 1
            path = Path(folder) / f"ours-{number}.db"
            return await run_writers(path, writers=writers, sessions=sessions, each=each) / count * 1e6

        async def limit() -> float:
            nonlocal number
            number += 1
            path = Path(folder) / f"bare-{number}.db"
            bare.empty_copy(sample, path)
            return bare.write(path, rows, per_commit=writers) / count * 1e6

        return compared(name, "µs/append", *await in_turn(ours, limit, rounds=rounds), reach=reach)


async def file_size() -> Figure:
    """The file of 1,000 messages of 500 bytes, a key on each, beside the bytes of their JSON."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "bytes.db"
        await run_writers(path, writers=10, sessions=1, each=100)
        size = sum(file.stat().st_size for file in Path(folder).glob("bytes.db*"))  # noqa: ASYNC240  # nothing else runs
        return bounded("bytes", "file ÷ message bytes", size / (1000 * BODY_BYTES), bound=1.8)
