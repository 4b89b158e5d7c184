"""What a server that waits for a standby means by a commit. Here the standby never comes: nothing is acknowledged, whatever
becomes of the wait."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator

import asyncpg
import pytest

import satchel
from satchel import OutcomeUnknown, SessionManager, StoreBusy, StoreUnavailable
from satchel.commit import waiting
from satchel.servers import PostgresServer
from satchel.stores.postgres import connection
from tests.servers.postgres import server
from tests.stores.on_a_server import ADA, said

END_ALL = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'satchel'"
CANCEL_WAITS = "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
NOT_YET = (OutcomeUnknown, StoreBusy, StoreUnavailable)


async def ask(url: str, *statements: str) -> None:
    rival = await asyncpg.connect(url, server_settings={"synchronous_commit": "local"})
    for statement in statements:
        await rival.execute(statement)
    await rival.close()


async def awaits(url: str, standby: str) -> None:
    await ask(url, f"ALTER SYSTEM SET synchronous_standby_names = '{standby}'", "SELECT pg_reload_conf()")
    await asyncio.sleep(0.2)  # a process hears of it between two statements


@pytest.fixture(scope="module")
def own() -> Iterator[PostgresServer]:
    server()  # installs, or skips
    with PostgresServer(settings={"fsync": "off"}) as made:
        yield made


@pytest.fixture
async def session(own: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[SessionManager, str]]:
    monkeypatch.setattr(connection, "STATEMENT_PATIENCE", 1.0)
    monkeypatch.setattr(waiting, "PATIENCE", 1.0)
    async with satchel.open(own.url() + "?connect_timeout=1") as store:
        manager = SessionManager(store, ADA)
        session_id = (await manager.create_session()).session_id
        await awaits(own.url(), "nobody")
        try:
            yield manager, session_id
        finally:
            await awaits(own.url(), "")


async def say(manager: SessionManager, session_id: str) -> None:
    await manager.append_message(session_id, said("hello"), idempotency_key="k")


async def say_once_it_is_heard(own: PostgresServer, manager: SessionManager, session_id: str) -> None:
    await awaits(own.url(), "")
    async with asyncio.timeout(30):
        while True:
            with contextlib.suppress(*NOT_YET):
                await say(manager, session_id)
                break
    assert (await manager.get_session(session_id, include=())).message_count == 1


async def test_what_no_standby_has_is_not_acknowledged_however_long_it_is_waited_for(
    session: tuple[SessionManager, str], own: PostgresServer
) -> None:
    """Nor is it found by its key, by whoever asks again here."""
    for _ in range(2):
        with pytest.raises(NOT_YET):
            await say(*session)
    await say_once_it_is_heard(own, *session)


async def test_a_time_limit_of_the_database_ends_no_wait_for_a_standby(
    session: tuple[SessionManager, str], own: PostgresServer
) -> None:
    """PostgreSQL would tell its client that the commit is done, with a warning."""
    await ask(own.url(), "ALTER DATABASE satchel SET statement_timeout = '100ms'", END_ALL)
    try:
        with pytest.raises(NOT_YET):
            await say(*session)
    finally:
        await ask(own.url(), "ALTER DATABASE satchel RESET statement_timeout")


async def test_a_wait_for_a_standby_that_somebody_ended_is_no_acknowledgement(
    session: tuple[SessionManager, str], own: PostgresServer
) -> None:
    saying = asyncio.create_task(say(*session))
    while not saying.done():
        await ask(own.url(), CANCEL_WAITS)
        await asyncio.sleep(0.05)
    with pytest.raises(NOT_YET):
        await saying


@pytest.mark.parametrize("is_restarted", [False, True])
async def test_what_was_committed_and_reached_no_standby_is_not_found_by_its_key_after_a_crash(
    session: tuple[SessionManager, str], own: PostgresServer, is_restarted: bool
) -> None:
    """The server recovers it from its own log, and shows it to everybody."""
    with pytest.raises(NOT_YET):
        await say(*session)
    manager, session_id = session
    await asyncio.to_thread(own.kill)
    await asyncio.to_thread(own.start_again)
    async with satchel.open(own.url() + "?connect_timeout=1") as other:
        asked = SessionManager(other, ADA) if is_restarted else manager
        with pytest.raises(NOT_YET):
            await say(asked, session_id)
        await say_once_it_is_heard(own, asked, session_id)


async def test_nor_by_a_process_whose_connections_were_idle_when_the_server_crashed(
    session: tuple[SessionManager, str], own: PostgresServer
) -> None:
    """It lost no call; but who answers it now may not be who answered before."""
    manager, session_id = session
    await awaits(own.url(), "")
    async with satchel.open(own.url() + "?connect_timeout=1") as other:
        await SessionManager(other, ADA).append_message(session_id, said("before"))
        await awaits(own.url(), "nobody")
        with pytest.raises(NOT_YET):
            await say(manager, session_id)
        await asyncio.to_thread(own.kill)
        await asyncio.to_thread(own.start_again)
        with pytest.raises(NOT_YET):
            await say(SessionManager(other, ADA), session_id)
