"""A row that cannot be read hides nothing but itself, and is never taken for nothing."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Literal

import msgspec
import pytest

from satchel.domain.event import CORRUPT_BODY, CORRUPT_FORMAT
from satchel.domain.ids import SessionRef
from satchel.domain.run import Attempt
from satchel.errors import InvalidInput, StoreCorrupt, StoreUnavailable
from satchel.store import SessionPage
from satchel.stores.sqlite import SqliteStore
from satchel.sweeper import Sweeper
from satchel.testing.clock import SettableClock
from satchel.testing.stage import ADA, ADAS_AGENT, ADMIN, AGENT, Stage, asking, lasting, said

ORDERS: tuple[Literal["asc"], Literal["desc"]] = ("asc", "desc")
BROKEN = ("'{broken'", "cast(x'7b22ff223a317d' as text)", "''")  # no JSON; JSON around a byte that is no text; nothing


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "agent.db"


@pytest.fixture
async def stage(path: Path) -> AsyncIterator[Stage]:
    clock = SettableClock()
    made = Stage(SqliteStore(path, clock=clock), clock)
    async with made.opened:
        yield made


class Damage:
    """Another program, or a worn disk, writes into the file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __call__(self, statement: str, *values: object) -> None:
        with sqlite3.connect(self._path) as connection:
            assert connection.execute(statement, values).rowcount > 0
        connection.close()

    def stored(self, statement: str, *values: object) -> Any:
        connection = sqlite3.connect(self._path)
        try:
            return connection.execute(statement, values).fetchone()[0]
        finally:
            connection.close()


@pytest.fixture
def damage(path: Path) -> Damage:
    return Damage(path)


# -- one record


async def test_the_sweeper_serves_those_behind_a_corrupt_record(
    stage: Stage, damage: Damage, caplog: pytest.LogCaptureFixture
) -> None:
    made = sorted([await stage.session(policy=lasting(idle=10)) for _ in range(5)])
    damage("UPDATE sessions SET record = '{broken secret' WHERE session_id = ?", made[1])
    stage.clock.pass_time(20)
    sweeper = Sweeper(stage.opened)
    with caplog.at_level(logging.ERROR, logger="satchel.sweeper"):
        first, second = await sweeper.sweep_once(), await sweeper.sweep_once()
    assert (first.visited, first.expired, first.failed) == (5, 4, 1)
    assert (second.visited, second.expired, second.failed) == (1, 0, 1)
    for one in (*made[:1], *made[2:]):
        assert damage.stored("SELECT status FROM sessions WHERE session_id = ?", one) == "EXPIRED"
    assert [record.getMessage() for record in caplog.records] == [  # once, without what was in it
        f"session '{made[1]}' cannot be looked after: store_corrupt"
    ]


async def test_the_sweeper_serves_those_behind_a_key_that_is_no_text(stage: Stage, damage: Damage) -> None:
    made = sorted([await stage.session(policy=lasting(idle=10)) for _ in range(3)])
    damage("UPDATE sessions SET session_id = cast(x'ff' || session_id as text) WHERE session_id = ?", made[0])
    damage("UPDATE sessions SET tenant_id = cast(x'00ff' as text) WHERE session_id = ?", made[1])
    stage.clock.pass_time(20)
    report = await stage.sweep()
    assert (report.visited, report.expired, report.failed) == (3, 1, 2)


