"""How a text ends that nobody ends: with its run, its session, or its store."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from satchel.domain.ids import SessionRef
from satchel.domain.message import Message
from satchel.domain.run import Attempt
from satchel.errors import RunFenced, SessionDeleted
from satchel.testing.stage import ADAS_AGENT, ADMIN, AGENT, TENANT, Stage, lasting, refused, said
from satchel.testing.streams import pieces_of, say, spoken
from satchel.testing.suite import StoreSuite


class InterruptedStreamSuite(StoreSuite):
    @pytest.mark.parametrize(
        ("how", "last"),
        [
            ("complete", "run_ended"),
            ("fail", "run_ended"),
            ("stop", "run_ended"),
            ("hand_back", "run_ended"),
            ("lease", "run_ended"),
            ("close", "session_closed"),
            ("expire", "session_expired"),
            ("lifetime", "session_expired"),
        ],
    )
    async def test_the_end_of_a_run_keeps_what_it_was_saying_as_interrupted(
        self, stage: Stage, how: str, last: str
    ) -> None:
        sid = await stage.session(policy=lasting(max_lifetime=60))
        _, attempt = await stage.started_run(sid, input="go", lease=30)
        runs, sessions = stage.runs(), stage.sessions()
        await runs.add_text(sid, attempt, "half ", message=1, offset=0, metadata={"model": "m"})
        await say(stage, sid, attempt, "an ans", offset=5)
        await say(stage, sid, attempt, "beside", message=2)
        before = await stage.record(sid)
        ends: dict[str, Callable[[], Awaitable[object]]] = {
            "complete": lambda: runs.complete_run(sid, attempt),
            "fail": lambda: runs.fail_run(sid, attempt, code="x"),
            "stop": lambda: runs.end_cancelled_run(sid, attempt),
            "hand_back": lambda: runs.hand_back_run(sid, attempt),
            "close": lambda: sessions.close_session(sid),
            "expire": lambda: stage.sessions(ADMIN).expire_session(sid),
        }
        if how == "lease":
            stage.clock.pass_lease_time(30)
            await stage.sweep()
        elif how == "lifetime":
            stage.clock.pass_time(60)
            await stage.sweep()
        else:
            await ends[how]()
        log = (await stage.log(sid))[before.last_seq :]
        assert {event.version for event in log} == {before.version + 1}
        kept = [Message.from_event(event) for event in log if event.kind == "message"]
        assert [(message.content, message.status) for message in kept] == [
            ("half an ans", "interrupted"),
            ("beside", "interrupted"),
        ]
        assert [message.metadata for message in kept] == [{"model": "m"}, {}]
        assert [event.streamed for event in log[:2]] == [1, 2]
        assert log[-1].kind == last
        assert (await stage.record(sid)).streams == ()
        for number in (1, 2):
            assert await pieces_of(stage, sid, attempt, number) == ()

    async def test_the_next_attempt_begins_to_speak_anew(self, stage: Stage) -> None:
        sid = await stage.session()
        run, attempt = await stage.started_run(sid, lease=30, max_attempts=2)
        await say(stage, sid, attempt, "first try")
        stage.clock.pass_lease_time(30)
        await stage.sweep()
        again = await stage.runs(ADMIN).start_run(sid, run.run_id)
        second = Attempt(again.run_id, again.attempt)
        async with refused(stage, sid, RunFenced):
            await stage.runs().add_text(sid, attempt, " goes on", message=1, offset=9)
        await say(stage, sid, second, "second try")
        await stage.runs().end_text(sid, second, said("second try", "assistant"), message=1)
        assert await spoken(stage, sid) == [("first try", "interrupted"), ("second try", "complete")]

    async def test_a_run_that_is_asked_to_stop_may_still_say_what_it_said(self, stage: Stage) -> None:
        sid = await stage.session()
        _, attempt = await stage.started_run(sid)
        await say(stage, sid, attempt, "half")
        await stage.runs().cancel_run(sid, attempt.run_id)
        assert await spoken(stage, sid) == []
        await say(stage, sid, attempt, " an", offset=4)
        await stage.runs().end_text(sid, attempt, said("half an ans", "assistant"), message=1, interrupted=True)
        await stage.runs().end_cancelled_run(sid, attempt)
        assert await spoken(stage, sid) == [("half an ans", "interrupted")]

    async def test_pieces_and_the_end_of_their_run_share_a_batch(self, stage: Stage) -> None:
        sid = await stage.session()
        _, attempt = await stage.started_run(sid)
        runs = stage.runs()
        await say(stage, sid, attempt, "a")
        ended = (
            await asyncio.gather(
                runs.add_text(sid, attempt, "b", message=1, offset=1),
                runs.add_text(sid, attempt, "c", message=1, offset=2),
                runs.add_text(sid, attempt, "x", message=2, offset=0),
                runs.end_text(sid, attempt, said("xy", "assistant"), message=2),
                runs.complete_run(sid, attempt),
                return_exceptions=True,
            )
        )[-1]
        assert not isinstance(ended, BaseException)
        assert await spoken(stage, sid) == [("xy", "complete"), ("abc", "interrupted")]
        assert await pieces_of(stage, sid, attempt) == await pieces_of(stage, sid, attempt, 2) == ()

    async def test_a_child_run_streams_beside_its_parent_and_ends_with_it(self, stage: Stage) -> None:
        sid = await stage.session()
        _, parent = await stage.started_run(sid, lease=30)
        children = [Attempt((await stage.runs().add_child_run(sid, parent)).run_id, 1) for _ in range(2)]
        first, second = children
        await say(stage, sid, parent, "parent")
        await say(stage, sid, first, "first")
        await say(stage, sid, second, "second")
        await stage.runs().end_text(sid, first, said("first one", "assistant"), message=1)
        await stage.runs().complete_run(sid, first)
        stage.clock.pass_lease_time(30)
        await stage.sweep()
        assert await spoken(stage, sid) == [
            ("first one", "complete"),
            ("second", "interrupted"),
            ("parent", "interrupted"),
        ]
        for attempt in (parent, first, second):
            assert await pieces_of(stage, sid, attempt) == ()

    async def test_a_deletion_takes_what_streams_with_it(self, stage: Stage) -> None:
        sid = await stage.session()
        _, attempt = await stage.started_run(sid)
        await say(stage, sid, attempt, *"secret")
        await stage.sessions().delete_session(sid)
        with pytest.raises(SessionDeleted):
            await stage.runs().add_text(sid, attempt, "x", message=1, offset=6)
        while await stage.store.erase(SessionRef(TENANT, sid), 100):
            pass
        assert await pieces_of(stage, sid, attempt) == ()

    async def test_copies_hold_messages_and_not_what_streams(self, stage: Stage) -> None:
        sid = await stage.session()
        _, attempt = await stage.started_run(sid, input="go")
        await say(stage, sid, attempt, "said")
        await stage.runs().end_text(sid, attempt, said("said", "assistant"), message=1)
        await say(stage, sid, attempt, "saying", message=2)
        fork = (await stage.sessions(ADAS_AGENT).fork_session(sid)).session_id
        exported = b"".join([part async for part in stage.sessions(ADAS_AGENT).export_sessions([sid])])
        (imported,) = [one async for one in stage.sessions(AGENT).import_sessions([exported], user_id="ada")]
        for copy in (fork, imported.session_id):
            assert await spoken(stage, copy) == [("said", "complete")]
            assert (await stage.record(copy)).streams == ()
            assert [event.streamed for event in await stage.log(copy) if event.kind == "message"] == [None, 1]
