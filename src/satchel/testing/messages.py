"""What was said: order, batches, retraction, pages; and text that comes back byte for byte."""

from __future__ import annotations

import asyncio
import itertools
import json
from typing import Any

import pytest

from satchel.domain.limits import Limits
from satchel.errors import InvalidCursor, InvalidInput, LimitExceeded, MessageNotFound, NotAllowed
from satchel.testing.stage import ADA, ADAS_AGENT, ADMIN, AGENT, Stage, asking, refused, said, unchanged
from satchel.testing.suite import StoreSuite

# Text that programs met and lost: each must come back as these very bytes.
BODIES: tuple[bytes, ...] = (
    b'{"role":"user","content":null}',
    b'{"role":"user","content":""}',
    b'{"role":"user","content":null,"contents":[]}',
    b'{"role":"user","content":[{"type":"text","text":"a"},{"type":"image_url","image_url":{"url":"data:,x"}}]}',
    rb'{"role":"user","content":"NUL \u0000 in the middle, escapes \ud83d\ude00 \n \u00e9"}',
    '{"role":"user","content":"修复 😀 👩‍👩‍👧 é é \u2028 \ufeff ı"}'.encode(),
    b'{"role":"user","content":"n","n":[1.50,1e2,-0.0,1E-7,12345678901234567890,0.1000000000000000055]}',
    b'{ "content" : "spaces" ,   "role" : "user" , "extra" : { "b":1 , "a" : 2 } }',
    rb'{"role":"user","content":"\u001b[31mred\u001b[0m\r\n\ttabs","unknown_key":{"deep":[[[]]]}}',
    b'{"role":"user","name":"ada","content":"x","refusal":null,"audio":{"id":"a"}}',
)

# What is refused, with the field and the place that the error names.
REFUSED: tuple[tuple[Any, str, str], ...] = (
    ("", "message", ""),
    ("nonsense", "message", ""),
    (b'"text"', "message", ""),
    (b'["user"]', "message", ""),
    (b'{"role":"user","content":"a","content":"b"}', "message", ""),
    (b'{"role":"user","content":NaN}', "message", ""),
    (b'{"role":"user","content":"x","n":Infinity}', "message", ""),
    (b'{"role":"user","content":"x","n":1e400}', "message", ""),
    (b'{"role":"user","content":"\xff"}', "message", ""),
    (b'{"role":"user","content":"x"} trailing', "message", ""),
    (rb'{"role":"user","content":"\ud800"}', "message", "/content"),
    (rb'{"role":"user","meta":{"a/b":["\udfff"]}}', "message", "/meta/a~1b/0"),
    ('{"role":"user","content":"\ud800"}', "message", ""),
    (said("\ud83d"), "message", "/content"),
    (said("x", n=float("nan")), "message", "/n"),
    (said("x", n={"deep": [1.0, float("inf")]}), "message", "/n/deep/1"),
    (said("x", n={1: 2}), "message", "/n"),
    (said("x", n={"when": object()}), "message", "/n/when"),
    (said("x", n=b"bytes"), "message", "/n"),
    (said(5), "message", "/content"),
    (said(["text"]), "message", "/content"),
    ({"content": "x"}, "message", "/role"),
    (said("x", role="robot"), "message", "/role"),
    (said("x", role=""), "message", "/role"),
    ({"role": None, "content": "x"}, "message", "/role"),
    ({"role": "user", "contnet": "x"}, "message", "/content"),
    (said("x", tool_call_id=7), "message", "/tool_call_id"),
    ({"role": "assistant", "tool_calls": {"id": "c"}}, "message", "/tool_calls"),
    ({"role": "assistant", "tool_calls": [{"id": 7}]}, "message", "/tool_calls/0/id"),
    *((said("x") | {key: 1}, "message", f"/{key}") for key in ("message_id", "seq", "version", "run_id", "status")),
    *((said("x") | {key: 1}, "message", f"/{key}") for key in ("format", "created_at", "metadata", "body")),
)


