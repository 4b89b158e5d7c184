"""The last row of a log is lost: who follows is told what is there, and does not look without a pause."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from satchel import TextDelta
from satchel.domain.run import Attempt
from satchel.stores.sqlite import SqliteStore
from satchel.testing.clock import SettableClock
from satchel.testing.stage import ADAS_AGENT, Stage, said


@pytest.mark.parametrize("text", [False, True])
async def test_a_follower_passes_the_lost_end_of_a_log(
    text: bool,  # pytest gives it
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = tmp_path / "agent.db"
    stage = Stage(SqliteStore(path), SettableClock())
    async with stage.opened:
        sid = await stage.session()
        agent = stage.sessions(ADAS_AGENT)
        run, attempt = await stage.started_run(sid, input="go")
        await stage.runs().add_text(sid, Attempt(run.run_id, run.attempt), "one ", message=1, offset=0)
        await agent.append_message(sid, said("lost"))
        with sqlite3.connect(path) as beside:
            beside.execute("DELETE FROM events WHERE seq = (SELECT max(seq) FROM events)")
        beside.close()
        looks = 0
        for name in ("events", "partial"):
            method = getattr(stage.store, name)

            async def counted(*arguments: Any, method: Any = method, **options: Any) -> Any:
                nonlocal looks
                looks += 1
                return await method(*arguments, **options)

            monkeypatch.setattr(stage.store, name, counted)
        told: list[Any] = []

        async def follow() -> None:
            async for item in agent.follow(sid, after=0, text=text):
                told.append(item)  # noqa: PERF401  # each as it comes

        following = asyncio.create_task(follow())
        await asyncio.sleep(0.5)
        assert looks < 20
        last = (await stage.record(sid)).last_seq
        assert [one.text for one in told if isinstance(one, TextDelta)] == (["one "] if text else [])
        await agent.append_message(sid, said("after"))
        async with asyncio.timeout(10):
            while not any(getattr(one, "seq", 0) == last + 1 for one in told):  # noqa: ASYNC110  # a list has no event
                await asyncio.sleep(0.01)
        following.cancel()
        await asyncio.wait([following])
        seqs = [one.seq for one in told if not isinstance(one, TextDelta)]
        assert seqs == [*range(1, last), last + 1]
        assert attempt.run_id == run.run_id
