"""Text that streams: shown once it is stored, whole and in order, and gone with the message that it becomes."""

from __future__ import annotations

import asyncio

import pytest

from satchel.domain.ids import SessionRef
from satchel.domain.limits import Limits
from satchel.domain.run import Attempt
from satchel.domain.stream import Piece
from satchel.errors import (
    IdempotencyMismatch,
    InvalidInput,
    LimitExceeded,
    NotAllowed,
    RunFenced,
    SessionClosed,
    SessionNotFound,
    StreamGap,
)
from satchel.testing.stage import ADA, STRANGERS, TENANT, Stage, refused, said
from satchel.testing.suite import StoreSuite
from satchel.testing.transfer import ELSEWHERE, exported, imported


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