class MessageSuite(StoreSuite):
    async def test_messages_are_numbered_from_1_without_gaps_each_call_one_version(self, stage: Stage) -> None:
        sid = await stage.session()
        first = await stage.sessions().append_message(sid, said("one"))
        batch = await stage.sessions().append_messages(sid, [said("two"), said("three")])
        assert (first.seq, first.version, first.message_id) == (1, 1, "msg_1")
        assert [(message.seq, message.version) for message in batch] == [(2, 2), (3, 2)]
        shown = await stage.sessions().get_session(sid)
        assert (shown.version, shown.last_seq, shown.message_count) == (2, 3, 3)
        assert [message.content for message in shown.messages] == ["one", "two", "three"]
        assert tuple(shown.messages[1:]) == batch

    async def test_a_batch_is_stored_whole_or_not_at_all(self, stage: Stage) -> None:
        sid = await stage.session()
        async with refused(stage, sid, NotAllowed, role="user"):
            await stage.sessions().append_messages(sid, [said("fine"), said("not mine to say", "assistant")])
        async with refused(stage, sid, InvalidInput, field="messages[1]", pointer="/role"):
            await stage.sessions().append_messages(sid, [said("fine"), said("x", "robot")])

    async def test_order_in_a_session_does_not_follow_the_clock(self, stage: Stage) -> None:
        sid = await stage.session()
        for step in (0, -3_600, 0, 7_200, -1):
            stage.clock.step_wall(step)
            await stage.sessions().append_message(sid, said(str(step)))
        assert [message.content for message in await stage.sessions().messages(sid)] == [
            "0",
            "-3600",
            "0",
            "7200",
            "-1",
        ]
        assert [message.seq for message in await stage.sessions().messages(sid)] == [1, 2, 3, 4, 5]

    async def test_concurrent_appends_all_land_in_one_order(self, stage: Stage, second: Stage) -> None:
        sid = await stage.session()
        doors = (stage.sessions(), second.sessions())
        told = await asyncio.gather(*(doors[n % 2].append_message(sid, said(str(n))) for n in range(60)))
        kept = await stage.sessions().messages(sid)
        assert [message.seq for message in kept] == list(range(1, 61))
        assert {message.seq: message.content for message in kept} == {one.seq: one.content for one in told}
        assert (await stage.record(sid)).last_seq == 60

    async def test_a_readers_earlier_history_is_a_prefix_of_its_later_one(self, stage: Stage, second: Stage) -> None:
        sid = await stage.session()
        histories: list[list[tuple[int, Any]]] = []

        async def write() -> None:
            for n in range(25):
                stage.clock.step_wall((-1) ** n)
                await second.sessions().append_message(sid, said(str(n)))

        async def read() -> None:
            for _ in range(25):
                page = await stage.sessions().messages(sid)
                histories.append([(message.seq, message.content) for message in page])
                await asyncio.sleep(0)

        await asyncio.gather(write(), read())
        for earlier, later in itertools.pairwise(histories):
            assert later[: len(earlier)] == earlier

    # -- text

    @pytest.mark.parametrize("body", BODIES, ids=range(len(BODIES)))
    async def test_what_came_as_bytes_comes_back_byte_for_byte(self, stage: Stage, body: bytes) -> None:
        sid = await stage.session()
        told = await stage.sessions().append_message(sid, body)
        again = await stage.sessions().append_message(sid, body.decode())
        (kept, kept_again) = await stage.sessions().messages(sid)
        assert told.body == kept.body == kept_again.body == again.body == body
        assert kept.data == json.loads(body)
        assert json.loads(kept.to_json())["seq"] == 1

    async def test_line_breaks_between_tokens_become_spaces_and_inside_text_stay(self, stage: Stage) -> None:
        sid = await stage.session()
        await stage.sessions().append_message(sid, b'{\n"role": "user",\r\n"content": "a\\nb"}')
        (kept,) = await stage.sessions().messages(sid)
        assert kept.body == b'{ "role": "user",  "content": "a\\nb"}'
        assert kept.content == "a\nb"

    async def test_a_python_message_is_encoded_once_and_reads_the_same(self, stage: Stage) -> None:
        sid = await stage.session()
        given = said("NUL \0, 😀, 修", extra={"n": 1.5, "big": 2**70, "list": (1, 2), "none": None})
        await stage.sessions().append_message(sid, given)
        (kept,) = await stage.sessions().messages(sid)
        assert kept.data == given | {"extra": {"n": 1.5, "big": 2**70, "list": [1, 2], "none": None}}

    @pytest.mark.parametrize(("message", "field", "pointer"), REFUSED, ids=range(len(REFUSED)))
    async def test_bad_input_is_refused_by_name_and_nothing_is_stored(
        self, stage: Stage, message: Any, field: str, pointer: str
    ) -> None:
        sid = await stage.session()
        async with refused(stage, sid, InvalidInput, field=field, pointer=pointer):
            await stage.sessions(AGENT).append_message(sid, message)

    async def test_nesting_and_number_of_values_are_bounded(self, stage: Stage) -> None:
        sid = await stage.session()
        deep: Any = "x"
        for _ in range(63):
            deep = [deep]
        await stage.sessions().append_message(sid, said("x", deep=deep))
        async with refused(stage, sid, LimitExceeded, limit=64, size=65, setting="limits.depth"):
            await stage.sessions().append_message(sid, said("x", deep=[deep]))
        wide = said("x", wide=[0] * (10_000 - 4))
        await stage.sessions().append_message(sid, wide)
        async with refused(stage, sid, LimitExceeded, limit=10_000, size=10_001, setting="limits.nodes"):
            await stage.sessions().append_message(sid, said("x", wide=[0] * (10_000 - 3)))
        for text in ("[" * 100_000, '{"role":"user","content":' + "[" * 100_000 + "]" * 100_000 + "}"):
            async with refused(stage, sid, InvalidInput):
                await stage.sessions().append_message(sid, text)

    # -- another format, metadata

    async def test_a_body_of_another_format_is_kept_as_given(self, stage: Stage) -> None:
        sid = await stage.session()
        body = b'[ "any", {"json": 1.50, "seq": 7} ]'
        told = await stage.sessions(ADAS_AGENT).append_message(sid, body, format="adk.event")
        (kept,) = await stage.sessions().messages(sid)
        assert (kept.body, kept.format) == (body, "adk.event") == (told.body, told.format)
        assert kept.to_dict()["body"] == ["any", {"json": 1.5, "seq": 7}]
        async with refused(stage, sid, NotAllowed):
            await stage.sessions(ADA).append_message(sid, body, format="adk.event")
        async with refused(stage, sid, NotAllowed):  # a role that instructs does so in any format
            await stage.sessions(ADAS_AGENT).append_message(sid, {"role": "system", "x": 1}, format="adk.event")

    async def test_a_messages_metadata_stands_beside_its_body(self, stage: Stage) -> None:
        sid = await stage.session()
        await stage.sessions().append_message(sid, said("x"), metadata={"channel": "web"})
        (kept,) = await stage.sessions().messages(sid)
        assert (kept.metadata, kept.data) == ({"channel": "web"}, said("x"))
        async with refused(stage, sid, LimitExceeded, setting="limits.metadata"):
            await stage.sessions().append_message(sid, said("x"), metadata={"k": "x" * 17_000})

    # -- retraction

    async def test_a_retracted_message_is_left_out_of_reads_and_stays_in_the_log(self, stage: Stage) -> None:
        sid = await stage.session()
        await stage.sessions().append_messages(sid, [said("one"), said("two"), said("three")])
        taken = await stage.sessions().retract_message(sid, "msg_2", reason="typo")
        assert (taken.seq, taken.status, taken.version) == (2, "retracted", 2)
        assert [message.seq for message in await stage.sessions().messages(sid)] == [1, 3]
        with_it = await stage.sessions().messages(sid, include_retracted=True)
        assert [(message.seq, message.status) for message in with_it] == [
            (1, "complete"),
            (2, "retracted"),
            (3, "complete"),
        ]
        shown = await stage.sessions().get_session(sid)
        assert [message.seq for message in shown.messages] == [1, 3]
        assert [(event.kind, event.refers_to) for event in await stage.log(sid)][3] == ("message_retracted", 2)
        async with unchanged(stage, sid):
            assert (await stage.sessions().retract_message(sid, 2)).status == "retracted"

    async def test_only_a_message_can_be_retracted_and_only_by_who_may_write_its_role(self, stage: Stage) -> None:
        sid = await stage.session()
        await stage.sessions(AGENT).append_message(sid, said("be brief", "system"))
        await stage.sessions(AGENT).append_tool_history(sid, {"tool": "t"})
        for who in (ADA, ADAS_AGENT):
            async with refused(stage, sid, NotAllowed):
                await stage.sessions(who).retract_message(sid, 1)
        for absent in (2, 3, 99):
            async with refused(stage, sid, MessageNotFound):
                await stage.sessions(ADMIN).retract_message(sid, absent)
        for wrong in (0, -1, "msg_0", "msg_x", "1", True):
            async with refused(stage, sid, InvalidInput, field="message_id"):
                await stage.sessions(ADMIN).retract_message(sid, wrong)

    # -- pages

    async def test_a_page_is_exactly_its_limit_and_pages_lose_and_repeat_nothing(self, stage: Stage) -> None:
        sid = await stage.session()
        for n in range(7):
            await stage.sessions(ADAS_AGENT).append_message(sid, said(str(n)))
            await stage.sessions(ADAS_AGENT).append_tool_history(sid, {"tool": "between"})
        await stage.sessions().retract_message(sid, 3)
        for order, expected in (("asc", [1, 5, 7, 9, 11, 13]), ("desc", [13, 11, 9, 7, 5, 1])):
            seen: list[int] = []
            sizes: list[int] = []
            cursor: str | None = None
            while True:
                page = await stage.sessions().messages(sid, order=order, limit=2, cursor=cursor)  # type: ignore[arg-type]  # wrong on purpose
                seen += [message.seq for message in page]
                sizes.append(len(page))
                cursor = page.next
                if cursor is None:
                    break
            assert (seen, sizes) == (expected, [2, 2, 2])

    async def test_bounds_of_a_page_exclude_themselves(self, stage: Stage) -> None:
        sid = await stage.session()
        await stage.sessions().append_messages(sid, [said(str(n)) for n in range(1, 8)])
        sessions = stage.sessions()

        async def seqs(**bounds: Any) -> list[int]:
            return [message.seq for message in await sessions.messages(sid, **bounds)]

        assert await seqs(after=2, before=6) == [3, 4, 5]
        assert await seqs(after=6) == [7]
        assert await seqs(after=7) == []
        assert await seqs(before=1) == []
        assert await seqs(before=0) == []
        assert await seqs(after=2, before=6, order="desc", limit=2) == [5, 4]

    async def test_a_limit_is_refused_rather_than_changed(self, stage: Stage) -> None:
        sid = await stage.session()
        for limit in (0, -1, 1_001, True, "5", None, 2.0):
            async with refused(stage, sid, InvalidInput, field="limit"):
                await stage.sessions().messages(sid, limit=limit)  # type: ignore[arg-type]  # wrong on purpose

    async def test_a_cursor_belongs_to_its_list(self, stage: Stage) -> None:
        sid, other = await stage.session(), await stage.session()
        for session in (sid, other):
            await stage.sessions().append_messages(session, [said(str(n)) for n in range(4)])
        cursor = (await stage.sessions().messages(sid, limit=2)).next
        assert cursor is not None
        for call in (
            stage.sessions().messages(other, limit=2, cursor=cursor),
            stage.sessions().messages(sid, limit=2, order="desc", cursor=cursor),
            stage.sessions().events(sid, limit=2, cursor=cursor),
            stage.sessions(AGENT).messages(sid, limit=2, cursor=cursor),
            stage.sessions().messages(sid, cursor="nonsense"),
            stage.sessions().messages(sid, cursor=""),
            stage.sessions().messages(sid, cursor="é"),
        ):
            with pytest.raises(InvalidCursor):
                await call

    async def test_messages_of_a_run_can_be_read_alone(self, stage: Stage) -> None:
        sid = await stage.session()
        await stage.sessions().append_message(sid, said("before"))
        run, attempt = await stage.started_run(sid, input="go")
        await stage.sessions(ADAS_AGENT).append_message(sid, said("working", "assistant"), attempt=attempt)
        await stage.sessions().append_message(sid, said("beside"))
        of_run = await stage.sessions().messages(sid, run_id=run.run_id)
        assert [message.content for message in of_run] == ["go", "working"]

    async def test_an_interrupted_answer_is_marked(self, stage: Stage) -> None:
        sid = await stage.session()
        await stage.sessions(ADAS_AGENT).append_message(sid, said("half an ans", "assistant"), status="interrupted")
        assert [message.status for message in await stage.sessions().messages(sid)] == ["interrupted"]


