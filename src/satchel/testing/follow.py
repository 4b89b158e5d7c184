"""Followers of a log: everything once, in order, until there is nothing more to come."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from satchel.domain.event import Event
from satchel.domain.ids import SessionRef
from satchel.domain.policy import Policy
from satchel.errors import ResyncRequired, SessionDeleted, SessionNotFound
from satchel.testing.stage import ADA, ADAS_AGENT, ADMIN, Stage, lasting, said
from satchel.testing.suite import StoreSuite

PATIENCE = 20.0


async def take(events: AsyncIterator[Event], count: int) -> list[Event]:
    async def taken() -> list[Event]:
        found: list[Event] = []
        async for event in events:
            found.append(event)
            if len(found) == count:
                break
        return found

    return await asyncio.wait_for(taken(), PATIENCE)


class FollowSuite(StoreSuite):
    async def test_a_follower_loses_and_repeats_nothing(self, stage: Stage, second: Stage) -> None:
        sid = await stage.session()
        await stage.sessions().append_messages(sid, [said(str(n)) for n in range(5)])
        following = asyncio.create_task(take(stage.sessions().follow(sid, after=0), 65))

        async def write(door: Stage) -> None:
            for n in range(30):
                await door.sessions().append_message(sid, said(str(n)))
                if n % 7 == 0:
                    await asyncio.sleep(0)

        await asyncio.gather(write(stage), write(second))
        assert [event.seq for event in await following] == list(range(1, 66))

    async def test_a_follower_that_starts_again_goes_on_after_the_last_it_saw(self, stage: Stage) -> None:
        sid = await stage.session()
        await stage.sessions().append_messages(sid, [said(str(n)) for n in range(9)])
        seen: list[int] = []
        while len(seen) < 9:
            after = seen[-1] if seen else 0
            seen += [event.seq for event in await take(stage.sessions().follow(sid, after=after), 3)]
        assert seen == list(range(1, 10))

    async def test_a_follower_from_now_sees_what_comes(self, stage: Stage, second: Stage) -> None:
        sid = await stage.session()
        await stage.sessions().append_message(sid, said("before"))
        following = asyncio.create_task(take(second.sessions().follow(sid), 1))
        while not following.done():  # it may begin a little later than we
            await asyncio.sleep(0.05)
            await stage.sessions().append_message(sid, said("after"))
        (event,) = await following
        assert event.data["content"] == "after"

    async def test_a_follower_of_a_run_ends_with_it(self, stage: Stage) -> None:
        sid = await stage.session()
        run, attempt = await stage.started_run(sid, input="go")
        following = asyncio.create_task(take(stage.sessions().follow(sid, after=0, run_id=run.run_id), 100))
        await stage.sessions().append_message(sid, said("beside"))
        await stage.sessions(ADAS_AGENT).append_message(sid, said("answer", "assistant"), attempt=attempt)
        await stage.runs().complete_run(sid, attempt)
        kinds = ["run_added", "message", "run_started", "message", "run_ended"]
        assert [event.kind for event in await following] == kinds
        again = await take(stage.sessions().follow(sid, after=0, run_id=run.run_id), 100)
        assert [event.kind for event in again] == kinds
        assert await take(stage.sessions().follow(sid, run_id=run.run_id), 100) == []

    async def test_who_follows_a_finished_run_again_is_done_whatever_came_behind_its_end(self, stage: Stage) -> None:
        sid = await stage.session(policy=Policy(context_window=100, context_share=0.5))
        run, attempt = await stage.started_run(sid, input="go")
        await stage.runs().add_text(sid, attempt, "a long answer " * 30, message=1, offset=0)
        await stage.runs().fail_run(sid, attempt, code="broken")  # the text that was cut fills the window
        log = (await stage.sessions().events(sid, run_id=run.run_id)).items
        assert [event.kind for event in log[-2:]] == ["run_ended", "context_threshold"]
        end = log[-2].seq
        assert await take(stage.sessions().follow(sid, after=end, run_id=run.run_id), 100) == []
        (answer,) = [event.seq for event in log if event.streamed is not None]
        await stage.sessions(ADAS_AGENT).retract_message(sid, answer)
        assert await take(stage.sessions().follow(sid, after=end, run_id=run.run_id), 100) == []
        assert await take(stage.sessions().follow(sid, after=end + 1, run_id=run.run_id), 100) == []

    async def test_who_has_seen_more_than_the_log_holds_is_told_to_read_it_again(self, stage: Stage) -> None:
        sid = await stage.session()
        await stage.sessions().append_messages(sid, [said(str(n)) for n in range(3)])
        with pytest.raises(ResyncRequired) as told:
            await take(stage.sessions().follow(sid, after=4), 1)
        assert (told.value.session_id, told.value.after, told.value.last_seq) == (sid, 4, 3)
        following = asyncio.create_task(take(stage.sessions().follow(sid, after=3), 1))
        await stage.sessions().append_message(sid, said("there is more"))
        assert [event.seq for event in await following] == [4]
        run, attempt = await stage.started_run(sid)
        await stage.runs().complete_run(sid, attempt)
        last = (await stage.record(sid)).last_seq
        assert await take(stage.sessions().follow(sid, after=last, run_id=run.run_id), 1) == []
        with pytest.raises(ResyncRequired) as told:  # also of a run that is over: it may have ended otherwise
            await take(stage.sessions().follow(sid, after=last + 1, run_id=run.run_id), 1)
        assert (told.value.after, told.value.last_seq) == (last + 1, last)

    async def test_a_followed_session_that_is_deleted_ends_the_following(self, stage: Stage, second: Stage) -> None:
        sid = await stage.session()
        await stage.sessions().append_message(sid, said("x"))
        following = asyncio.create_task(take(second.sessions().follow(sid, after=0), 100))
        await asyncio.sleep(0.02)
        await stage.sessions().delete_session(sid)
        with pytest.raises(SessionDeleted):
            await following

    async def test_ownership_is_asked_again_while_following(self, stage: Stage) -> None:
        sid = await stage.session()
        await stage.sessions().append_message(sid, said("x"))
        following = asyncio.create_task(take(stage.sessions(ADA).follow(sid, after=0), 100))
        await asyncio.sleep(0.02)
        await stage.sessions(ADMIN).transfer_session(sid, "bob")
        with pytest.raises(SessionNotFound):
            await following

    async def test_a_wait_ends_when_something_came_when_it_is_there_and_in_time(
        self, stage: Stage, second: Stage
    ) -> None:
        sid = await stage.session()
        ref = SessionRef("acme", sid)
        await asyncio.wait_for(stage.store.wait(ref, 0, 0.01), PATIENCE)
        waiting = asyncio.create_task(stage.store.wait(ref, 0, PATIENCE * 2))
        await asyncio.sleep(0.02)
        await second.sessions().append_message(sid, said("x"))
        await asyncio.wait_for(waiting, PATIENCE)
        await asyncio.wait_for(stage.store.wait(ref, 0, PATIENCE * 2), PATIENCE)
        await asyncio.wait_for(stage.store.wait(SessionRef("acme", "sess_unknown"), 0, 0.01), PATIENCE)

    async def test_an_expiry_reaches_the_follower(self, stage: Stage) -> None:
        sid = await stage.session(policy=lasting(idle=60))
        await stage.sessions().append_message(sid, said("x"))
        following = stage.sessions().follow(sid, after=0)
        assert [event.kind for event in await take(following, 1)] == ["message"]
        stage.clock.pass_time(60)
        (event,) = await take(stage.sessions().follow(sid, after=1), 1)
        assert event.kind == "session_expired"
