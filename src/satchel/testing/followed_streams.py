"""Who follows a session sees its text while it streams: before its message, once, and only who may."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import msgspec
import pytest

from satchel.domain.event import Event
from satchel.domain.stream import TextDelta, TextPosition
from satchel.errors import SessionNotFound
from satchel.testing.stage import ADA, ADMIN, AGENT, Stage, said
from satchel.testing.streams import say
from satchel.testing.suite import StoreSuite

PATIENCE = 20.0


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


class FollowedStreamSuite(StoreSuite):
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
