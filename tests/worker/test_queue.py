"""What waits for a worker: a user's messages, each answered once by its own run, what was cancelled meanwhile by none; and a
run that names no agent, which no worker takes."""

from __future__ import annotations

import threading

from satchel import RunContext, RunManager
from satchel.testing.stage import ADAS_AGENT
from tests.worker.stage import Stage, until, working


async def test_a_queued_message_is_answered_once_by_its_own_run_and_a_cancelled_one_by_none(stage: Stage) -> None:
    """The agent answers whatever it is shown and finds without an answer, as a model does."""
    inside, go_on = threading.Event(), threading.Event()

    async def answer_all(ctx: RunContext) -> None:
        inside.set()
        assert go_on.wait(20)  # until all of them wait
        shown = (await ctx.context()).messages
        told = [message["content"] for message in shown if message["role"] == "assistant"]
        for asked in [message["content"] for message in shown if message["role"] == "user"]:
            if asked.startswith("question") and f"answer to {asked}" not in told:
                await ctx.append_message({"role": "assistant", "content": f"answer to {asked}"})

    async with working(stage.store, {"shop": answer_all}):
        sid = await stage.session()
        runs = [await stage.added("shop", sid, input="question 0")]
        await until(inside.is_set)
        runs += [await stage.added("shop", sid, input=f"question {number}") for number in range(1, 5)]
        ended = await stage.runs.cancel_run(sid, runs[2].run_id)
        assert (ended.status, ended.attempt) == ("CANCELLED", 0)
        again = await stage.added("shop", sid, input="question 5")
        go_on.set()
        for run in (*runs, again):
            await stage.ended(run)

    answers = [event for event in await stage.log(sid) if event.kind == "message" and event.actor == "agent:shop"]
    expected = [(run.run_id, f"answer to question {number}") for number, run in enumerate((*runs, again))]
    del expected[2]
    assert [(event.run_id, event.data["content"]) for event in answers] == expected
    said = {message.content: message.status for message in await stage.sessions.messages(sid)}
    assert said["question 2"] == "unanswered"
    assert {said[f"question {number}"] for number in (0, 1, 3, 4, 5)} == {"complete"}


async def test_a_run_that_names_no_agent_is_taken_by_no_worker_and_started_by_whoever_works_itself(
    stage: Stage,
) -> None:
    async def answer(ctx: RunContext) -> None:
        await ctx.append_message({"role": "assistant", "content": "here"})

    sid = await stage.session()
    unnamed = await stage.runs.add_run(sid, input="hi")
    async with working(stage.store, {"shop": answer}):
        await stage.ended(await stage.added("shop"))  # added later: the worker has looked
        assert (await stage.now(unnamed)).status == "READY"
    assert (await RunManager(stage.store, ADAS_AGENT).start_run(sid, unnamed.run_id)).status == "RUNNING"
