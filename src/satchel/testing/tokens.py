"""Tokens: counted when a message is admitted, by the counter of the store; and told when the window fills."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from typing import Any

import pytest

from satchel.domain.policy import Policy
from satchel.errors import InvalidInput
from satchel.opened import OpenStore
from satchel.sessions import SessionManager
from satchel.testing.stage import ADAS_AGENT, ADMIN, Stage, asking, said
from satchel.testing.suite import StoreSuite

FRAME = 4  # of a message
SMALL = Policy(context_window=100, context_share=0.5)


def counting(stage: Stage, count: Callable[[str], Any], who: Any = ADAS_AGENT) -> SessionManager:
    """A manager of another open store on the same data, with a counter of its own."""
    return SessionManager(OpenStore(stage.store, count_tokens=count), who)


def words(text: str) -> int:
    return len(text.split())


class TokenSuite(StoreSuite):
    async def test_a_counter_of_ones_own_counts_whatever_way_a_message_comes(self, stage: Stage) -> None:
        sid = await stage.session()
        sessions = counting(stage, words)
        seen: list[int] = []

        async def added(tokens: int) -> None:
            now = (await sessions.get_session(sid)).context_tokens
            assert now - sum(seen) == tokens + FRAME
            seen.append(tokens + FRAME)

        await sessions.append_message(sid, said("one two three"))
        await added(3)
        await sessions.append_message(sid, b"[1, 2, 3, 4]", format="adk.event")
        await added(4)
        async with sessions.run(sid, input="one two") as run:
            await added(2)
            await run.append_message(asking("a") | {"content": "I look"})
            await added(2 + 2 + 4)  # and the frame of its call
            async with run.tool("ls", tool_call_id="a") as call:
                call.result = "one two three four"
            await added(4)
            await run.append_message(asking("b"))
            await added(2 + 4)
            await sessions.append_tool_history(
                sid, {"tool": "ls", "tool_call_id": "b", "result": ["x y"]}, attempt=run.attempt
            )
            await added(2)
        context = await sessions.context(sid, max_tokens=200)
        assert context.tokens == sum(
            [FRAME + words(str(m["content"] or "")) + 6 * len(m.get("tool_calls", ())) for m in context.messages]
        )

    async def test_what_is_taken_back_weighs_what_it_was_counted_as(self, stage: Stage) -> None:
        sid = await stage.session()
        await counting(stage, words).append_message(sid, said("one two three"))
        await counting(stage, len).append_message(sid, said("four five"))
        assert (await stage.sessions().get_session(sid)).context_tokens == 3 + 9 + 2 * FRAME
        await stage.sessions().retract_message(sid, 1)
        await stage.sessions().retract_message(sid, 1)
        assert (await stage.sessions().get_session(sid)).context_tokens == 9 + FRAME

    async def test_a_fork_keeps_the_counts_and_an_import_counts_anew(self, stage: Stage) -> None:
        sid = await stage.session()
        sessions = counting(stage, len, ADMIN)
        await sessions.append_messages(sid, [said("one two three"), said("four")])
        await sessions.retract_message(sid, 2)
        async with sessions.run(sid, input="five six"):
            pass
        tokens = (await sessions.get_session(sid)).context_tokens
        assert tokens == len("one two three") + len("five six") + 2 * FRAME
        fork = await stage.sessions(ADMIN).fork_session(sid)
        assert fork.context_tokens == tokens
        line = b"".join([piece async for piece in sessions.export_sessions([sid])])
        for name, count in (("w", words), ("c", len)):
            again = counting(stage, count, ADMIN)
            renamed = json.dumps(json.loads(line) | {"session_id": name}).encode()
            (imported,) = [one async for one in again.import_sessions([renamed], user_id="ada")]
            there = await again.get_session(imported.session_id)
            assert there.context_tokens == count("one two three") + count("five six") + 2 * FRAME

    @pytest.mark.parametrize("wrong", [ZeroDivisionError, "7", None, -1, 1.5, True, 10**9, float("nan")], ids=repr)
    async def test_a_counter_that_fails_loses_no_write_and_is_told_once(
        self, stage: Stage, caplog: pytest.LogCaptureFixture, wrong: Any
    ) -> None:
        def count(text: str) -> Any:
            if isinstance(wrong, type):
                raise wrong(f"no token for {text}")
            return wrong

        sid, same = await stage.session(), await stage.session()
        with caplog.at_level(logging.WARNING, logger="satchel.tokens"):
            sessions = counting(stage, count)
            await sessions.append_messages(sid, [said("one two"), said("three")])
            await sessions.context(sid)
        await stage.sessions().append_messages(same, [said("one two"), said("three")])
        estimated = (await stage.sessions().get_session(same)).context_tokens
        assert (await sessions.get_session(sid)).context_tokens == estimated > 0
        assert [record.levelname for record in caplog.records] == ["WARNING"]

    async def test_a_counter_is_a_plain_function(self, stage: Stage) -> None:
        async def count(text: str) -> int:
            return len(text)

        for wrong in (count, 7, "words"):
            with pytest.raises(InvalidInput, match="count_tokens"):
                OpenStore(stage.store, count_tokens=wrong)  # type: ignore[arg-type]  # wrong on purpose

    async def test_an_image_weighs_no_more_than_an_image(self, stage: Stage) -> None:
        sid = await stage.session()
        image = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "iVBORw0KGgo" * 50_000}}
        await stage.sessions().append_message(sid, said([{"type": "text", "text": "what is it?"}, image]))
        assert (await stage.sessions().get_session(sid)).context_tokens < 1_100

    # -- the window fills

    async def test_the_window_share_is_told_in_the_commit_that_passes_it(self, stage: Stage) -> None:
        sid = await stage.session(policy=SMALL)
        sessions = counting(stage, words)
        await sessions.append_message(sid, said("x " * 40))
        await sessions.append_messages(sid, [said("x"), said("x"), said("x " * 90)])
        await sessions.append_message(sid, said("x " * 90))
        log = await stage.log(sid)
        assert [event.kind for event in log] == ["message"] * 4 + ["context_threshold", "message"]
        assert [event.seq for event in log] == [1, 2, 3, 4, 5, 6]
        assert [event.version for event in log] == [1, 2, 2, 2, 2, 3]
        assert log[4].data == {"tokens": 40 + 92 + 4 * FRAME, "window": 100, "share": 0.5}
        session = await sessions.get_session(sid)
        assert (session.last_seq, session.version, session.message_count) == (6, 3, 5)

    async def test_it_is_told_again_only_after_it_was_less(self, stage: Stage) -> None:
        sid = await stage.session(policy=SMALL)
        sessions = counting(stage, words)
        for _ in range(4):
            await sessions.append_message(sid, said("x " * 26))
        assert await stage.kinds(sid) == ["message"] * 2 + ["context_threshold"] + ["message"] * 2
        for seq in (1, 2, 4):
            await sessions.retract_message(sid, seq)
        await sessions.append_message(sid, said("x"))
        assert (await stage.kinds(sid)).count("context_threshold") == 1
        await sessions.append_message(sid, said("x " * 26))
        assert (await stage.kinds(sid))[-2:] == ["message", "context_threshold"]

    async def test_a_result_and_a_runs_input_can_pass_it_and_what_nobody_answers_can_not(self, stage: Stage) -> None:
        sessions = counting(stage, words)
        sid = await stage.session(policy=SMALL)
        async with sessions.run(sid, input="go") as run:
            await run.append_message(asking("a"))
            async with run.tool("ls", tool_call_id="a") as call:
                call.result = "x " * 90
            (told,) = [event for event in await stage.log(sid) if event.kind == "context_threshold"]
            assert told.run_id == run.run.run_id
        sid = await stage.session(policy=SMALL)
        async with sessions.run(sid, input="go") as run:
            waits = await sessions.add_run(sid, input="x " * 90, on_busy="queue")
            await stage.runs().cancel_run(sid, waits.run_id)
        assert "context_threshold" not in await stage.kinds(sid)
        assert (await sessions.get_session(sid)).context_tokens == 1 + FRAME
        async with sessions.run(sid, input="x " * 90):
            assert "context_threshold" in await stage.kinds(sid)

    async def test_a_retry_tells_nothing_twice(self, stage: Stage) -> None:
        sid = await stage.session(policy=SMALL)
        first = await stage.sessions().append_message(sid, said("大" * 200), idempotency_key="k")
        again = await stage.sessions().append_message(sid, said("大" * 200), idempotency_key="k")
        assert (first.seq, again.seq, again.replayed) == (1, 1, True)
        assert await stage.kinds(sid) == ["message", "context_threshold"]

    async def test_a_session_whose_window_is_not_known_is_told_nothing(self, stage: Stage) -> None:
        sid = await stage.session()
        await stage.sessions().append_message(sid, said("大" * 300_000))
        assert await stage.kinds(sid) == ["message"]

    async def test_what_was_told_comes_along(self, stage: Stage) -> None:
        sid = await stage.session(policy=SMALL)
        sessions = stage.sessions(ADMIN)
        await sessions.append_messages(sid, [said("大" * 200), said("x")])
        fork = await sessions.fork_session(sid)
        assert await stage.kinds(fork.session_id) == await stage.kinds(sid)
        assert "context_threshold" not in await stage.kinds((await sessions.fork_session(sid, up_to=2)).session_id)
        line = b"".join([piece async for piece in sessions.export_sessions([sid])])
        (imported,) = [one async for one in sessions.import_sessions([line], user_id="ada")]
        assert [event.data for event in await stage.log(imported.session_id)] == [e.data for e in await stage.log(sid)]
        for there in (fork.session_id, imported.session_id):
            session = await sessions.get_session(there)
            assert session.context_tokens == (await sessions.get_session(sid)).context_tokens
            await sessions.append_message(there, said("x"))
            assert (await stage.kinds(there)).count("context_threshold") == 1

    @pytest.mark.parametrize("wrong", [0, -1, 1.5, True, "8000", 1 << 60])
    async def test_a_window_is_a_number_of_tokens(self, stage: Stage, wrong: Any) -> None:
        with pytest.raises(InvalidInput, match="context_window"):
            await stage.session(policy=Policy(context_window=wrong))

    @pytest.mark.parametrize("wrong", [0, -0.5, 1.01, True, "0.8", float("nan"), None])
    async def test_a_share_is_a_part_of_the_window(self, stage: Stage, wrong: Any) -> None:
        with pytest.raises(InvalidInput, match="context_share"):
            await stage.session(policy=Policy(context_share=wrong))