class LimitSuite(StoreSuite):
    """Limits are settings, exact to the byte; what is over them is refused by name, and nothing is cut off."""

    limits = Limits(
        user_message=100, agent_message=200, batch=350, batch_messages=3, metadata=60, working_memory=120, title=12
    )

    def sized(self, size: int, role: str = "user") -> bytes:
        empty = json.dumps(said("", role), separators=(",", ":")).encode()
        return empty.replace(b'""', b'"' + b"x" * (size - len(empty)) + b'"')

    async def test_a_users_message_may_be_smaller_than_an_agents(self, stage: Stage) -> None:
        sid = await stage.session()
        await stage.sessions().append_message(sid, self.sized(100))
        async with refused(stage, sid, LimitExceeded, size=101, limit=100, setting="limits.user_message"):
            await stage.sessions().append_message(sid, self.sized(101))
        await stage.sessions(ADAS_AGENT).append_message(sid, self.sized(200))
        async with refused(stage, sid, LimitExceeded, size=201, limit=200, setting="limits.agent_message"):
            await stage.sessions(ADAS_AGENT).append_message(sid, self.sized(201))

    async def test_a_batch_is_bounded_in_messages_and_in_bytes(self, stage: Stage) -> None:
        sid = await stage.session()
        agent = stage.sessions(ADAS_AGENT)
        await agent.append_messages(sid, [self.sized(175), self.sized(175)])
        async with refused(stage, sid, LimitExceeded, size=351, limit=350, setting="limits.batch"):
            await agent.append_messages(sid, [self.sized(175), self.sized(176)])
        async with refused(stage, sid, LimitExceeded, size=4, limit=3, unit="messages"):
            await agent.append_messages(sid, [self.sized(50)] * 4)
        wrong: tuple[Any, ...] = ([], (), "text", b"text", {"role": "user"})
        for messages in wrong:
            async with refused(stage, sid, InvalidInput, field="messages"):
                await agent.append_messages(sid, messages)

    async def test_memory_metadata_and_title_are_bounded(self, stage: Stage) -> None:
        sid = await stage.session()
        agent = stage.sessions(ADAS_AGENT)
        await agent.update_working_memory(sid, {"append": {"plan": "x" * 107}})
        async with refused(stage, sid, LimitExceeded, limit=120, setting="limits.working_memory"):
            await agent.update_working_memory(sid, {"append": {"plan": "x"}})
        await agent.update_session(sid, metadata={"k": "x" * 52}, title="x" * 12)
        async with refused(stage, sid, LimitExceeded, size=61, limit=60, setting="limits.metadata"):
            await agent.update_session(sid, metadata={"k": "x" * 53})
        async with refused(stage, sid, LimitExceeded, size=67, limit=60, setting="limits.metadata"):
            await agent.update_session(sid, metadata={"l": ""})
        async with refused(stage, sid, LimitExceeded, size=13, limit=12, setting="limits.title"):
            await agent.rename_session(sid, "x" * 13)
        async with refused(stage, sid, LimitExceeded, size=15, limit=12, setting="limits.title"):
            await agent.rename_session(sid, "修" * 5)

    async def test_a_large_message_does_not_shrink_or_vanish(self, stage: Stage) -> None:
        big = Stage(stage.store, stage.clock, limits=Limits())
        sid = await stage.session()
        body = self.sized(4 * 1024 * 1024)
        await big.sessions(ADAS_AGENT).append_message(sid, body)
        (kept,) = await big.sessions().messages(sid)
        assert kept.body == body


class LabelSuite(StoreSuite):
    """Which labels an assistant asked for and nobody answered."""

    async def test_the_newest_128_unanswered_labels_are_kept(self, stage: Stage) -> None:
        sid = await stage.session()
        agent = stage.sessions(ADAS_AGENT)
        await agent.append_message(sid, asking(*(f"c{n}" for n in range(100))))
        await agent.append_message(sid, asking(*(f"c{n}" for n in range(100, 130))))
        assert (await stage.record(sid)).asked == tuple(f"c{n}" for n in range(2, 130))
        await agent.append_message(sid, said("done", "tool", tool_call_id="c50"))
        assert "c50" not in (await stage.record(sid)).asked
        assert len((await stage.record(sid)).asked) == 127
