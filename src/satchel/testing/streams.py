"""Text that streams: shown once it is stored, whole and in order, and gone with the message that it becomes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import msgspec
import pytest

from satchel.domain.event import Event
from satchel.domain.ids import SessionRef
from satchel.domain.limits import Limits
from satchel.domain.message import Message
from satchel.domain.run import Attempt
from satchel.domain.stream import Piece, TextDelta, TextPosition
from satchel.errors import (
    IdempotencyMismatch,
    InvalidInput,
    LimitExceeded,
    NotAllowed,
    RunFenced,
    SessionClosed,
    SessionDeleted,
    SessionNotFound,
    StreamGap,
)
from satchel.testing.stage import ADA, ADAS_AGENT, ADMIN, AGENT, STRANGERS, TENANT, Stage, lasting, refused, said
from satchel.testing.suite import StoreSuite
from satchel.testing.transfer import ELSEWHERE, exported, imported

PATIENCE = 20.0


async def pieces_of(stage: Stage, session_id: str, attempt: Attempt, message: int = 1) -> tuple[Piece, ...]:
    """As they are kept."""
    page = await stage.store.partial(
        SessionRef(TENANT, session_id), attempt.run_id, attempt=attempt.attempt, message=message, limit=1_000
    )
    return page.pieces


async def say(stage: Stage, session_id: str, attempt: Attempt, *texts: str, message: int = 1, offset: int = 0) -> int:
    for text in texts:
        offset = await stage.runs().add_text(session_id, attempt, text, message=message, offset=offset)
    return offset


async def heard(items: AsyncIterator[Event | TextDelta], last: str = "run_ended") -> list[Event | TextDelta]:
    """Until an event of this kind."""

    async def hear() -> list[Event | TextDelta]:
        found: list[Event | TextDelta] = []
        async for item in items:
            found.append(item)
            if isinstance(item, Event) and item.kind == last:
                break
        return found

    return await asyncio.wait_for(hear(), PATIENCE)


async def next_delta(items: AsyncIterator[Event | TextDelta]) -> TextDelta:
    while True:
        item = await asyncio.wait_for(anext(items), PATIENCE)
        if isinstance(item, TextDelta):
            return item


async def spoken(stage: Stage, session_id: str) -> list[tuple[str, str]]:
    """What the session's assistant said, and how it ended."""
    page = await stage.sessions().messages(session_id)
    return [(message.content, message.status) for message in page if message.role == "assistant"]


