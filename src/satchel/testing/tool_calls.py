"""What was executed: two strokes or one, labels, repeats, and the rule that a result stands once."""

from __future__ import annotations

import asyncio
from typing import Any

from satchel.errors import (
    InvalidInput,
    LimitExceeded,
    RunFenced,
    ToolCallEnded,
    ToolCallNotFound,
    ToolCallOpen,
)
from satchel.testing.stage import ADAS_AGENT, Stage, asking, refused, said
from satchel.testing.suite import StoreSuite

ODD: tuple[Any, ...] = ("NUL \0 😀 \x1b[0m\r\n", "", None, 0, False, [], {}, {"a": [1.5, None]}, '{"json": "as text"}')


class ToolCallSuite(StoreSuite):
    async def test_a_call_is_in_the_history_before_its_tool_runs(self, stage: Stage) -> None:
        sid = await stage.session()
        agent = stage.sessions(ADAS_AGENT)
        started = await agent.start_tool_call(sid, "run_shell", {"command": "ls"}, tool_call_id="c1")
        assert (started.status, started.ok, started.is_open) == ("started", None, True)
        (kept,) = await agent.tool_history(sid)
        assert kept == started
        stage.clock.pass_time(1.5)
        ended = await agent.finish_tool_call(sid, started.seq, result={"out": "app.py"})
        assert (ended.status, ended.ok, ended.result, ended.duration_ms) == (
            "succeeded",
            True,
            {"out": "app.py"},
            1_500,
        )
        (kept,) = await agent.tool_history(sid)
        assert (kept.seq, kept.status, kept.arguments, kept.result) == (
            1,
            "succeeded",
            {"command": "ls"},
            {"out": "app.py"},
        )
        assert await stage.kinds(sid) == ["tool_call_started", "tool_call_finished"]

    async def test_ok_is_true_false_or_null(self, stage: Stage) -> None:
        sid = await stage.session()
        agent = stage.sessions(ADAS_AGENT)
        outcomes: list[dict[str, Any]] = [{"result": 1}, {"error": "broken"}, {"cancelled": True}]
        for outcome in outcomes:
            call = await agent.start_tool_call(sid, "t")
            await agent.finish_tool_call(sid, call.seq, **outcome)
        await agent.start_tool_call(sid, "t")
        shown = [(call.status, call.ok) for call in await agent.tool_history(sid)]
        assert shown == [("succeeded", True), ("failed", False), ("cancelled", False), ("started", None)]

    async def test_one_stroke_when_the_caller_has_both(self, stage: Stage) -> None:
        sid = await stage.session()
        agent = stage.sessions(ADAS_AGENT)
        call = await agent.append_tool_history(sid, {"tool": "read_file", "arguments": {"path": "app.py"}, "ok": True})
        failed = await agent.append_tool_history(sid, {"tool": "t", "error": {"exit": 1}})
        assert (call.status, call.ok, call.result) == ("succeeded", True, None)
        assert (failed.status, failed.ok, failed.error) == ("failed", False, {"exit": 1})
        assert await stage.kinds(sid) == ["tool_call_recorded", "tool_call_recorded"]
        assert tuple(await agent.tool_history(sid)) == (call, failed)

    async def test_results_and_arguments_come_back_as_they_were(self, stage: Stage) -> None:
        sid = await stage.session()
        agent = stage.sessions(ADAS_AGENT)
        for value in ODD:
            await agent.append_tool_history(sid, {"tool": "t", "arguments": value, "result": value})
            call = await agent.start_tool_call(sid, "t", value)
            await agent.finish_tool_call(sid, call.seq, result=value)
        for call, value in zip(await agent.tool_history(sid), [value for value in ODD for _ in range(2)], strict=True):
            assert (call.arguments, call.result) == (value, value)

    async def test_repeat_of_names_the_newest_equal_call(self, stage: Stage) -> None:
        sid = await stage.session()
        agent = stage.sessions(ADAS_AGENT)
        first = await agent.append_tool_history(sid, {"tool": "run_sql", "arguments": {"a": 1, "b": [1.0, "x"]}})
        same = await agent.start_tool_call(sid, "run_sql", {"b": [1, "x"], "a": 1})
        as_text = await agent.start_tool_call(sid, "run_sql", '{ "b": [1,"x"],"a":1.0 }')
        other_tool = await agent.start_tool_call(sid, "run_sq", {"a": 1, "b": [1, "x"]})
        other_arguments = await agent.start_tool_call(sid, "run_sql", {"a": 1, "b": ["x", 1]})
        assert (first.repeat_of, same.repeat_of, as_text.repeat_of) == (None, first.seq, same.seq)
        assert (other_tool.repeat_of, other_arguments.repeat_of) == (None, None)
        assert [call.repeat_of for call in await agent.tool_history(sid)] == [None, 1, 2, None, None]

    async def test_a_label_may_come_again_once_the_former_call_has_ended(self, stage: Stage) -> None:
        sid = await stage.session()
        agent = stage.sessions(ADAS_AGENT)
        first = await agent.start_tool_call(sid, "t", tool_call_id="c1")
        for again in (
            agent.start_tool_call(sid, "t", tool_call_id="c1"),
            agent.append_tool_history(sid, {"tool": "t", "tool_call_id": "c1"}),
        ):
            async with refused(stage, sid, ToolCallOpen, tool_call_id="c1", seq=first.seq):
                await again
        await agent.finish_tool_call(sid, first.seq, result="one")
        second = await agent.start_tool_call(sid, "t", tool_call_id="c1")
        await agent.finish_tool_call(sid, second.seq, result="two")
        held = await agent.tool_history(sid, tool_call_id="c1")
        assert [(call.seq, call.result) for call in held] == [(first.seq, "one"), (second.seq, "two")]

    async def test_the_same_label_at_once_opens_one_call(self, stage: Stage, second: Stage) -> None:
        sid = await stage.session()
        told = await asyncio.gather(
            *(
                door.sessions(ADAS_AGENT).start_tool_call(sid, "t", tool_call_id="c1")
                for door in (stage, second, stage)
            ),
            return_exceptions=True,
        )
        assert sum(isinstance(one, ToolCallOpen) for one in told) == 2
        assert len((await stage.record(sid)).open_calls) == 1

    async def test_at_most_128_calls_are_open(self, stage: Stage) -> None:
        sid = await stage.session()
        agent = stage.sessions(ADAS_AGENT)
        calls = await asyncio.gather(*(agent.start_tool_call(sid, "t", n) for n in range(128)))
        async with refused(stage, sid, LimitExceeded, size=129, limit=128, setting="limits.open_calls"):
            await agent.start_tool_call(sid, "t")
        await agent.append_tool_history(sid, {"tool": "not open for a moment"})
        await agent.finish_tool_call(sid, calls[7].seq)
        await agent.start_tool_call(sid, "t")
        assert len(await agent.tool_history(sid, is_open=True, limit=1_000)) == 128

    async def test_a_call_ends_once(self, stage: Stage, second: Stage) -> None:
        sid = await stage.session()
        call = await stage.sessions(ADAS_AGENT).start_tool_call(sid, "t")
        told = await asyncio.gather(
            *(
                door.sessions(ADAS_AGENT).finish_tool_call(sid, call.seq, result=n)
                for n, door in enumerate((stage, second))
            ),
            return_exceptions=True,
        )
        (lost,) = [one for one in told if isinstance(one, BaseException)]
        assert isinstance(lost, ToolCallEnded)
        assert (lost.seq, lost.status) == (call.seq, "succeeded")
        async with refused(stage, sid, ToolCallNotFound):
            await stage.sessions(ADAS_AGENT).finish_tool_call(sid, 99)
        async with refused(stage, sid, InvalidInput, field="seq"):
            await stage.sessions(ADAS_AGENT).finish_tool_call(sid, 0)

    # -- the tool message

    async def test_a_call_finished_under_a_label_that_was_asked_for_says_its_result_once(self, stage: Stage) -> None:
        sid = await stage.session()
        agent = stage.sessions(ADAS_AGENT)
        await agent.append_message(sid, asking("c1", "c2", "c3", "c4"))
        text = await agent.start_tool_call(sid, "t", tool_call_id="c1")
        await agent.finish_tool_call(sid, text.seq, result="a text")
        value = await agent.start_tool_call(sid, "t", tool_call_id="c2")
        await agent.finish_tool_call(sid, value.seq, result={"rows": 3})
        failed = await agent.start_tool_call(sid, "t", tool_call_id="c3")
        await agent.finish_tool_call(sid, failed.seq, error={"exit": 1})
        stroke = await agent.append_tool_history(sid, {"tool": "t", "tool_call_id": "c4", "result": "b"})
        said_then = [(m.role, m.tool_call_id, m.content) for m in await agent.messages(sid)][1:]
        assert said_then == [
            ("tool", "c1", "a text"),
            ("tool", "c2", '{"rows":3}'),
            ("tool", "c3", '{"exit":1}'),
            ("tool", "c4", "b"),
        ]
        held = [(call.status, call.result, call.error) for call in await agent.tool_history(sid)]
        assert held == [
            ("succeeded", "a text", None),
            ("succeeded", {"rows": 3}, None),
            ("failed", None, {"exit": 1}),
            ("succeeded", "b", None),
        ]
        assert "tool_call_finished" not in await stage.kinds(sid)
        assert (await stage.record(sid)).asked == ()
        assert stroke.seq == 8

    async def test_a_failed_call_with_only_a_result_does_not_lose_it(self, stage: Stage) -> None:
        sid = await stage.session()
        agent = stage.sessions(ADAS_AGENT)
        stroke = {"tool": "run_shell", "ok": False, "result": "Traceback: ModuleNotFoundError", "tool_call_id": "c1"}
        await agent.append_tool_history(sid, stroke)
        await agent.append_message(sid, asking("c1"))
        await agent.append_tool_history(sid, stroke)
        for call in await agent.tool_history(sid):
            assert "ModuleNotFoundError" in (call.result or call.error)
        assert (await agent.messages(sid))[1].content == "Traceback: ModuleNotFoundError"

    async def test_a_call_with_both_a_result_and_an_error_keeps_both(self, stage: Stage) -> None:
        sid = await stage.session()
        agent = stage.sessions(ADAS_AGENT)
        for ok in (True, False):
            for label in ("asked", "unasked"):
                await agent.append_message(sid, asking("asked"))
                stroke = {"tool": "t", "ok": ok, "result": {"rows": 1}, "error": "late", "tool_call_id": label}
                await agent.append_tool_history(sid, stroke)
        held = [(call.ok, call.result, call.error) for call in await agent.tool_history(sid)]
        assert held == [(ok, {"rows": 1}, "late") for ok in (True, True, False, False)]

    async def test_a_label_nobody_asked_for_finishes_by_an_event_of_its_own(self, stage: Stage) -> None:
        sid = await stage.session()
        agent = stage.sessions(ADAS_AGENT)
        call = await agent.start_tool_call(sid, "t", tool_call_id="c1")
        await agent.finish_tool_call(sid, call.seq, result="x")
        assert len(await agent.messages(sid)) == 0

    async def test_an_appended_tool_message_finishes_the_open_call_of_its_label(self, stage: Stage) -> None:
        sid = await stage.session()
        agent = stage.sessions(ADAS_AGENT)
        await agent.append_message(sid, asking("c1"))
        call = await agent.start_tool_call(sid, "t", tool_call_id="c1")
        message = await agent.append_message(sid, said("the result", "tool", tool_call_id="c1"))
        (kept,) = await agent.tool_history(sid)
        assert (kept.seq, kept.status, kept.result) == (call.seq, "succeeded", "the result")
        assert (await stage.log(sid))[-1].refers_to == call.seq
        assert (await stage.record(sid)).asked == ()
        assert message.version == kept.version
        async with refused(stage, sid, ToolCallEnded):
            await agent.finish_tool_call(sid, call.seq, result="again")

    async def test_a_tool_message_finishes_a_runs_call_only_from_that_run(self, stage: Stage) -> None:
        sid = await stage.session()
        agent = stage.sessions(ADAS_AGENT)
        run, attempt = await stage.started_run(sid)
        await agent.append_message(sid, asking("c1"), attempt=attempt)
        call = await agent.start_tool_call(sid, "t", tool_call_id="c1", attempt=attempt)
        async with refused(stage, sid, RunFenced, run_id=run.run_id):
            await agent.append_message(sid, said("from nowhere", "tool", tool_call_id="c1"))
        await agent.append_message(sid, said("the result", "tool", tool_call_id="c1"), attempt=attempt)
        assert [(one.seq, one.result) for one in await agent.tool_history(sid)] == [(call.seq, "the result")]

    async def test_half_a_tool_message_finishes_nothing(self, stage: Stage) -> None:
        sid = await stage.session()
        agent = stage.sessions(ADAS_AGENT)
        await agent.start_tool_call(sid, "t", tool_call_id="c1")
        await agent.append_message(sid, said("the res", "tool", tool_call_id="c1"), status="interrupted")
        assert [call.status for call in await agent.tool_history(sid)] == ["started"]

    async def test_parallel_results_come_in_any_order(self, stage: Stage) -> None:
        sid = await stage.session()
        agent = stage.sessions(ADAS_AGENT)
        labels = [f"c{n}" for n in range(11)]
        await agent.append_message(sid, asking(*labels))
        calls = {label: await agent.start_tool_call(sid, "t", label, tool_call_id=label) for label in labels}
        for label in (*labels[5:], *labels[:5]):
            await agent.finish_tool_call(sid, calls[label].seq, result=f"of {label}")
        held = {call.tool_call_id: call.result for call in await agent.tool_history(sid)}
        assert held == {label: f"of {label}" for label in labels}
        assert [message.tool_call_id for message in await agent.messages(sid, after=1)] == [*labels[5:], *labels[:5]]

    # -- runs, filters, input

    async def test_a_call_of_a_run_is_finished_by_its_attempt_alone(self, stage: Stage) -> None:
        sid = await stage.session()
        agent = stage.sessions(ADAS_AGENT)
        run, attempt = await stage.started_run(sid)
        call = await agent.start_tool_call(sid, "t", attempt=attempt)
        async with refused(stage, sid, RunFenced, run_id=run.run_id):
            await agent.finish_tool_call(sid, call.seq, result="from nowhere")
        ended = await agent.finish_tool_call(sid, call.seq, result="x", attempt=attempt)
        assert ended.run_id == run.run_id
        assert (await stage.runs().get_run(sid, run.run_id)).steps == 1

    async def test_history_is_filtered_by_run_tool_label_and_openness(self, stage: Stage) -> None:
        sid = await stage.session()
        agent = stage.sessions(ADAS_AGENT)
        run, attempt = await stage.started_run(sid)
        a = await agent.start_tool_call(sid, "a", tool_call_id="c1", attempt=attempt)
        b = await agent.append_tool_history(sid, {"tool": "b", "tool_call_id": "c1 "})
        c = await agent.start_tool_call(sid, "A")
        history = agent.tool_history
        assert [call.seq for call in await history(sid, run_id=run.run_id)] == [a.seq]
        assert [call.seq for call in await history(sid, tool="a")] == [a.seq]
        assert [call.seq for call in await history(sid, tool_call_id="c1 ")] == [b.seq]
        assert [call.seq for call in await history(sid, is_open=True)] == [a.seq, c.seq]
        assert [call.seq for call in await history(sid, is_open=False)] == [b.seq]
        assert [call.seq for call in await history(sid, order="desc")] == [c.seq, b.seq, a.seq]
        first = await history(sid, limit=2)
        rest = await history(sid, limit=2, cursor=first.next)
        assert [call.seq for call in (*first, *rest)] == [a.seq, b.seq, c.seq]
        assert (len(first), rest.next) == (2, None)

    async def test_a_wrong_call_is_refused_by_name(self, stage: Stage) -> None:
        sid = await stage.session()
        agent = stage.sessions(ADAS_AGENT)
        wrong: tuple[tuple[Any, str, str], ...] = (
            ("text", "call", ""),
            ({}, "tool", ""),
            ({"tool": ""}, "tool", ""),
            ({"tool": "a\nb"}, "tool", ""),
            ({"tool": "t", "status": "succeeded"}, "call", "/status"),
            ({"tool": "t", "ok": 1}, "call", "/ok"),
            ({"tool": "t", "tool_call_id": ""}, "tool_call_id", ""),
            ({"tool": "t", "tool_call_id": 7}, "tool_call_id", ""),
            ({"tool": "t", "arguments": {"n": float("nan")}}, "arguments", "/0/n"),
            ({"tool": "t", "result": "\ud800"}, "result", "/0"),
            ({"tool": "t", "arguments": {1: 2}}, "arguments", "/0"),
        )
        for call, field, pointer in wrong:
            async with refused(stage, sid, InvalidInput, field=field) as caught:
                await agent.append_tool_history(sid, call)
            assert isinstance(caught[0], InvalidInput)
            assert caught[0].pointer in (pointer, pointer.removeprefix("/0"))