async def test_the_sweeper_goes_on_when_the_store_comes_back(
    stage: Stage, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    session_id = await stage.session(policy=lasting(idle=10))
    stage.clock.pass_time(20)
    due, rounds, served = stage.store.due, 0, asyncio.Event()

    async def away_at_first(*args: Any, **options: Any) -> list[SessionRef]:
        nonlocal rounds
        rounds += 1
        if rounds <= 2:
            raise StoreUnavailable("away") if rounds == 1 else ZeroDivisionError
        if rounds == 4:
            served.set()
        return await due(*args, **options)

    monkeypatch.setattr(stage.store, "due", away_at_first)
    with caplog.at_level(logging.WARNING, logger="satchel.sweeper"):
        sweeping = asyncio.create_task(Sweeper(stage.opened).run_forever(interval=0.01))
        async with asyncio.timeout(5):
            await served.wait()
        sweeping.cancel()
    assert (await stage.record(session_id)).status == "EXPIRED"
    assert [record.levelname for record in caplog.records] == ["WARNING", "ERROR"]


async def test_a_list_leaves_out_what_cannot_be_read_and_names_it(
    stage: Stage, damage: Damage, caplog: pytest.LogCaptureFixture
) -> None:
    made = []
    for n in range(12):
        stage.clock.pass_time(1)
        made.append(await stage.session(title=f"number {n}", metadata={"n": n}))
    newest = made[::-1]
    lost = {newest[place] for place in (0, 3, 4, 5, 6, 7, 11)}  # the first, more than a page together, the last
    for one in lost:
        damage("UPDATE sessions SET record = '{broken' WHERE session_id = ?", one)
    left = [one for one in newest if one not in lost]
    with caplog.at_level(logging.ERROR, logger="satchel.listing"):
        for who in (ADA, ADMIN, AGENT):
            for title in (None, "number"):
                page = await stage.sessions(who).list_sessions(limit=2, title=title)
                seen = list(page.items)
                while page.next is not None:
                    assert len(page.items) == 2
                    page = await stage.sessions(who).list_sessions(limit=2, title=title, cursor=page.next)
                    seen += page.items
                assert [session.session_id for session in seen] == left
    assert {one for one in lost if any(one in record.getMessage() for record in caplog.records)} == lost
    whole: SessionPage = await stage.store.sessions("acme", user_id="ada", limit=100)
    assert set(whole.unreadable) == lost
    for one in lost:
        with pytest.raises(StoreCorrupt, match=one):
            await stage.sessions().get_session(one)


async def test_a_record_that_makes_no_sense_kills_no_list(stage: Stage, damage: Damage) -> None:
    strange, kept = await stage.session(), await stage.session()
    damage(
        "UPDATE sessions SET record = replace(record, '\"created_at\":', '\"created_at\":99999') WHERE session_id = ?",
        strange,
    )
    damage("INSERT INTO metadata VALUES ('acme', ?, '[1]')", strange)
    for title in (None, ""):
        listed = await stage.sessions().list_sessions(title=title)
        assert [session.session_id for session in listed.items] == [kept]


async def test_a_record_in_anothers_place_is_not_taken_for_it(stage: Stage, damage: Damage) -> None:
    mine, other = await stage.session(), await stage.session()
    record = damage.stored("SELECT record FROM sessions WHERE session_id = ?", other)
    damage("UPDATE sessions SET record = ? WHERE session_id = ?", record, mine)
    with pytest.raises(StoreCorrupt, match=mine):
        await stage.sessions().get_session(mine)


async def test_a_foreign_row_that_cannot_be_read_fails_no_neighbours_write(stage: Stage, damage: Damage) -> None:
    bad, good = await stage.session(ADAS_AGENT), await stage.session()
    call = await stage.sessions(ADAS_AGENT).start_tool_call(bad, "ls")
    damage("UPDATE tool_calls SET tool = cast(x'ff' as text)")
    told = await asyncio.gather(
        stage.sessions(ADAS_AGENT).finish_tool_call(bad, call.seq),
        stage.sessions().append_message(good, said("hello")),
        stage.sessions().append_message(bad, said("this needs no call")),
        return_exceptions=True,
    )
    assert [type(one).__name__ for one in told] == ["StoreCorrupt", "Message", "Message"]


# -- one event


@pytest.mark.parametrize("broken", BROKEN)
async def test_a_corrupt_message_keeps_its_place(stage: Stage, damage: Damage, broken: str) -> None:
    sessions = stage.sessions(ADAS_AGENT)
    session_id = await stage.session()
    for text in ("one", "two", "three"):
        await sessions.append_message(session_id, said(text))
    damage(f"UPDATE events SET body = {broken} WHERE seq = 2")  # noqa: S608  # fixed texts

    renamed = await sessions.rename_session(session_id, "a write that needs it not")
    assert (renamed.title, renamed.version, [message.seq for message in renamed.messages]) == (
        "a write that needs it not",
        4,
        [1, 2, 3],
    )
    for order in ORDERS:
        page = await sessions.messages(session_id, order=order, limit=2)
        assert len(page.items) == 2
        rest = await sessions.messages(session_id, order=order, limit=2, cursor=page.next)
        by_seq = {message.seq: message for message in (*page.items, *rest.items)}
        assert sorted(by_seq) == [1, 2, 3]
        lost = by_seq[2]
        assert (lost.format, lost.body, lost.role, lost.content) == (CORRUPT_FORMAT, CORRUPT_BODY, None, None)
        assert lost.to_dict()["body"] == {"corrupt": True}
        assert repr(lost)
    events = (await sessions.events(session_id)).items
    assert [(event.seq, event.kind, event.is_corrupt) for event in events] == [
        (1, "message", False),
        (2, "message", True),
        (3, "message", False),
        (4, "title_changed", False),
    ]
    followed = [event async for event in take(sessions.follow(session_id, after=0), 4)]
    assert [event.seq for event in followed] == [1, 2, 3, 4]
    context = await sessions.context(session_id)
    assert [message["content"] for message in context.messages] == ["one", "three"]
    assert (await sessions.restore_session(session_id)).last_seq == 4
    with pytest.raises(StoreCorrupt, match="event 2"):  # this write needs it
        await sessions.retract_message(session_id, 2)
    assert (await sessions.append_message(session_id, said("four"))).seq == 5
    assert (await sessions.close_session(session_id)).status == "CLOSED"


async def take(items: AsyncIterator[Any], count: int) -> AsyncIterator[Any]:
    async for item in items:
        yield item
        count -= 1
        if count == 0:
            return


@pytest.mark.parametrize("broken", BROKEN)
async def test_a_fork_up_to_before_a_corrupt_event_is_whole(stage: Stage, damage: Damage, broken: str) -> None:
    sessions = stage.sessions(ADAS_AGENT)
    session_id = await stage.session(title="first", metadata={"a": 1})
    await sessions.append_messages(session_id, [said("one"), said("two")])
    await sessions.update_session(session_id, metadata={"b": 1})  # 3
    call = await sessions.start_tool_call(session_id, "ls")  # 4
    await sessions.finish_tool_call(session_id, call.seq, result="x")  # 5
    await sessions.update_session(session_id, title="second", metadata={"c": 1})  # 6, 7
    await sessions.append_message(session_id, said("three"))  # 8
    damage(f"UPDATE events SET body = {broken} WHERE seq > 4")  # noqa: S608  # fixed texts
    for up_to, last in ((1, 1), (3, 3), (4, 3)):  # the end of the call is lost, and still its end
        fork = await sessions.fork_session(session_id, up_to=up_to)
        assert fork.last_seq == last
        assert [message.content for message in fork.messages] == ["one", "two"][:last]
        assert (fork.title, fork.metadata) == ("", {} if last == 1 else {"b": 1})  # what came later is not told
    for wanted in (5, 8, None):
        with pytest.raises(StoreCorrupt):
            await sessions.fork_session(session_id, up_to=wanted)


@pytest.mark.parametrize(
    "damaged",
    ["kind = 'massage'", "metadata = '{'", "actor = cast(x'ff' as text)", "format = cast(x'ff' as text)"],
)
async def test_an_event_with_a_corrupt_column_is_a_corrupt_event(stage: Stage, damage: Damage, damaged: str) -> None:
    session_id = await stage.session()
    await stage.sessions().append_message(session_id, said("one"), metadata={"a": 1})
    await stage.sessions().append_message(session_id, said("two"))
    damage(f"UPDATE events SET {damaged} WHERE seq = 1")  # noqa: S608  # fixed texts
    events = (await stage.sessions().events(session_id)).items
    assert [(event.seq, event.is_corrupt) for event in events] == [(1, True), (2, False)]
    msgspec.json.encode(events[0].to_dict())


async def test_nobody_writes_what_looks_corrupt(stage: Stage) -> None:
    session_id = await stage.session()
    with pytest.raises(InvalidInput, match="format"):
        await stage.sessions(AGENT).append_message(session_id, CORRUPT_BODY, format=CORRUPT_FORMAT)


@pytest.mark.parametrize("broken", BROKEN)
@pytest.mark.parametrize("asked", [False, True])
async def test_the_bodies_of_a_call_may_be_lost_and_the_call_is_not(
    stage: Stage, damage: Damage, broken: str, asked: bool
) -> None:
    sessions = stage.sessions(ADAS_AGENT)
    session_id = await stage.session()
    if asked:
        await sessions.append_message(session_id, asking("call_1", "call_2"))
    ended = await sessions.start_tool_call(session_id, "ls", {"path": "."}, tool_call_id="call_1")
    await sessions.finish_tool_call(session_id, ended.seq, result=["a", "b"])
    opened = await sessions.start_tool_call(session_id, "cat", {"path": "a"}, tool_call_id="call_2")
    damage(f"UPDATE events SET body = {broken} WHERE kind <> 'message' OR refers_to IS NOT NULL")  # noqa: S608  # fixed texts
    session = await sessions.get_session(session_id)
    assert [(call.tool, call.status) for call in session.tool_history] == [("ls", "succeeded"), ("cat", "started")]
    assert [call.arguments for call in session.tool_history] == [{"corrupt": True}] * 2
    assert session.tool_history[0].result == {"corrupt": True}
    assert (await sessions.finish_tool_call(session_id, opened.seq, result="text")).result == "text"
    assert (await sessions.close_session(session_id)).status == "CLOSED"


async def test_a_run_may_be_lost_and_its_session_is_not(stage: Stage, damage: Damage) -> None:
    runs, sessions = stage.runs(), stage.sessions(ADAS_AGENT)
    session_id = await stage.session()
    first, attempt = await stage.started_run(session_id, input="the first")
    await runs.complete_run(session_id, attempt)
    second = await runs.add_run(session_id, input="the second")
    damage("UPDATE runs SET record = '{broken' WHERE run_id = ?", first.run_id)
    session = await sessions.get_session(session_id)
    assert [(run.run_id, run.number, run.status) for run in session.runs] == [
        (first.run_id, 1, "COMPLETED"),
        (second.run_id, 2, "READY"),
    ]
    lost = await runs.get_run(session_id, first.run_id)
    assert lost.error is not None
    assert lost.error.code == "store_corrupt"
    msgspec.json.encode(lost.to_dict())
    with pytest.raises(StoreCorrupt, match=first.run_id):
        await runs.cancel_run(session_id, first.run_id)
    assert (await runs.start_run(session_id, second.run_id)).status == "RUNNING"


async def test_an_input_that_waits_and_is_lost_is_never_said(stage: Stage, damage: Damage) -> None:
    session_id = await stage.session()
    run = await stage.runs().add_run(session_id, input="the task")
    damage("UPDATE runs SET input = '{broken'")
    assert (await stage.runs().get_run(session_id, run.run_id)).input == {"corrupt": True}
    with pytest.raises(StoreCorrupt, match=run.run_id):
        await stage.runs().start_run(session_id, run.run_id)
    assert (await stage.sessions().messages(session_id)).items == ()


async def test_lost_memory_and_metadata_are_not_empty(stage: Stage, damage: Damage) -> None:
    sessions = stage.sessions(ADAS_AGENT)
    session_id = await stage.session(metadata={"project": "x"})
    await sessions.update_working_memory(session_id, {"append": {"completed": "a step"}})
    damage("UPDATE working_memory SET body = '{broken'")
    damage("UPDATE metadata SET body = '{broken'")
    session = await sessions.get_session(session_id)
    assert session.metadata == {"corrupt": True}
    assert session.working_memory is not None
    assert session.working_memory.notes == {"corrupt": True}
    assert (await sessions.list_sessions(metadata={"project": "x"})).items == ()
    assert [one.session_id for one in (await sessions.list_sessions()).items] == [session_id]
    with pytest.raises(StoreCorrupt):  # what is left of it must not be what the next write makes true
        await sessions.update_working_memory(session_id, {"append": {"completed": "another"}})
    with pytest.raises(StoreCorrupt):
        await sessions.update_session(session_id, metadata={"a": 1})
    assert damage.stored("SELECT body FROM working_memory") == "{broken"
    assert (await sessions.append_message(session_id, said("hello"))).seq == 2


async def test_what_is_said_of_corruption_holds_for_reads_and_writes(stage: Stage, damage: Damage) -> None:
    session_id = await stage.session()
    damage("UPDATE sessions SET record = '{broken'")
    for attempt in (
        stage.sessions().get_session(session_id),
        stage.sessions().append_message(session_id, said("hello")),
        stage.sessions().delete_session(session_id),
    ):
        with pytest.raises(StoreCorrupt, match="in a form that cannot be read") as caught:
            await attempt
        assert "nothing was" not in str(caught.value)


# -- text that streams


@pytest.mark.parametrize("broken", BROKEN)
async def test_a_corrupt_piece_of_text_keeps_what_is_before_it_and_hinders_nobody(
    stage: Stage, damage: Damage, broken: str
) -> None:
    sid = await stage.session()
    _, attempt = await stage.started_run(sid)
    for offset, text in ((0, "abc"), (3, "def"), (6, "ghi")):
        await stage.runs().add_text(sid, attempt, text, message=1, offset=offset)
    damage(f'UPDATE partials SET body = {broken} WHERE "offset" = 3')  # noqa: S608  # fixed texts
    items = stage.sessions().follow(sid, text=True)
    delta = await asyncio.wait_for(anext(items), 10)
    assert getattr(delta, "text", "") == "abc"
    await stage.sessions().append_message(sid, said("beside"))
    await stage.runs().complete_run(sid, attempt)
    rest = [await asyncio.wait_for(anext(items), 10) for _ in range(3)]
    assert [getattr(item, "kind", "") for item in rest] == ["message", "message", "run_ended"]
    interrupted = (await stage.sessions().messages(sid, order="desc", limit=1)).items[0]
    assert (interrupted.content, interrupted.status) == ("abc", "interrupted")


# -- answers


@pytest.mark.parametrize("broken", [*BROKEN, "'[1]'", "'{}'"])
async def test_a_corrupt_answer_is_neither_nothing_nor_asked_again(stage: Stage, damage: Damage, broken: str) -> None:
    sid = await stage.session()
    run, attempt = await stage.started_run(sid)
    await stage.runs().ask_question(sid, attempt, "size", "How big?")
    await stage.runs(ADA).answer_run(sid, run.run_id, {"size": 3})
    again = await stage.runs().start_run(sid, run.run_id)
    damage(f"UPDATE events SET body = {broken} WHERE kind = 'question_answered'")  # noqa: S608  # fixed texts
    with pytest.raises(StoreCorrupt, match="event 4 of session"):
        await stage.runs().ask_question(sid, Attempt(run.run_id, again.attempt), "size", "How big?")
    assert (await stage.runs().get_run(sid, run.run_id)).status == "RUNNING"
