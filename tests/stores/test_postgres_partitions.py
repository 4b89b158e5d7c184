"""The store on tables that are partitioned by docs/partition.sql: nothing that it had is lost, nothing that it does differs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import satchel
from satchel import OpenStore, Principal, RunManager, SessionManager, Sweeper
from satchel.domain.run import Attempt
from tests.servers.postgres import new_database, server

SCRIPT = Path(__file__).parents[2] / "docs" / "partition.sql"
ADA = Principal.agent("shop", tenant_id="acme", acting_for="ada")
TABLES = ("events", "idempotency_records", "tool_calls", "runs")


def shell(url: str, statements: str) -> str:
    said, _ = server().shell(url.rpartition("/")[2]).communicate(statements.encode())
    assert b"ERROR" not in said, said.decode()
    return said.decode().strip()


@asynccontextmanager
async def partitioned(url: str) -> AsyncIterator[OpenStore]:
    shell(url, SCRIPT.read_text("utf-8"))
    async with satchel.open(url) as store:
        yield store


async def work(store: OpenStore, number: int) -> str:
    """A session with some of everything that is partitioned."""
    sessions, runs = SessionManager(store, ADA), RunManager(store, ADA)
    session_id = (await sessions.create_session(external_id=f"ticket-{number}")).session_id
    run = await runs.add_run(session_id, goal="look", agent="shop")
    attempt = Attempt(run.run_id, (await runs.start_run(session_id, run.run_id)).attempt)
    call = await sessions.start_tool_call(session_id, "read_file", {"path": "app.py"}, attempt=attempt)
    await sessions.finish_tool_call(session_id, call.seq, result="import requests", attempt=attempt)
    await sessions.append_message(session_id, {"role": "assistant", "content": f"answer {number}"}, attempt=attempt)
    await runs.complete_run(session_id, attempt)
    for turn in range(3):
        await sessions.append_message(
            session_id, {"role": "user", "content": f"{turn}"}, idempotency_key=f"turn-{turn}"
        )
    return session_id


async def test_a_store_on_partitioned_tables_keeps_what_it_had_and_goes_on() -> None:
    url = new_database()
    async with satchel.open(url) as store:
        before = await work(store, 0)
        kept = await SessionManager(store, ADA).get_session(before)
    async with partitioned(url) as store:
        manager = SessionManager(store, ADA)
        assert await manager.get_session(before) == kept
        ids = [before, *await asyncio.gather(*(work(store, number) for number in range(1, 30)))]
        for number, session_id in enumerate(ids):
            session = await manager.get_session(session_id)
            assert [message.content for message in session.messages] == [f"answer {number}", "0", "1", "2"]
            assert [(call.tool, call.ok) for call in session.tool_history] == [("read_file", True)]
            assert [run.status for run in session.runs] == ["COMPLETED"]
            again = await manager.append_message(session_id, {"role": "user", "content": "1"}, idempotency_key="turn-1")
            assert again.replayed
        assert not [
            finding
            for finding in await store.store.check()
            if finding.what.startswith("schema") and finding.level != "ok"
        ]
    for table in TABLES:
        used = int(shell(url, f"SELECT count(DISTINCT tableoid) FROM {table}"))  # noqa: S608  # fixed names
        assert used > 8, f"{table}: thirty sessions lie in {used} of 16 partitions"


async def test_erasing_one_session_leaves_those_whose_rows_lie_at_the_same_place_of_other_partitions() -> None:
    url = new_database()
    async with satchel.open(url):
        pass
    async with partitioned(url) as store:
        manager = SessionManager(store, ADA)
        ids = [await work(store, number) for number in range(24)]
        kept = {session_id: await manager.get_session(session_id) for session_id in ids[12:]}
        for session_id in ids[:12]:
            await manager.delete_session(session_id)
        await Sweeper(store).sweep_once()
        for session_id, before in kept.items():
            assert await manager.get_session(session_id) == before
            assert len(await manager.messages(session_id)) == 4
    for table in TABLES:
        assert int(shell(url, f"SELECT count(DISTINCT session_id) FROM {table}")) == len(kept), table  # noqa: S608  # fixed names


async def test_what_is_done_to_one_session_looks_into_one_partition_of_each_table_by_its_index() -> None:
    """Once there are rows: the server reads tables of a few hundred rows whole, and is right."""
    url = new_database()
    async with satchel.open(url):
        pass
    few = SCRIPT.read_text("utf-8").replace("parts CONSTANT int := 16;", "parts CONSTANT int := 4;")
    shell(url, few)
    shell(url, _FILL)
    async with satchel.open(url) as store:
        manager = SessionManager(store, ADA)
        session_id = await work(store, 1)  # a new connection's first statements read the catalogue
        before = scans(url)
        await manager.append_message(session_id, {"role": "user", "content": "more"}, idempotency_key="more")
        await manager.get_session(session_id)
        await manager.tool_history(session_id)
        await manager.delete_session(session_id)
        await Sweeper(store).sweep_once()
    deadline = time.monotonic() + 10
    while not (looked := {name for name, count in scans(url).items() if count > before.get(name, 0)}):
        assert time.monotonic() < deadline, "the server counts when a connection ends"
    assert len({name for name in looked if name.startswith("events_")}) == 1, looked
    for table in TABLES:
        assert len({name for name in looked if name.rpartition("_")[0] == table}) <= 1, looked


def scans(url: str) -> dict[str, int]:
    said = shell(url, "SELECT relname, seq_scan + idx_scan FROM pg_stat_user_tables WHERE idx_scan IS NOT NULL")
    return {name: int(count) for name, _, count in (line.partition("|") for line in said.splitlines())}


_FILL = """
INSERT INTO events (tenant_id, session_id, seq, version, kind, at, actor, body)
SELECT 'acme', 'sess_' || n, 1, n, 'message', n, 'a', repeat('x', 100) FROM generate_series(1, 40000) AS n;
INSERT INTO tool_calls (
    tenant_id, session_id, seq, version, tool, arguments_hash, status, start_time, end_time, result_seq, result_kind
)
SELECT 'acme', 'sess_' || n, 1, n, 't', decode(md5(n::text), 'hex'), 'succeeded', 1, 2, n, 'event'
FROM generate_series(1, 40000) AS n;
INSERT INTO runs (tenant_id, session_id, run_id, number, status, input_seq, record)
SELECT 'acme', 'sess_' || n, 'run_' || n, 1, 'COMPLETED', n, '{}' FROM generate_series(1, 40000) AS n;
INSERT INTO idempotency_records
SELECT 'acme', 'sess_' || n, decode(md5(n::text), 'hex'), '\\x00', '[1,1]' FROM generate_series(1, 40000) AS n;
ANALYZE;
"""
