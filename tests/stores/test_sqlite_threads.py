"""The threads behind a SQLite store: what they did reaches whoever waits for it, on whichever event loop."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import satchel
from satchel import Principal, SessionManager
from satchel.store import Landing
from satchel.stores.sqlite.bell import Bell
from satchel.stores.sqlite.crew import Crew
from tests.open_files import open_files


class Tool:
    def close(self) -> None:
        return


def giving(number: int, *, after: float = 0.0) -> Callable[[Tool], int]:
    def work(_: Tool) -> int:
        time.sleep(after)
        return number

    return work


def failing(_: object) -> None:
    raise ZeroDivisionError


@pytest.fixture(params=["counter", "call"])
def crew(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Crew[Tool]]:
    """Two threads; once as on a system, or a loop, that has no counter to wait for."""
    if request.param == "call":
        monkeypatch.setattr("satchel.stores.sqlite.bell.sys.platform", "darwin")
    elif sys.platform != "linux":
        pytest.skip("the kernel's counters are Linux's")
    found = Crew("test-crew", 2, Tool)
    yield found
    asyncio.run(found.close())


def test_each_of_many_jobs_has_its_own_answer(crew: Crew[Tool]) -> None:
    async def ask() -> list[int]:
        async with asyncio.timeout(20):
            return await asyncio.gather(*(crew.run(giving(number)) for number in range(2_000)))

    assert asyncio.run(ask()) == list(range(2_000))


def test_one_event_loop_after_another_may_ask_and_none_keeps_a_file_open(crew: Crew[Tool]) -> None:
    async def ask() -> int:
        async with asyncio.timeout(10):
            return await crew.run(giving(1))

    assert asyncio.run(ask()) == 1
    before = len(open_files())
    for _ in range(20):
        assert asyncio.run(ask()) == 1
    after = len(open_files())
    assert after <= before + 1


def test_two_event_loops_at_once_each_hear_what_they_asked_for(crew: Crew[Tool]) -> None:
    heard: list[list[int]] = []

    async def ask(first: int) -> None:
        async with asyncio.timeout(20):
            heard.append(await asyncio.gather(*(crew.run(giving(number)) for number in range(first, first + 500))))

    threads = [threading.Thread(target=asyncio.run, args=(ask(first),)) for first in (0, 1_000)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sorted(heard) == [list(range(500)), list(range(1_000, 1_500))]


def test_who_hears_an_answer_and_fails_keeps_no_other_from_its_own(crew: Crew[Tool]) -> None:
    async def ask() -> tuple[int, list[str]]:
        told: list[str] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(repr(context["exception"])))
        bad: Landing[int] = Landing()
        bad.heard = failing
        _ = crew.submit(giving(1), bad)
        good = crew.submit(giving(2))
        time.sleep(0.2)  # noqa: ASYNC251  # both are brought before the loop hears of one
        async with asyncio.timeout(10):
            return await good, told

    answer, told = asyncio.run(ask())
    assert answer == 2
    assert "ZeroDivisionError" in "".join(told)


def test_what_was_done_while_the_crew_closed_is_heard(crew: Crew[Tool]) -> None:
    async def ask() -> list[int]:
        asked = [crew.submit(giving(number, after=0.001)) for number in range(50)]
        closing = asyncio.create_task(crew.close())
        async with asyncio.timeout(20):
            answers = await asyncio.gather(*asked)
            await closing
        return answers

    assert asyncio.run(ask()) == list(range(50))


def test_who_leaves_while_the_crew_closes_takes_no_answer_along(crew: Crew[Tool]) -> None:
    async def ask() -> int:
        release = threading.Event()
        asked = crew.submit(lambda _: int(release.wait(20)))
        closing = asyncio.create_task(crew.close())
        await asyncio.sleep(0.05)
        closing.cancel()
        await asyncio.gather(closing, return_exceptions=True)
        release.set()
        async with asyncio.timeout(10):
            return await asked

    assert asyncio.run(ask()) == 1


async def test_a_store_that_was_closed_keeps_no_file_open(tmp_path: Path) -> None:
    async def use() -> None:
        async with satchel.open(f"sqlite:///{tmp_path}/agent.db") as store:
            sessions = SessionManager(store, Principal.local())
            session = await sessions.create_session()
            await sessions.append_message(session.session_id, {"role": "user", "content": "x"})

    await use()
    before = open_files()
    for _ in range(10):
        await use()
    assert open_files() == before


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's counters are Linux's")
async def test_what_was_brought_just_before_a_bell_was_taken_down_is_heard() -> None:
    bell = Bell()
    brought: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    bell.ring(brought, 1, None)
    bell.close()
    async with asyncio.timeout(5):
        assert await brought == 1