class StreamSuite(StoreSuite):
    async def test_text_is_stored_beside_the_log_and_goes_with_its_message(self, stage: Stage) -> None:
        sid = await stage.session()
        _, attempt = await stage.started_run(sid)
        before = await stage.record(sid)
        assert await say(stage, sid, attempt, "half ", "an answer") == 14
        during = await stage.record(sid)
        assert (during.version, during.last_seq, during.updated_at) == (
            before.version,
            before.last_seq,
            before.updated_at,
        )
        assert [(piece.offset, piece.body) for piece in await pieces_of(stage, sid, attempt)] == [
            (0, b'"half "'),
            (5, b'"an answer"'),
        ]
        message = await stage.runs().end_text(
            sid, attempt, said("half an answer, and the rest", "assistant"), message=1, metadata={"model": "m"}
        )
        assert (message.seq, message.version) == (before.last_seq + 1, before.version + 1)
        assert (message.status, message.run_id, message.metadata) == ("complete", attempt.run_id, {"model": "m"})
        assert (await stage.log(sid))[-1].streamed == 1
        assert await pieces_of(stage, sid, attempt) == ()
        assert (await stage.record(sid)).streams == ()

    async def test_what_is_stored_comes_back_character_by_character(self, stage: Stage) -> None:
        sid = await stage.session()
        _, attempt = await stage.started_run(sid)
        texts = ["修", "\0", "😀\u202e", '"\\', "\r\n\u2028", "e\u0301"]
        assert await say(stage, sid, attempt, *texts) == len("".join(texts))
        await stage.runs().fail_run(sid, attempt, code="x")
        assert await spoken(stage, sid) == [("".join(texts), "interrupted")]

    async def test_the_same_piece_twice_is_one(self, stage: Stage) -> None:
        sid = await stage.session()
        _, attempt = await stage.started_run(sid)
        runs = stage.runs()
        await say(stage, sid, attempt, "abc", "def")
        for text, offset in (("abc", 0), ("def", 3), ("abcdef", 0), ("", 6), ("", 2)):
            assert await runs.add_text(sid, attempt, text, message=1, offset=offset) == offset + len(text)
        both = [runs.add_text(sid, attempt, "ghi", message=1, offset=6) for _ in range(2)]
        assert await asyncio.gather(*both) == [9, 9]
        assert [piece.body for piece in await pieces_of(stage, sid, attempt)] == [b'"abc"', b'"def"', b'"ghi"']
        await runs.end_text(sid, attempt, said("abcdefghi", "assistant"), message=1)
        for text, offset in (("abc", 0), ("ghi", 6)):  # late: it does not begin anew
            assert await runs.add_text(sid, attempt, text, message=1, offset=offset) == offset + len(text)
        assert (await stage.record(sid)).streams == ()
        assert await pieces_of(stage, sid, attempt) == ()

    async def test_no_text_begins_nothing(self, stage: Stage) -> None:
        sid = await stage.session()
        _, attempt = await stage.started_run(sid)
        assert await say(stage, sid, attempt, "", "") == 0
        assert await pieces_of(stage, sid, attempt) == ()
        assert await say(stage, sid, attempt, "abc", "", "d") == 4
        assert [piece.offset for piece in await pieces_of(stage, sid, attempt)] == [0, 3]
        await stage.runs().complete_run(sid, attempt)
        assert await spoken(stage, sid) == [("abcd", "interrupted")]

    @pytest.mark.parametrize("message", [0, 1 << 53, (1 << 63) - 1])
    async def test_a_message_has_a_number_that_every_copy_can_have(self, stage: Stage, message: int) -> None:
        sid = await stage.session()
        _, attempt = await stage.started_run(sid)
        with pytest.raises(InvalidInput, match="from 1 to 9007199254740991"):
            await stage.runs().add_text(sid, attempt, "abc", message=message, offset=0)
        with pytest.raises(InvalidInput, match="from 1 to 9007199254740991"):
            await stage.runs().end_text(sid, attempt, said("abc", "assistant"), message=message)
        most = (1 << 53) - 1
        await stage.runs().end_text(sid, attempt, said("abc", "assistant"), message=most)
        await stage.runs().complete_run(sid, attempt)
        (report,) = await imported(stage, ELSEWHERE, [await exported(stage, ADA, sid)])
        log = await stage.sessions(ELSEWHERE).events(report.session_id, kind="message")
        assert [event.streamed for event in log.items] == [most]

    async def test_a_gap_and_an_overlap_are_refused(self, stage: Stage) -> None:
        sid = await stage.session()
        _, attempt = await stage.started_run(sid)
        await say(stage, sid, attempt, "abc")
        for offset, text in ((4, "e"), (2, "cd"), (0, "abcd")):
            async with refused(stage, sid, StreamGap, expected=3, offset=offset, message=1):
                await stage.runs().add_text(sid, attempt, text, message=1, offset=offset)
        async with refused(stage, sid, StreamGap, expected=0, offset=1, message=2):
            await stage.runs().add_text(sid, attempt, "b", message=2, offset=1)

    async def test_the_final_message_begins_with_what_was_streamed(self, stage: Stage) -> None:
        sid = await stage.session()
        _, attempt = await stage.started_run(sid)
        await say(stage, sid, attempt, "abc")
        for content in ("ab", "abd", None, "x"):
            async with refused(stage, sid, InvalidInput):
                await stage.runs().end_text(sid, attempt, said(content, "assistant"), message=1)
        for wrong in (said("abc"), said([{"type": "text", "text": "abc"}], "assistant")):
            async with refused(stage, sid, InvalidInput, field="answer"):
                await stage.runs().end_text(sid, attempt, wrong, message=1)
        first = await stage.runs().end_text(sid, attempt, said("abcd", "assistant"), message=1)
        again = await stage.runs().end_text(sid, attempt, said("abcd", "assistant"), message=1)
        assert (again.seq, again.replayed, first.replayed) == (first.seq, True, False)
        async with refused(stage, sid, IdempotencyMismatch):
            await stage.runs().end_text(sid, attempt, said("abce", "assistant"), message=1)

    async def test_several_messages_are_said_at_once(self, stage: Stage) -> None:
        sid = await stage.session()
        _, attempt = await stage.started_run(sid)
        await say(stage, sid, attempt, "one", message=1)
        await say(stage, sid, attempt, "two", message=2)
        await stage.runs().end_text(sid, attempt, said("two", "assistant"), message=2)
        assert await say(stage, sid, attempt, "!", message=1, offset=3) == 4
        await stage.runs().complete_run(sid, attempt)
        assert await spoken(stage, sid) == [("two", "complete"), ("one!", "interrupted")]
        assert [event.streamed for event in await stage.log(sid) if event.kind == "message"] == [2, 1]

    async def test_only_the_attempt_that_holds_the_run_streams(self, stage: Stage) -> None:
        sid = await stage.session()
        run, attempt = await stage.started_run(sid)
        runs = stage.runs()
        for other in (Attempt(run.run_id, 2), Attempt("run_unknown", 1)):
            async with refused(stage, sid, RunFenced):
                await runs.add_text(sid, other, "x", message=1, offset=0)
            async with refused(stage, sid, RunFenced):
                await runs.end_text(sid, other, said("x", "assistant"), message=1)
        await runs.complete_run(sid, attempt)
        async with refused(stage, sid, RunFenced):
            await runs.add_text(sid, attempt, "x", message=1, offset=0)
        _, attempt = await stage.started_run(sid)
        await stage.sessions().close_session(sid)
        async with refused(stage, sid, SessionClosed):
            await runs.add_text(sid, attempt, "x", message=1, offset=0)

    async def test_users_and_strangers_do_not_stream(self, stage: Stage) -> None:
        sid = await stage.session()
        _, attempt = await stage.started_run(sid)
        async with refused(stage, sid, NotAllowed):
            await stage.runs(ADA).add_text(sid, attempt, "x", message=1, offset=0)
        async with refused(stage, sid, NotAllowed):
            await stage.runs(ADA).end_text(sid, attempt, said("x", "assistant"), message=1)
        for stranger in STRANGERS:
            async with refused(stage, sid, SessionNotFound):
                await stage.runs(stranger).add_text(sid, attempt, "x", message=1, offset=0)

    # -- how it ends when nobody ends it

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

    # -- who follows

    async def test_a_follower_sees_text_before_its_message_and_everything_once(
        self, stage: Stage, second: Stage
    ) -> None:
        sid = await stage.session()
        _, attempt = await stage.started_run(sid, input="go")
        following = asyncio.create_task(heard(second.sessions(ADA).follow(sid, after=0, text=True)))
        text, offset = "the quick brown fox jumps over the lazy dog", 0
        for word in text.split(" "):
            offset = await say(stage, sid, attempt, ("" if not offset else " ") + word, offset=offset)
            await stage.sessions().append_message(sid, said("beside"))
        await stage.runs().end_text(sid, attempt, said(text, "assistant"), message=1)
        await say(stage, sid, attempt, "never ", "final", message=2)
        await stage.runs().complete_run(sid, attempt)
        items = await following
        events = [item for item in items if isinstance(item, Event)]
        assert events == list(await stage.log(sid))
        told: dict[int, str] = {}
        final: set[int] = set()
        for item in items:
            if isinstance(item, TextDelta):
                assert (item.run_id, item.attempt) == (attempt.run_id, attempt.attempt)
                assert item.message not in final
                assert item.offset == len(told.get(item.message, ""))
                told[item.message] = told.get(item.message, "") + item.text
            elif item.streamed is not None:
                final.add(item.streamed)
                assert item.data["content"].startswith(told.get(item.streamed, ""))
        assert final == {1, 2}

    async def test_a_follower_hears_of_a_piece_when_it_is_stored(self, stage: Stage, second: Stage) -> None:
        sid = await stage.session()
        _, attempt = await stage.started_run(sid)
        items = second.sessions(ADA).follow(sid, text=True)
        for number, text in enumerate(("one", "two", "three")):
            waiting = asyncio.create_task(next_delta(items))
            await asyncio.sleep(0.02)
            await say(stage, sid, attempt, text, message=number + 1)
            delta = await waiting
            assert (delta.message, delta.offset, delta.text) == (number + 1, 0, text)

    async def test_who_does_not_ask_for_text_gets_events_alone_and_is_not_woken(self, stage: Stage) -> None:
        sid = await stage.session()
        _, attempt = await stage.started_run(sid)
        record = await stage.record(sid)
        following = asyncio.create_task(heard(stage.sessions().follow(sid, after=0)))
        waiting = asyncio.create_task(stage.store.wait(record.ref, record.last_seq, PATIENCE))
        await asyncio.sleep(0.02)
        await say(stage, sid, attempt, "a", "b")
        await asyncio.sleep(0.1)
        assert not waiting.done()
        await stage.runs().complete_run(sid, attempt)
        await asyncio.wait_for(waiting, PATIENCE)
        assert [type(item) for item in await following] == [Event] * 4

    async def test_a_wait_with_a_revision_ends_with_a_piece(self, stage: Stage, second: Stage) -> None:
        sid = await stage.session()
        _, attempt = await stage.started_run(sid)
        record = await stage.record(sid)
        waiting = asyncio.create_task(
            stage.store.wait(record.ref, record.last_seq, PATIENCE * 2, revision=record.revision)
        )
        await asyncio.sleep(0.02)
        await say(second, sid, attempt, "a")
        await asyncio.wait_for(waiting, PATIENCE)
        await asyncio.wait_for(
            stage.store.wait(record.ref, record.last_seq, PATIENCE * 2, revision=record.revision), PATIENCE
        )

    async def test_who_starts_again_gets_what_still_streams_from_its_beginning_or_its_position(
        self, stage: Stage
    ) -> None:
        sid = await stage.session()
        _, attempt = await stage.started_run(sid)
        await say(stage, sid, attempt, "abc", "def", "ghi")
        last_seq = (await stage.record(sid)).last_seq
        sessions = stage.sessions()
        first = await next_delta(sessions.follow(sid, text=True))
        assert (first.offset, first.text, first.end) == (0, "abcdefghi", 9)
        for offset in range(9):
            position = TextPosition(attempt.run_id, attempt.attempt, 1, offset)
            delta = await next_delta(sessions.follow(sid, after=last_seq, text=True, position=position))
            assert (delta.offset, delta.text) == (offset, "abcdefghi"[offset:])
        following = sessions.follow(sid, after=last_seq, text=True, position=first.position)
        await say(stage, sid, attempt, "jkl", offset=9)
        assert (await next_delta(following)).text == "jkl"

    async def test_a_long_text_comes_in_parts(self, stage: Stage) -> None:
        sid = await stage.session()
        _, attempt = await stage.started_run(sid)
        await say(stage, sid, attempt, *["修" * 2_000] * 70)
        following = stage.sessions().follow(sid, text=True)
        parts: list[TextDelta] = []
        while not parts or parts[-1].end < 140_000:
            parts.append(await next_delta(following))
        assert len(parts) > 2
        assert "".join(part.text for part in parts) == "修" * 140_000

    async def test_ownership_is_asked_again_while_text_streams(self, stage: Stage) -> None:
        sid = await stage.session()
        _, attempt = await stage.started_run(sid)
        await say(stage, sid, attempt, "for ada")
        following = stage.sessions(ADA).follow(sid, text=True)
        assert (await next_delta(following)).text == "for ada"
        await stage.sessions(ADMIN).transfer_session(sid, "bob")
        await stage.runs(AGENT).add_text(sid, attempt, "for bob", message=1, offset=7)
        with pytest.raises(SessionNotFound):
            await next_delta(following)

    async def test_a_followed_run_shows_its_own_text_alone(self, stage: Stage) -> None:
        sid = await stage.session()
        _, first = await stage.started_run(sid)
        await say(stage, sid, first, "first")
        await stage.runs().complete_run(sid, first)
        _, second = await stage.started_run(sid)
        await say(stage, sid, second, "second")
        following = stage.sessions().follow(sid, after=0, run_id=second.run_id, text=True)
        early = [await asyncio.wait_for(anext(following), PATIENCE) for _ in range(3)]
        await stage.runs().complete_run(sid, second)
        shown = [item.text if isinstance(item, TextDelta) else item.kind for item in (*early, *await heard(following))]
        assert shown == ["run_added", "run_started", "second", "message", "run_ended"]

    async def test_a_delta_as_json_says_where_the_next_begins(self, stage: Stage) -> None:
        sid = await stage.session()
        _, attempt = await stage.started_run(sid)
        await say(stage, sid, attempt, "😀")
        delta = await next_delta(stage.sessions().follow(sid, text=True))
        assert msgspec.json.decode(msgspec.json.encode(delta.to_dict())) == {
            "kind": "text_delta",
            "run_id": attempt.run_id,
            "attempt": 1,
            "message": 1,
            "offset": 0,
            "end": 1,
            "text": "😀",
        }


