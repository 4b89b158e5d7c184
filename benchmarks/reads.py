"""Long sessions and many sessions: nothing may cost more because there is more of it."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import msgspec

import satchel
from benchmarks.appends import ADA, message
from benchmarks.figures import Figure, compared, in_turn
from satchel import OpenStore, Principal, SessionManager
from satchel.domain.clock import rfc3339
from satchel.domain.edit import with_entries
from satchel.domain.record import SessionRecord
from satchel.store import Change

LONG = 100_000
SHORT = 100
NEWEST = 50
AT = 1_760_000_000_000_000


def conversation(name: str, events: int) -> bytes:
    """One JSON line: 50 messages, then 50 tool calls, then a mixture of other events, ``events`` in all."""
    log: list[dict[str, object]] = []

    def add(kind: str, body: object) -> None:
        seq = len(log) + 1
        log.append(
            {"seq": seq, "version": seq, "kind": kind, "at": rfc3339(AT + seq), "actor": "agent:shop", "body": body}
        )

    messages = [message(number) for number in range(min(NEWEST, events // 2))]
    for said in messages:
        add("message", said)
    for number in range(min(NEWEST, events // 2)):
        add("tool_call_recorded", {"tool": "look", "arguments": {"n": number}, "status": "succeeded", "result": number})
    title, metadata = "long", {}
    while len(log) < events:
        number = len(log)
        if number % 2:
            title = f"title {number}"
            add("title_changed", {"title": title})
        else:
            metadata = {"step": number}
            add("metadata_changed", metadata)
    for event in log[: len(messages)]:
        del event["body"]
    line = {
        "source": "benchmark",
        "licence": "",
        "session_id": name,
        "messages": messages,
        "meta": {},
        "satchel": {"format": 1, "title": title, "metadata": metadata, "events": log},
    }
    return msgspec.json.encode(line)


Opening = Callable[[], AbstractAsyncContextManager[OpenStore]]


@asynccontextmanager
async def sqlite_store() -> AsyncIterator[OpenStore]:
    with tempfile.TemporaryDirectory() as folder:
        async with satchel.open(f"sqlite:///{folder}/long.db") as store:
            yield store


@asynccontextmanager
async def long_and_short(opening: Opening) -> AsyncIterator[tuple[SessionManager, str, str]]:
    """A store with a session of 100,000 events and one of 100, both with their newest messages at their beginning."""
    async with opening() as store:
        operator = SessionManager(store, Principal.operator(tenant_id="acme", acting_for="ada"))
        lines = [conversation("long", LONG), conversation("short", SHORT)]
        long, short = [imported.session_id async for imported in operator.import_sessions(lines)]
        yield SessionManager(store, ADA), long, short


async def per_call(call: Callable[[], Awaitable[object]], *, calls: int) -> float:
    """Microseconds of one call, of several in a row."""
    began = time.perf_counter()
    for _ in range(calls):
        await call()
    return (time.perf_counter() - began) / calls * 1e6


async def long_sessions(
    opening: Opening = sqlite_store, *, prefix: str = "", rounds: int, calls: int, reach_of_page: float = 0.8
) -> list[Figure]:
    async with long_and_short(opening) as (manager, long, short):

        async def newest(session_id: str) -> float:
            async def call() -> None:
                page = await manager.messages(session_id, order="desc", limit=NEWEST)
                assert len(page) == NEWEST

            return await per_call(call, calls=calls)

        async def restore(session_id: str) -> float:
            took = 0.0
            for _ in range(calls):
                await manager.close_session(session_id)
                began = time.perf_counter()
                session = await manager.restore_session(session_id)
                took += time.perf_counter() - began
                assert len(session.messages) == NEWEST == len(session.tool_history)
            return took / calls * 1e6

        async def append(session_id: str) -> float:
            async def call() -> None:
                await manager.append_message(session_id, message(0))

            return await per_call(call, calls=calls)

        figures = []
        for name, measure, reach in (
            ("last50.100k", newest, reach_of_page),
            ("restore.100k", restore, 0.7),
            ("append.100k", append, 0.8),
        ):
            measured = measure
            ours, limits = await in_turn(lambda: measured(long), lambda: measured(short), rounds=rounds)  # noqa: B023
            figures.append(compared(f"{prefix}{name}", "µs", ours, limits, reach=reach))
        return figures


async def fill(store: OpenStore, *, others: int, own: int) -> None:
    """``own`` sessions of one user among ``others`` of other users, written in batches."""
    changes: list[Change] = []
    step = max(1, others // own)
    for number in range(others + own):
        user = "ada" if number % step == 0 and number // step < own else f"user-{number % 997}"
        at = AT + number
        record = with_entries(
            SessionRecord(
                tenant_id="acme",
                session_id=f"sess_{number:024d}",
                user_id=user,
                revision=int.from_bytes(os.urandom(6), "big"),
                created_at=at,
                updated_at=at,
                active_at=at,
                clock_from=at,
                title=f"session {number}",
            )
        )
        changes.append(Change(ref=record.ref, base=None, record=record))
        if len(changes) == 5000:
            await store.store.commit(changes)
            changes = []
    await store.store.commit(changes)


async def lists(*, rounds: int, calls: int) -> Figure:
    with tempfile.TemporaryDirectory() as folder:
        async with (
            satchel.open(f"sqlite:///{Path(folder)}/many.db") as many,
            satchel.open(f"sqlite:///{Path(folder)}/few.db") as few,
        ):
            await fill(many, others=LONG, own=60)
            await fill(few, others=40, own=60)

            def page_of(store: OpenStore) -> Callable[[], Awaitable[float]]:
                manager = SessionManager(store, ADA)

                async def call() -> None:
                    assert len(await manager.list_sessions(limit=50)) == 50

                return lambda: per_call(call, calls=calls)

            ours, limits = await in_turn(page_of(many), page_of(few), rounds=rounds)
            return compared("list.100k", "µs/page", ours, limits, reach=0.7)
