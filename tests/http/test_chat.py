"""`POST /v1/chat`, and what it says when nobody answers yet."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from satchel import Worker
from tests.http.agents import asker
from tests.http.door import Door, open_door, problem_of

LONG = 30  # seconds that a chat may wait here, and must not
AT_ONCE = 10  # seconds, on a machine that is busy
NO_AGENT = "the run names no agent, and no worker takes such runs: say `agent`"


@asynccontextmanager
async def working(door: Door) -> AsyncIterator[None]:
    worker = Worker(door.store, {"asker": asker})
    task = asyncio.create_task(worker.run_forever())
    try:
        yield
    finally:
        worker.stop()
        await task


async def test_a_chat_whose_run_asks_is_answered_with_the_question_at_once() -> None:
    async with open_door(agents=("asker",)) as door, working(door):
        body = {"message": "paint", "wait": LONG}
        key = {"Idempotency-Key": "paint"}
        began = time.monotonic()
        asked = await door("POST", "/v1/chat", json=body, headers=key)
        assert time.monotonic() - began < AT_ONCE
        run = asked.json()["run"]
        assert (asked.status_code, run["status"], asked.json()["message"]) == (202, "WAITING", None)
        assert (run["question"]["name"], run["question"]["question"]) == ("colour", "Which colour?")
        url = asked.headers["location"]
        assert (await door("GET", url)).json() == run
        again = await door("POST", "/v1/chat", json=body, headers=key)
        assert (again.status_code, again.json()["run"]) == (202, run)
        # Once it was answered, the same request waits for the end: the question is none any more.
        assert (await door("POST", f"{url}/answer", json={"answer": "red"})).status_code == 200
        ended = await door("POST", "/v1/chat", json=body, headers=key)
        assert (ended.status_code, ended.json()["message"]["content"]) == (200, "red it is")
        assert time.monotonic() - began < LONG


async def test_a_chat_behind_a_run_that_asks_waits_for_its_turn_and_says_for_whose_answer() -> None:
    async with open_door(agents=("asker",)) as door, working(door):
        first = (await door("POST", "/v1/chat", json={"message": "paint", "wait": LONG})).json()
        body = {"message": "and then", "session_id": first["session_id"]}
        key = {"Idempotency-Key": "next"}
        queued = await door("POST", "/v1/chat", json=body | {"wait": 0.05}, headers=key)
        assert (queued.status_code, queued.json()["run"]["status"]) == (202, "READY")
        assert queued.json()["hint"] == f"the run waits for its turn: {first['run']['run_id']} waits for an answer"
        chatting = asyncio.create_task(door("POST", "/v1/chat", json=body | {"wait": LONG}, headers=key))
        await asyncio.sleep(0.1)
        url = f"/v1/sessions/{first['session_id']}/runs/{first['run']['run_id']}"
        assert (await door("POST", f"{url}/answer", json={"answer": "red"})).status_code == 200
        asked = (await chatting).json()["run"]
        assert (asked["run_id"], asked["status"]) == (queued.json()["run"]["run_id"], "WAITING")


async def test_a_chat_without_an_agent_is_refused_where_there_is_no_default_and_nothing_is_stored() -> None:
    for agents, bodies in (((), ({}, {"agent": ""}, {"stream": True})), (("coding",), ({"agent": ""},))):
        async with open_door(agents=agents) as door:
            for body in bodies:
                refused = await door("POST", "/v1/chat", json={"message": "hi", **body})
                problem = problem_of(refused)
                assert (refused.status_code, problem["errors"][0]["pointer"]) == (422, "/agent")
            assert (await door("GET", "/v1/sessions")).json()["items"] == []


async def test_a_run_that_names_no_agent_is_added_and_says_that_no_worker_takes_it() -> None:
    for agents, body in (((), {"input": "hi"}), (("coding",), {"agent": ""})):
        async with open_door(agents=agents) as door:
            session = await door.session()
            added = await door("POST", f"{session}/runs", json=body)
            assert (added.status_code, added.json()["agent"], added.json()["status"]) == (201, "", "READY")
            assert added.headers["satchel-hint"] == NO_AGENT
            # Who adds a run to execute it themselves is told nothing, also while it waits for its turn.
            own = {"start": True, "on_busy": "queue"}
            for more in ({}, {"agent": "own"}):
                waiting = await door("POST", f"{session}/runs", who="adas agent", json=own | more)
                assert (waiting.status_code, waiting.json()["status"]) == (201, "READY")
                assert "satchel-hint" not in waiting.headers
            url = added.headers["location"]
            assert (await door("POST", f"{url}/start", who="adas agent")).json()["status"] == "RUNNING"
