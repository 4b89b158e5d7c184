"""Waiting for a session's next event: a cancellation is never lost, and one waiter's fault is its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import satchel
from satchel import Principal, SessionManager
from satchel.domain.ids import SessionRef
from satchel.errors import InvalidInput, StoreMisused
from satchel.store import Change, Store
from satchel.stores.memory import MemoryStore
from satchel.stores.sqlite import SqliteStore
from satchel.stores.sqlite.connection import connect
from satchel.stores.sqlite.crew import Crew
from satchel.stores.sqlite.watch import Watch
from satchel.testing.clock import SettableClock
from satchel.testing.stage import TENANT, Stage, said


@pytest.fixture(params=["memory", "sqlite"])
async def stage(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Stage]:
    store: Store = MemoryStore() if request.param == "memory" else SqliteStore(tmp_path / "agent.db")
    made = Stage(store, SettableClock())
    async with made.opened:
        yield made


async def test_a_cancellation_that_comes_with_the_wake_is_not_lost() -> None:
    """The wake has come, the waiter has not run yet, and now it is cancelled: asyncio.wait_for of 3.11 forgets it."""
    stage = Stage(MemoryStore(), SettableClock())
    session_id = await stage.session()
    ref = SessionRef(TENANT, session_id)
    waiting = asyncio.create_task(stage.store.wait(ref, 0, 5))
    await asyncio.sleep(0.01)
    record = await stage.record(session_id)
    # Nothing of this gives way to the loop, so that both come in one turn of it.
    assert await stage.store.commit([Change(ref=ref, base=record.revision, record=record)])
    waiting.cancel()
    await asyncio.wait([waiting])
    assert waiting.cancelled()


async def test_an_odd_waiter_harms_itself_alone(stage: Stage) -> None:
    session_id = await stage.session()
    ref = SessionRef(TENANT, session_id)
    odd: Any = ["x", None, [], 2**64, float("nan")]
    beside = [asyncio.create_task(stage.store.wait(ref, 0, 30)) for _ in range(3)]
    strange = [asyncio.create_task(stage.store.wait(ref, after, 0.2)) for after in odd]
    strange += [
        asyncio.create_task(stage.store.wait(SessionRef(tenant, name), 0, 0.2))
        for tenant, name in ((TENANT, "\ud800"), ("\ud800", session_id))
    ]
    await asyncio.wait(strange)
    for one in strange:
        assert one.exception() is None or isinstance(one.exception(), (InvalidInput, TypeError))
    if isinstance(stage.store, SqliteStore):
        assert any(thread.name == "satchel-sqlite-watch" and thread.is_alive() for thread in threading.enumerate())
    await elsewhere(stage, session_id)
    async with asyncio.timeout(5):
        await asyncio.gather(*beside)


async def elsewhere(stage: Stage, session_id: str) -> None:
    """A commit that only the watch can see: another process's, as far as this store knows."""
    if not isinstance(stage.store, SqliteStore):
        await stage.sessions().append_message(session_id, said("hello"))
        return
    other = Stage(SqliteStore(stage.store._path), SettableClock())  # noqa: SLF001  # the same file
    async with other.opened:
        await other.sessions().append_message(session_id, said("hello"))


async def test_the_watch_outlives_what_it_meets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from satchel.stores.sqlite.watch import Watch  # what is broken here

    seen = threading.Event()
    whole = Watch._wake_those_behind  # noqa: SLF001  # what happens in between is tried

    def broken_once(self: Watch, connection: Any) -> None:
        if not seen.is_set():
            seen.set()
            raise ZeroDivisionError
        whole(self, connection)

    monkeypatch.setattr(Watch, "_wake_those_behind", broken_once)
    stage = Stage(SqliteStore(tmp_path / "agent.db"), SettableClock())
    async with stage.opened:
        session_id = await stage.session()
        waiting = asyncio.create_task(stage.store.wait(SessionRef(TENANT, session_id), 0, 30))
        assert await asyncio.to_thread(seen.wait, 5)
        await elsewhere(stage, session_id)
        async with asyncio.timeout(5):
            await waiting


async def test_the_watch_passes_over_a_waiter_that_nothing_can_wake(tmp_path: Path) -> None:
    path = tmp_path / "agent.db"
    stage = Stage(SqliteStore(path), SettableClock())
    async with stage.opened:
        session_id = await stage.session()
        watch = Watch(partial(connect, path, read_only=True))
        odd: Any = "x"
        with pytest.raises(InvalidInput):
            watch.enter(SessionRef(TENANT, session_id), odd)
        strange = watch.enter(SessionRef("\ud800", session_id), 0)
        beside = watch.enter(SessionRef(TENANT, session_id), 0)
        await stage.sessions().append_message(session_id, said("hello"))  # another store's commit, for this watch
        async with asyncio.timeout(5):
            await asyncio.gather(strange.future, beside.future)
        await watch.close()


def test_a_private_memory_is_waited_for_on_one_loop_after_another() -> None:
    store = MemoryStore()
    stage = Stage(store, SettableClock())
    session_id = asyncio.run(stage.session())

    async def wait_and_write() -> None:
        after = (await stage.sessions().get_session(session_id)).last_seq
        waiting = asyncio.create_task(store.wait(SessionRef(TENANT, session_id), after, 30))
        await asyncio.sleep(0.01)
        await stage.sessions().append_message(session_id, said("hello"))
        async with asyncio.timeout(5):
            await waiting

    asyncio.run(wait_and_write())
    asyncio.run(wait_and_write())


async def test_whoever_waits_when_a_store_closes_is_let_go(stage: Stage) -> None:
    session_id = await stage.session()
    waiting = asyncio.create_task(stage.store.wait(SessionRef(TENANT, session_id), 0, 30))
    await asyncio.sleep(0.05)
    await stage.opened.close()
    async with asyncio.timeout(5):
        await waiting
    with pytest.raises(StoreMisused):
        await stage.store.wait(SessionRef(TENANT, session_id), 0, 1)
    await stage.store.open()
    await stage.store.wait(SessionRef(TENANT, session_id), 0, 0.01)


async def test_what_is_asked_of_a_crew_that_is_gone_is_refused(tmp_path: Path) -> None:
    """Nobody would ever do it, and its caller would wait for ever."""

    class Tool:
        def close(self) -> None:
            return

    crew = Crew("test-crew", 1, Tool)
    assert await crew.run(lambda _: 1) == 1
    await crew.close()
    with pytest.raises(StoreMisused):
        await crew.run(lambda _: 1)


async def test_what_fails_behind_an_answer_keeps_no_later_write_from_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Followers are told after a write was answered, by the thread that writes."""
    monkeypatch.setattr(Watch, "committed", lambda *_: 1 / 0)
    async with satchel.open(f"sqlite:///{tmp_path}/agent.db") as store:
        sessions = SessionManager(store, Principal.local())
        session = await sessions.create_session()
        for _ in range(3):
            async with asyncio.timeout(10):
                await sessions.append_message(session.session_id, {"role": "user", "content": "x"})
    assert "ZeroDivisionError" in caplog.text
