"""The benchmarks' own fixtures are what they say."""

from __future__ import annotations

from pathlib import Path

from benchmarks import bare
from benchmarks.cycles import ChangesKept, commits_of, run_cycles, write
from benchmarks.footprint import measure, sqlite_place
from benchmarks.reads import conversation
from satchel import Principal, SessionManager
from satchel.opened import OpenStore
from satchel.stores.memory import MemoryStore
from satchel.stores.sqlite import SqliteStore


async def test_the_long_session_has_its_messages_and_calls_at_its_beginning() -> None:
    manager = SessionManager(OpenStore(MemoryStore()), Principal.operator(tenant_id="acme", acting_for="ada"))
    (imported,) = [one async for one in manager.import_sessions([conversation("long", 300)])]
    session = await manager.get_session(imported.session_id)
    assert (session.last_seq, session.version) == (300, 300)
    assert [message.seq for message in session.messages] == list(range(1, 51))
    assert [call.seq for call in session.tool_history] == list(range(51, 101))


async def test_the_bare_loop_of_runs_writes_the_same_rows(tmp_path: Path) -> None:
    empty, ours, theirs = (tmp_path / name for name in ("empty.db", "ours.db", "theirs.db"))
    async with OpenStore(SqliteStore(empty)):
        pass
    keeping = ChangesKept(SqliteStore(ours))
    async with OpenStore(keeping) as store:
        await run_cycles(store, each=1)
    bare.empty_copy(empty, theirs)
    write(theirs, commits_of(keeping.of))
    mine, bares = bare.connect(ours), bare.connect(theirs)
    for table in ("sessions", "events", "runs", "tool_calls", "idempotency_records"):
        select = f"SELECT * FROM {table} ORDER BY 1, 2, 3"  # noqa: S608  # fixed names
        rows = mine.execute(select).fetchall()
        assert rows
        assert rows == bares.execute(select).fetchall(), table
    mine.close()
    bares.close()


async def test_the_footprint_of_a_message_is_two_rows_and_more_bytes_than_the_message() -> None:
    with sqlite_place() as place:
        lines = await measure("sqlite", place, sessions=4, each=20)
    cells = {line.split(" | ")[1]: line.strip("| ").split(" | ") for line in lines}
    message = cells["a message, 4 writers"]
    assert message[2] == "2.00"
    assert 500 < int(message[3].replace(",", "")) < 2_000
    assert message[6] == "4"
    assert cells["a message, one writer"][-1] == "1"
