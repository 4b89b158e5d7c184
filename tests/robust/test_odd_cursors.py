"""A cursor is the caller's text: whatever stands in it, it is a position of this very list, or InvalidCursor."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from satchel.domain.page import Page
from satchel.errors import InvalidCursor, InvalidInput
from satchel.store import Store
from satchel.stores.memory import MemoryStore
from satchel.stores.sqlite import SqliteStore
from satchel.testing.clock import SettableClock
from satchel.testing.stage import ADAS_AGENT, Stage, said

POSITIONS: tuple[Any, ...] = (
    2**63,
    2**64,
    10**400,
    -1,
    1.0,
    1e300,
    True,
    None,
    "1",
    [1],
    {"a": 1},
    {},
)
TEXTS = (
    "",
    "=",
    "!",
    "ä",
    "\ud800",
    "\0",
    "A",
    "AAAA",
    base64.urlsafe_b64encode(b"[" * 100_000).decode(),
    base64.urlsafe_b64encode(b"[" * 500).decode(),
    base64.urlsafe_b64encode(b'{"a":' * 100).decode(),
    base64.urlsafe_b64encode(b'["\xff",1]').decode(),
    base64.urlsafe_b64encode(b'["\\ud800",1]').decode(),
    base64.urlsafe_b64encode(b"[]").decode(),
    base64.urlsafe_b64encode(b"[NaN,1]").decode(),
)


@pytest.fixture(params=["memory", "sqlite"])
async def stage(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Stage]:
    clock = SettableClock()
    store: Store = (
        MemoryStore(clock=clock) if request.param == "memory" else SqliteStore(tmp_path / "a.db", clock=clock)
    )
    made = Stage(store, clock)
    async with made.opened:
        yield made


async def lists(stage: Stage) -> dict[str, Callable[[str | None], Awaitable[Page[Any]]]]:
    """Each of two pages."""
    sessions, runs = stage.sessions(ADAS_AGENT), stage.runs()
    session_id = await stage.session()
    await stage.session()
    for n in range(2):
        await sessions.append_message(session_id, said(f"{n}"))
        await sessions.append_tool_history(session_id, {"tool": "ls"})
        await runs.add_run(session_id, on_busy="queue")
    return {
        "list_sessions": lambda cursor: sessions.list_sessions(limit=1, cursor=cursor),
        "messages": lambda cursor: sessions.messages(session_id, limit=1, cursor=cursor),
        "events": lambda cursor: sessions.events(session_id, limit=1, order="desc", cursor=cursor),
        "tool_history": lambda cursor: sessions.tool_history(session_id, limit=1, cursor=cursor),
        "list_runs": lambda cursor: runs.list_runs(session_id, limit=1, cursor=cursor),
    }


def parts_of(cursor: str) -> list[Any]:
    found: list[Any] = json.loads(base64.urlsafe_b64decode(cursor + "=="))
    return found


def made_of(parts: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(parts).encode()).decode().rstrip("=")


async def test_an_odd_cursor_is_refused_by_name(stage: Stage) -> None:
    for name, page_at in (await lists(stage)).items():
        cursor = (await page_at(None)).next
        assert cursor is not None, name
        parts = parts_of(cursor)
        assert (await page_at(made_of(parts))).items  # it is made as ours are
        odd = [*TEXTS, made_of([*parts, 1]), made_of(parts[:-1]), made_of(["0" * 16, *parts[1:]]), cursor + "A" * 2000]
        odd += [made_of([*parts[:place], position, *parts[place + 1 :]])
                for place in range(1, len(parts)) for position in POSITIONS
                if not (type(position) is str and type(parts[place]) is str)]  # fmt: skip
        for one in odd:
            with pytest.raises(InvalidCursor):
                await page_at(one)
            if len(one) < 2000:
                with pytest.raises(InvalidCursor):
                    await page_at(one + "=")


async def test_numbers_beyond_64_bits_are_refused_at_the_door(stage: Stage) -> None:
    sessions = stage.sessions(ADAS_AGENT)
    session_id = await stage.session()
    written = await sessions.append_message(session_id, said("hello"))
    for far in (2**63, 2**64, 10**30):
        for call in (
            sessions.events(session_id, after=far),
            sessions.events(session_id, before=far),
            sessions.messages(session_id, after=far),
            sessions.finish_tool_call(session_id, far),
            sessions.retract_message(session_id, far),
            sessions.retract_message(session_id, f"msg_{far}"),
            sessions.append_message(session_id, said("x"), expected_version=far),
            sessions.fork_session(session_id, up_to=far),
            sessions.follow(session_id, after=far).__anext__(),
        ):
            with pytest.raises(InvalidInput):
                await call
    assert [event.seq for event in (await sessions.events(session_id, before=2**63 - 1)).items] == [written.seq]
    assert not (await sessions.events(session_id, after=2**63 - 1)).items


async def test_a_bound_beyond_64_bits_is_beyond_every_seq_for_a_store(stage: Stage) -> None:
    session_id = await stage.session()
    await stage.sessions().append_message(session_id, said("hello"))
    ref = (await stage.record(session_id)).ref
    for far in (2**63, 2**64, 10**30):
        assert len((await stage.store.events(ref, after=-far, before=far, limit=5)).events) == 1
        assert not (await stage.store.events(ref, after=far, limit=5)).events
        assert not (await stage.store.tool_calls(ref, after=far, limit=5)).tool_calls
        assert not (await stage.store.runs(ref, after_number=far, limit=5)).runs