class StreamLimitSuite(StoreSuite):
    limits = Limits(agent_message=200, open_streams=2)

    async def test_a_message_that_is_said_is_bounded_and_so_is_their_number(self, stage: Stage) -> None:
        sid = await stage.session()
        _, attempt = await stage.started_run(sid)
        await say(stage, sid, attempt, "x" * 136)
        async with refused(stage, sid, LimitExceeded, limit=200, size=201, setting="limits.agent_message"):
            await stage.runs().add_text(sid, attempt, "x", message=1, offset=136)
        async with refused(stage, sid, LimitExceeded, setting="limits.agent_message"):  # NUL is six bytes of JSON
            await stage.runs().add_text(sid, attempt, "\0" * 30, message=2, offset=0)
        await say(stage, sid, attempt, "y", message=2)
        async with refused(stage, sid, LimitExceeded, limit=2, size=3, setting="limits.open_streams"):
            await stage.runs().add_text(sid, attempt, "z", message=3, offset=0)
        await stage.runs().end_text(sid, attempt, said("y", "assistant"), message=2)
        await say(stage, sid, attempt, "z", message=3)
        await stage.runs().complete_run(sid, attempt)
        assert await spoken(stage, sid) == [
            ("y", "complete"),
            ("x" * 136, "interrupted"),
            ("z", "interrupted"),
        ]

    async def test_one_call_brings_at_most_64_kib(self, stage: Stage) -> None:
        sid = await stage.session()
        _, attempt = await stage.started_run(sid)
        async with refused(stage, sid, LimitExceeded, limit=65_536, size=65_537):
            await stage.runs().add_text(sid, attempt, "x" * 65_535, message=1, offset=0)
