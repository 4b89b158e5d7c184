"""Lists of sessions: whose, by what, in which order, page by page."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from satchel.domain.clock import to_datetime
from satchel.domain.principal import Principal
from satchel.errors import InvalidCursor, InvalidInput
from satchel.testing.clock import START
from satchel.testing.stage import ADA, ADAS_AGENT, ADMIN, AGENT, BOB, Stage, lasting, said, unchanged
from satchel.testing.suite import StoreSuite


async def ids(stage: Stage, who: Principal = ADA, **filters: Any) -> list[str]:
    return [session.session_id for session in await stage.sessions(who).list_sessions(**filters)]


async def all_pages(stage: Stage, who: Principal = ADA, **filters: Any) -> list[str]:
    found: list[str] = []
    cursor: str | None = None
    for _ in range(1_000):
        page = await stage.sessions(who).list_sessions(cursor=cursor, **filters)
        found += [session.session_id for session in page]
        cursor = page.next
        if cursor is None:
            return found
    raise AssertionError("the list has no end")


class ListingSuite(StoreSuite):
    async def test_own_sessions_newest_change_first(self, stage: Stage) -> None:
        made = []
        for who in (ADA, BOB, ADAS_AGENT):
            stage.clock.pass_time(1)
            made.append(await stage.session(who))
        first, of_bob, second = made
        assert await ids(stage) == [second, first]
        stage.clock.pass_time(1)
        await stage.sessions().append_message(first, said("x"))
        assert await ids(stage) == [first, second]
        assert await ids(stage, BOB) == [of_bob]

    async def test_others_lists_are_for_unbound_agents_and_admins(self, stage: Stage) -> None:
        of_ada = await stage.session()
        stage.clock.pass_time(1)
        of_bob = await stage.session(BOB)
        await stage.session(Principal.user("ada", tenant_id="umbrella"))
        for who in (AGENT, ADMIN):
            assert await ids(stage, who) == [of_bob, of_ada]
            assert await ids(stage, who, user_id="ada") == [of_ada]
            assert await ids(stage, who, user_id="ADA") == []
        for who in (ADA, ADAS_AGENT):
            assert await ids(stage, who, user_id="bob") == []
            assert await ids(stage, who, user_id="ada") == [of_ada]
            with pytest.raises(InvalidInput):
                await ids(stage, who, user_id="")

    async def test_the_status_is_the_one_that_holds_now_and_nothing_is_committed(self, stage: Stage) -> None:
        idle = await stage.session(policy=lasting(idle=60))
        active = await stage.session()
        closed = await stage.session()
        deleted = await stage.session()
        await stage.sessions().close_session(closed)
        await stage.sessions().delete_session(deleted)
        assert set(await ids(stage, status="ACTIVE")) == {idle, active}
        stage.clock.pass_time(60)
        async with unchanged(stage, idle):
            assert await ids(stage, status="ACTIVE") == [active]
            assert await ids(stage, status="EXPIRED") == [idle]
            assert await ids(stage, status="CLOSED") == [closed]
            shown = {one.session_id: one.status for one in await stage.sessions().list_sessions()}
        assert shown == {idle: "EXPIRED", active: "ACTIVE", closed: "CLOSED"}
        with pytest.raises(InvalidInput, match="status"):
            await ids(stage, status="open")
        with pytest.raises(InvalidInput, match="what is deleted is in no list"):
            await ids(stage, status="DELETED")

    async def test_a_session_whose_retention_is_over_is_in_no_list(self, stage: Stage) -> None:
        closed = await stage.session(policy=lasting(retention=60))
        idle = await stage.session(policy=lasting(idle=30, retention=60))
        await stage.sessions().close_session(closed)
        stage.clock.pass_time(60 - 0.000001)
        assert set(await ids(stage)) == {closed, idle}
        stage.clock.pass_time(0.000001)
        assert await ids(stage) == [idle]
        assert await ids(stage, status="CLOSED") == []
        assert await ids(stage, status="EXPIRED") == [idle]
        stage.clock.pass_time(30)
        async with unchanged(stage, idle):
            assert await ids(stage) == []
            assert await ids(stage, status="EXPIRED") == []

    async def test_a_range_of_the_last_change(self, stage: Stage) -> None:
        made = []
        for _ in range(4):
            made.append(await stage.session())
            stage.clock.pass_time(10)
        at = [to_datetime(START + n * 10_000_000) for n in range(4)]
        assert await ids(stage, updated_after=at[1], updated_before=at[3]) == [made[2], made[1]]
        assert await ids(stage, updated_after=at[1] + timedelta(microseconds=1)) == [made[3], made[2]]
        assert await ids(stage, updated_before=at[1]) == [made[0]]
        assert await ids(stage, updated_after=at[2].astimezone(UTC)) == [made[3], made[2]]
        with pytest.raises(InvalidInput, match="time zone"):
            await ids(stage, updated_after=datetime(2026, 1, 1))  # noqa: DTZ001  # the point of it

    async def test_metadata_is_compared_member_by_member(self, stage: Stage) -> None:
        a = await stage.session(metadata={"topic": "广告", "n": 1, "deep": {"x": [1, 2], "y": None}})
        b = await stage.session(metadata={"topic": "ads", "n": "1"})
        c = await stage.session(metadata={"topic": "ads", "n": True, "extra": None})
        assert await ids(stage, metadata={"topic": "广告"}) == [a]
        assert set(await ids(stage, metadata={"topic": "ads"})) == {b, c}
        assert await ids(stage, metadata={"topic": "ads", "n": "1"}) == [b]
        assert await ids(stage, metadata={"n": 1}) == [a]
        assert await ids(stage, metadata={"n": 1.0}) == [a]
        assert await ids(stage, metadata={"n": True}) == [c]
        assert await ids(stage, metadata={"deep": {"y": None, "x": [1, 2]}}) == [a]
        assert await ids(stage, metadata={"deep": {"x": [1, 2]}}) == []
        assert await ids(stage, metadata={"extra": None}) == [c]
        assert set(await ids(stage, metadata={})) == {a, b, c}

    async def test_a_title_is_found_by_its_text_whatever_its_case(self, stage: Stage) -> None:
        titles = ("Flask will not start", "广告收入为什么下降?", "100% of it", "under_score", "STRASSE")
        made = {title: await stage.session(title=title) for title in titles}
        for text, title in (
            ("flask", titles[0]),
            ("WILL NOT", titles[0]),
            ("收入", titles[1]),
            ("下降?", titles[1]),
            ("%", titles[2]),
            ("_", titles[3]),
            ("straße", titles[4]),
        ):
            assert await ids(stage, title=text) == [made[title]]
        assert await ids(stage, title="收 入") == []
        assert len(await ids(stage, title="")) == 5

    async def test_sessions_of_one_instant_are_paged_without_loss_or_repeat(self, stage: Stage) -> None:
        made = {await stage.session() for _ in range(23)}
        for limit in (1, 4, 22, 23, 50):
            found = await all_pages(stage, limit=limit)
            assert (len(found), set(found)) == (23, made)
            assert found == sorted(found, reverse=True)

    async def test_filters_leave_pages_short_but_lose_nothing(self, stage: Stage) -> None:
        made = []
        for n in range(30):
            made.append(await stage.session(title="even" if n % 2 == 0 else "odd", metadata={"third": n % 3 == 0}))
            stage.clock.pass_time(n % 2)
        expected = {sid for n, sid in enumerate(made) if n % 6 == 0}
        for limit in (1, 2, 50):
            found = await all_pages(stage, title="EVEN", metadata={"third": True}, limit=limit)
            assert (len(found), set(found)) == (5, expected)

    async def test_a_cursor_is_bound_to_its_caller_and_its_filters(self, stage: Stage) -> None:
        for _ in range(4):
            await stage.session(title="t")
            await stage.session(BOB, title="t")
        cursor = (await stage.sessions().list_sessions(limit=2)).next
        assert cursor is not None
        assert len(await ids(stage, ADAS_AGENT, limit=2, cursor=cursor)) == 2  # the same list
        for who, filters in (
            (BOB, {}),
            (AGENT, {}),
            (ADMIN, {"user_id": "ada"}),
            (Principal.user("ada", tenant_id="umbrella"), {}),
            (ADA, {"status": "ACTIVE"}),
            (ADA, {"title": "t"}),
            (ADA, {"metadata": {"k": 1}}),
            (ADA, {"updated_after": to_datetime(START)}),
        ):
            with pytest.raises(InvalidCursor):
                await ids(stage, who, cursor=cursor, **filters)
        for wrong in ("", "nonsense", cursor[:-2], "é", "A" * 10_000):
            with pytest.raises(InvalidCursor):
                await ids(stage, cursor=wrong)

    async def test_lists_hold_no_memory_and_no_messages(self, stage: Stage) -> None:
        sid = await stage.session(title="t", metadata={"k": 1})
        await stage.sessions().append_message(sid, said("x"))
        (shown,) = await stage.sessions().list_sessions()
        assert (shown.working_memory, shown.messages, shown.message_count) == (None, (), 1)
        assert (shown.title, shown.metadata, shown.version) == ("t", {"k": 1}, 1)

    async def test_one_call_looks_at_a_thousand_sessions_and_goes_on_from_there(self, stage: Stage) -> None:
        """A short page with a cursor is normal; only the last page has none."""
        import asyncio

        hit = await stage.session(title="the oldest")
        stage.clock.pass_time(1)
        await asyncio.gather(*(stage.session(title="newer") for _ in range(1_005)))
        first = await stage.sessions().list_sessions(title="oldest")
        assert (len(first), first.next is not None) == (0, True)
        assert await all_pages(stage, title="oldest") == [hit]
