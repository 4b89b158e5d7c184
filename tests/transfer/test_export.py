"""Every session that is there throughout is exported once, and each line is whole."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from satchel.errors import SessionDeleted, SessionNotFound
from satchel.store import EventPage, SessionPage
from satchel.testing.stage import ADA, ADAS_AGENT, ADMIN, AGENT, BOB, Stage, said
from satchel.testing.wrappers import StoreWrapper
from tests.transfer.lines import AS_ADA, exported, imported, line


async def lines_of(pieces: AsyncIterator[bytes]) -> list[Any]:
    return [json.loads(one) for one in b"".join([piece async for piece in pieces]).splitlines()]


def names(shown: list[Any]) -> list[str]:
    return [one["satchel"]["session_id"] for one in shown]


class Busy(StoreWrapper):
    """Between two pages of a list somebody does something."""

    def __init__(self, inner: Any, between: Any) -> None:
        super().__init__(inner)
        self._between = between

    async def sessions(self, tenant_id: str, **options: Any) -> SessionPage:
        page = await self.inner.sessions(tenant_id, **options)
        await self._between()
        return page


@pytest.mark.parametrize("back", [False, True], ids=["time goes on", "the clock was set back"])
async def test_sessions_that_change_while_they_are_listed_are_exported_once(stage: Stage, back: bool) -> None:
    ids = []
    for _ in range(30):
        stage.clock.pass_time(100)
        ids.append(await stage.session())
    waiting = list(ids)

    async def change_the_oldest() -> None:
        """It moves to the part of the list that was read already: to its front, or, by a clock that is behind, near it."""
        if waiting:
            if not back:
                stage.clock.pass_time(1)
            await stage.sessions().append_message(waiting.pop(0), said("still here"))

    stage.clock.step_wall(-50 if back else 1)
    door = Stage(Busy(stage.store, change_the_oldest), stage.clock)
    shown = await lines_of(door.sessions().export_sessions(limit=3))
    assert sorted(names(shown)) == sorted(ids)


async def test_a_session_that_changes_again_and_again_is_exported_once(stage: Stage) -> None:
    ids = []
    for _ in range(30):
        stage.clock.pass_time(1)
        ids.append(await stage.session())
    left = 40

    async def change_one() -> None:
        nonlocal left
        if left > 0:
            left -= 1
            stage.clock.pass_time(1)
            await stage.sessions().append_message(ids[0], said("again"))

    door = Stage(Busy(stage.store, change_one), stage.clock)
    assert sorted(names(await lines_of(door.sessions().export_sessions(limit=2)))) == sorted(ids)


async def test_what_is_deleted_or_given_away_meanwhile_is_left_out(stage: Stage) -> None:
    ids = [await stage.session() for _ in range(5)]
    exporting = stage.sessions().export_sessions()
    first = await anext(exporting)
    begun = json.loads(first + b"]}")["session_id"]
    gone = [one for one in ids if one != begun][:2]
    await stage.sessions().delete_session(gone[0])
    await stage.sessions(ADMIN).transfer_session(gone[1], "bob")
    rest = b"".join([piece async for piece in exporting])
    shown = [json.loads(one) for one in (first + rest).splitlines()]
    assert sorted(names(shown)) == sorted(one for one in ids if one not in gone)


class Shredder(StoreWrapper):
    """Deletes a session while its log is read."""

    def __init__(self, inner: Any, shred: Any) -> None:
        super().__init__(inner)
        self._shred = shred

    async def events(self, ref: Any, **options: Any) -> EventPage:
        page = await self.inner.events(ref, **options)
        await self._shred(ref.session_id, page)
        return page


async def test_a_session_that_is_deleted_while_it_is_read_leaves_no_half_line(stage: Stage) -> None:
    (long,) = await imported(stage, AS_ADA, line("long", *(said(str(n)) for n in range(700))))
    other = await stage.session()

    async def shred(session_id: str, page: EventPage) -> None:
        if session_id == long.session_id and page.events and page.events[-1].seq == 400:
            await stage.sessions().delete_session(session_id)

    door = Stage(Shredder(stage.store, shred), stage.clock)
    assert names(await lines_of(door.sessions().export_sessions())) == [other]
    (again,) = await imported(stage, AS_ADA, line("long", *(said(str(n)) for n in range(700))))

    async def shred_again(session_id: str, page: EventPage) -> None:
        if session_id == again.session_id and page.events and page.events[-1].seq == 400:
            await stage.sessions().delete_session(session_id)

    door = Stage(Shredder(stage.store, shred_again), stage.clock)
    pieces: list[bytes] = []

    async def collect() -> None:
        async for piece in door.sessions().export_sessions([again.session_id]):
            pieces.append(piece)  # noqa: PERF401  # what came before the error matters

    with pytest.raises(SessionDeleted):  # who asks for it by name is told
        await collect()
    assert pieces == []


async def test_a_foreign_session_is_exported_to_nobody(stage: Stage) -> None:
    sid = await stage.session(BOB)
    assert await lines_of(stage.sessions(ADA).export_sessions()) == []
    with pytest.raises(SessionNotFound):
        await exported(stage, ADA, sid)


async def test_a_line_larger_than_what_is_held_in_memory_is_whole(stage: Stage) -> None:
    sid = await stage.session()
    for n in range(10):
        await stage.sessions(ADAS_AGENT).append_message(sid, said(str(n) * 1_000_000))
    (shown,) = (await exported(stage, ADA, sid)).splitlines()
    assert [len(one["content"]) for one in json.loads(shown)["messages"]] == [1_000_000] * 10


async def test_an_input_that_was_waiting_when_the_export_began_is_in_it(stage: Stage) -> None:
    """The run starts, and its input becomes a message, while the line is written."""
    sid = await stage.session()
    run = await stage.runs().add_run(sid, input="my question")

    async def start(session_id: str, page: EventPage) -> None:
        if (await stage.runs().get_run(session_id, run.run_id)).status == "READY":
            await stage.runs().start_run(session_id, run.run_id)

    door = Stage(Shredder(stage.store, start), stage.clock)
    exporting = await exported(door, ADA, sid)
    (report,) = await imported(stage, AS_ADA, exporting.replace(b'"session_id":"sess_', b'"session_id":"copy_'))
    messages = (await stage.sessions().messages(report.session_id)).items
    assert [(one.content, one.status) for one in messages] == [("my question", "unanswered")]


async def test_filters_hold_for_a_whole_export(stage: Stage) -> None:
    for n in range(5):
        await stage.session(title="even" if n % 2 == 0 else "odd", metadata={"n": n})
        await stage.session(BOB, title="even")
    shown = await lines_of(stage.sessions(AGENT).export_sessions(title="EVEN", user_id="ada", limit=1))
    assert sorted(one["satchel"]["metadata"]["n"] for one in shown) == [0, 2, 4]
