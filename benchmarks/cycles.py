"""A run from its beginning to its end, on many sessions at once, beside a bare loop that writes the same rows."""

from __future__ import annotations

import asyncio
import sqlite3
import tempfile
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import cast

from benchmarks import bare
from benchmarks.appends import ADA
from benchmarks.figures import Figure, compared, in_turn
from satchel import OpenStore, RunManager, SessionManager
from satchel.domain.ids import SessionRef
from satchel.domain.run import Attempt
from satchel.domain.state import Want
from satchel.store import Change, Loaded, Outcome
from satchel.stores.sqlite import SqliteStore
from satchel.stores.sqlite.applying import apply
from satchel.testing.wrappers import StoreWrapper

AT_ONCE = 32
CHANGES = 7  # of one cycle, each of them a commit of its own: nobody knows the next before the last is answered
EVENTS = 6


async def cycle(sessions: SessionManager, runs: RunManager) -> None:
    """Create, claim and start, a tool call, a message, the end."""
    session_id = (await sessions.create_session()).session_id
    run = await runs.add_run(session_id, goal="look", agent="shop")
    attempt = Attempt(run.run_id, (await runs.start_run(session_id, run.run_id)).attempt)
    call = await sessions.start_tool_call(session_id, "read_file", {"path": "app.py"}, attempt=attempt)
    await sessions.finish_tool_call(session_id, call.seq, result="import requests\n" * 10, attempt=attempt)
    await sessions.append_message(session_id, {"role": "assistant", "content": "x" * 400}, attempt=attempt)
    ended = await runs.complete_run(session_id, attempt)
    assert (ended.status, ended.version) == ("COMPLETED", EVENTS)


async def run_cycles(store: OpenStore, *, each: int) -> float:
    """Seconds for ``AT_ONCE`` tasks that go through ``each`` cycles one after another."""
    sessions, runs = SessionManager(store, ADA), RunManager(store, ADA)

    async def worker() -> None:
        for _ in range(each):
            await cycle(sessions, runs)

    began = time.perf_counter()
    await asyncio.gather(*(worker() for _ in range(AT_ONCE)))
    return time.perf_counter() - began


class ChangesKept(StoreWrapper):
    """Keeps what was applied, session by session."""

    def __init__(self, inner: SqliteStore) -> None:
        super().__init__(inner)
        self.of: dict[SessionRef, list[Change]] = defaultdict(list)

    async def transact(
        self, wanted: Mapping[SessionRef, Want], decide: Callable[[Loaded], Sequence[Change]]
    ) -> list[Outcome]:
        decided: list[Change] = []

        def kept(loaded: Loaded) -> Sequence[Change]:
            decided[:] = decide(loaded)
            return decided

        outcomes = await self.inner.transact(wanted, kept)
        assert set(outcomes) == {Outcome.APPLIED}
        for change in decided:
            self.of[change.ref].append(change)
        return outcomes


class Statements:
    """Stands where a connection is asked for, and keeps what it is given."""

    def __init__(self) -> None:
        self.kept: list[tuple[str, list[bare.Row]]] = []

    def executemany(self, statement: str, rows: Iterable[bare.Row]) -> None:
        self.kept.append((statement, list(rows)))


def commits_of(changes: Mapping[SessionRef, Sequence[Change]]) -> list[list[tuple[str, list[bare.Row]]]]:
    """The statements of each commit: the same step of ``AT_ONCE`` sessions, the rows of a kind together."""
    each = list(changes.values())
    commits: list[list[tuple[str, list[bare.Row]]]] = []
    for first in range(0, len(each), AT_ONCE):
        together = each[first : first + AT_ONCE]
        for step in range(CHANGES):
            before = {of[step].ref: of[step - 1].record if step else None for of in together}
            statements = Statements()
            apply(cast("sqlite3.Connection", statements), [of[step] for of in together], before, 0)
            commits.append(statements.kept)
    return commits


def write(path: Path, commits: Sequence[Sequence[tuple[str, list[bare.Row]]]]) -> float:
    """Seconds."""
    connection = bare.connect(path)
    began = time.perf_counter()
    for statements in commits:
        connection.execute("BEGIN IMMEDIATE")
        for statement, rows in statements:
            connection.executemany(statement, rows)
        connection.execute("COMMIT")
    took = time.perf_counter() - began
    connection.close()
    return took


async def cycles(*, each: int, rounds: int, reach: float) -> Figure:
    with tempfile.TemporaryDirectory() as folder:
        empty = Path(folder) / "empty.db"
        async with OpenStore(SqliteStore(empty)):
            pass  # the schema
        keeping = ChangesKept(SqliteStore(Path(folder) / "sample.db"))
        async with OpenStore(keeping) as sample:
            await run_cycles(sample, each=each)
        commits = commits_of(keeping.of)
        count = AT_ONCE * each
        assert sum(len(rows) for statements in commits for sql, rows in statements if "INTO events" in sql) == (
            EVENTS * count
        )
        number = 0

        def fresh() -> Path:
            nonlocal number
            number += 1
            return Path(folder) / f"{number}.db"

        async def ours() -> float:
            async with OpenStore(SqliteStore(fresh())) as store:
                return await run_cycles(store, each=each) / count * 1e6

        async def limit() -> float:
            path = fresh()
            bare.empty_copy(empty, path)
            return write(path, commits) / count * 1e6

        measures: tuple[Callable[[], Awaitable[float]], ...] = (ours, limit)
        return compared("run.cycle", "µs/run", *await in_turn(*measures, rounds=rounds), reach=reach)
