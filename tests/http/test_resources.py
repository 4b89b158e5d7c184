"""What each route answers, in the words of the Python door."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from satchel import OpenStore, Principal, RunContext, RunManager, SessionManager
from satchel.domain.run import Attempt
from satchel.errors import StoreUnavailable
from satchel.store import EventPage, RunPage
from satchel.stores.memory import MemoryStore
from satchel.testing.wrappers import StoreWrapper
from satchel.worker import Worker
from tests.http.door import Door, door_over, open_door, problem_of


async def test_a_session_is_made_read_renamed_and_erased(door: Door) -> None:
    made = await door("POST", "/v1/sessions", json={"title": "Flask", "metadata": {"topic": "启动"}})
    session = made.json()
    assert made.status_code == 201
    assert made.headers["location"] == f"/v1/sessions/{session['session_id']}"
    assert made.headers["etag"] == '"v0"'
    assert (session["status"], session["version"], session["last_seq"]) == ("ACTIVE", 0, 0)

    url = made.headers["location"]
    changed = await door("PATCH", url, json={"title": "Flask 2", "metadata": {"topic": None, "n": 1}})
    assert (changed.json()["title"], changed.json()["metadata"]) == ("Flask 2", {"n": 1})
    assert changed.headers["etag"] == '"v1"'

    read = await door("GET", url, params={"include": "messages"})
    assert read.json() == changed.json()

    gone = await door("DELETE", url, params={"reason": "asked to"})
    assert (gone.status_code, gone.json()["status"]) == (200, "DELETED")
    assert problem_of(await door("GET", url))["code"] == "session_deleted"
    assert (await door("GET", url)).status_code == 410
    assert (await door("DELETE", url)).status_code == 200


async def test_the_lifecycle_over_http(door: Door) -> None:
    session = await door.session()
    closed = await door("POST", f"{session}/close", json={"reason": "done"})
    assert (closed.json()["status"], closed.json()["lifecycle"][-1]["reason"]) == ("CLOSED", "done")
    late = await door("POST", f"{session}/messages", json={"content": "late"})
    assert (late.status_code, problem_of(late)["code"]) == (409, "session_closed")
    assert (await door("POST", f"{session}/restore")).json()["status"] == "ACTIVE"
    assert problem_of(await door("POST", f"{session}/expire"))["code"] == "not_allowed"
    assert (await door("POST", f"{session}/expire", who="admin")).json()["status"] == "EXPIRED"


async def test_an_external_id_finds_its_session(door: Door) -> None:
    first = await door("POST", "/v1/sessions", json={"external_id": "ticket-17"})
    again = await door("POST", "/v1/sessions", json={"external_id": "ticket-17"})
    refused = await door("POST", "/v1/sessions", json={"external_id": "ticket-17", "if_exists": "raise"})
    assert (first.status_code, again.status_code, refused.status_code) == (201, 200, 409)
    assert first.json()["session_id"] == again.json()["session_id"]
    for name, key, status in (("ticket-18", "makes", 201), ("ticket-18", "finds", 200)):
        for replayed in (False, True):
            answer = await door("POST", "/v1/sessions", json={"external_id": name}, headers={"Idempotency-Key": key})
            assert (answer.status_code, "idempotent-replayed" in answer.headers) == (status, replayed)


async def test_json_of_tools_runs_and_metadata_keeps_its_numbers(door: Door) -> None:
    odd = '{"price": 1.10,"n":[1E2,0.12345678901234567890]}'
    session = await door.session()
    changed = await door("PATCH", session, content=b'{"metadata":%s}' % odd.encode())
    called = await door(
        "POST",
        f"{session}/tool-history",
        who="adas agent",
        content=f'{{"tool":"t","arguments":{odd},"result":{odd}}}'.encode(),
    )
    ran = await door(
        "POST",
        f"{session}/runs",
        content=f'{{"input":{{"role":"user","content":"x","n":1.10}},"metadata":{odd}}}'.encode(),
    )
    assert '"price":1.10,"n":[1E2,0.12345678901234567890]' in changed.text.replace(": ", ":")
    assert called.text.count(odd) == 2
    assert odd in ran.text
    assert '"n":1.10' in ran.text
    for path, count in (("/tool-history", 2), ("/runs", 1), (f"/runs/{ran.json()['run_id']}", 1), ("", 3)):
        assert (await door("GET", session + path)).text.count(odd) == count
    assert '"price":1.10' in (await door("GET", "/v1/sessions")).text.replace(": ", ":")
    chat = await door("POST", "/v1/chat", json={"message": "x", "wait": 0})
    assert chat.status_code == 202


async def test_a_bare_message_is_kept_byte_for_byte_and_is_a_users(door: Door) -> None:
    session = await door.session()
    body = '{ "content" : "修复\\u0000", "n": 1.10, "big": 123456789012345678901, "x":{"y":[ ]} }'
    said = await door("POST", f"{session}/messages", content=body.encode())
    assert said.status_code == 201
    assert said.text.endswith(
        ',"role":"user","content" : "修复\\u0000", "n": 1.10, "big": 123456789012345678901, "x":{"y":[ ]} }'
    )
    read = await door("GET", f"{session}/messages")
    assert read.text == '{"items":[' + said.text + '],"next":null}'


async def test_an_envelope_holds_one_message_or_several(door: Door) -> None:
    session = await door.session("adas agent")
    one = await door(
        "POST",
        f"{session}/messages",
        who="adas agent",
        content=b'{"message":{"role":"assistant","content":"a","p":1.50},"metadata":{"m":1},"expected_version":0}',
    )
    assert (one.status_code, one.json()["metadata"], b'"p":1.50' in one.content) == (201, {"m": 1}, True)
    several = await door(
        "POST", f"{session}/messages", who="adas agent", json={"messages": [{"content": "b"}, {"content": "c"}]}
    )
    assert [(item["role"], item["content"]) for item in several.json()["items"]] == [("user", "b"), ("user", "c")]
    assert {item["version"] for item in several.json()["items"]} == {2}
    other = await door(
        "POST", f"{session}/messages", who="adas agent", json={"message": [1, 2], "format": "acme.events"}
    )
    assert (other.json()["body"], other.json()["format"]) == ([1, 2], "acme.events")


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"role": "robot", "content": "x"}, "/role"),
        ({"message": {"role": "robot", "content": "x"}}, "/message/role"),
        ({"messages": [{"content": "x"}, {"role": "robot", "content": "x"}]}, "/messages/1/role"),
        ({"content": 5}, "/content"),
        ({"content": "x", "seq": 5}, "/seq"),
        ({"message": {"content": "x"}, "expected_version": "1"}, "/expected_version"),
        ({"message": {"content": "x"}, "metadata": 5}, "/metadata"),
        ({"messages": []}, "/messages"),
        ({"message": {"content": "x"}, "messages": [{"content": "x"}]}, "/message"),
    ],
)
async def test_what_is_wrong_with_a_message_is_pointed_at(door: Door, body: dict[str, Any], pointer: str) -> None:
    session = await door.session()
    refused = await door("POST", f"{session}/messages", json=body)
    assert refused.status_code == 422
    assert problem_of(refused)["errors"][0]["pointer"] == pointer
    assert "robot" not in refused.text
    assert (await door("GET", session)).json()["version"] == 0


async def test_a_message_is_taken_back(door: Door) -> None:
    session = await door.session()
    said = await door.say(session, "oops")
    taken = await door("POST", f"{session}/messages/{said['message_id']}/retract", json={"reason": "typo"})
    assert taken.json()["status"] == "retracted"
    assert (await door("GET", f"{session}/messages")).json()["items"] == []
    shown = await door("GET", f"{session}/messages", params={"include_retracted": "true"})
    assert [message["status"] for message in shown.json()["items"]] == ["retracted"]
    unknown = await door("POST", f"{session}/messages/msg_99/retract")
    assert problem_of(unknown)["code"] == "message_not_found"


async def test_pages_follow_their_links_to_the_end(door: Door) -> None:
    session = await door.session()
    for number in range(5):
        await door.say(session, str(number))
    seen: list[str] = []
    url = f"{session}/messages?limit=2&order=desc"
    while True:
        answer = await door("GET", url)
        seen += [message["content"] for message in answer.json()["items"]]
        assert len(answer.json()["items"]) <= 2
        if "link" not in answer.headers:
            assert answer.json()["next"] is None
            break
        url = session + "/messages" + answer.headers["link"].split(">")[0].removeprefix("<")
    assert seen == ["4", "3", "2", "1", "0"]


async def test_a_cursor_is_bound_to_its_caller_and_its_list(door: Door) -> None:
    session = await door.session()
    for number in range(3):
        await door.say(session, str(number))
    cursor = (await door("GET", f"{session}/messages?limit=1")).json()["next"]
    for who, url in (
        ("admin", f"{session}/messages?limit=1&cursor={cursor}"),
        ("ada", f"{session}/messages?limit=1&order=desc&cursor={cursor}"),
        ("ada", f"{session}/events?limit=1&cursor={cursor}"),
        ("ada", f"/v1/sessions?cursor={cursor}"),
    ):
        refused = await door("GET", url, who=who)
        assert (refused.status_code, problem_of(refused)["code"]) == (400, "invalid_cursor"), url


async def test_sessions_are_listed_by_what_they_are(door: Door) -> None:
    flask = await door.session(title="Flask 启动", metadata={"topic": "web", "n": 3})
    await door.session(title="other", metadata={"topic": "ads"})
    await door.session("bob", title="flask too")

    async def listed(query: str, who: str = "ada") -> list[str]:
        answer = await door("GET", f"/v1/sessions{query}", who=who)
        assert answer.status_code == 200, answer.text
        return [session["title"] for session in answer.json()["items"]]

    assert await listed("") == ["other", "Flask 启动"]
    assert await listed("?title=flask") == ["Flask 启动"]
    assert await listed("?title=FLASK", who="admin") == ["flask too", "Flask 启动"]
    assert await listed("?metadata.topic=web&metadata.n=3") == ["Flask 启动"]
    assert await listed("?user_id=bob") == []
    assert await listed("?user_id=bob", who="admin") == ["flask too"]
    assert await listed("?updated_after=2100-01-01T00:00:00Z") == []
    assert await listed("?updated_before=2100-01-01T00:00:00%2B08:00") == ["other", "Flask 启动"]
    await door("POST", f"{flask}/close")
    assert await listed("?status=CLOSED") == ["Flask 启动"]


async def test_working_memory_is_replaced_patched_and_guarded(door: Door) -> None:
    session = await door.session()
    memory = f"{session}/working-memory"
    agent = "adas agent"
    due = await door("PATCH", memory, who=agent, json={"set": {"goal": "g"}})
    assert (due.status_code, problem_of(due)["code"]) == (428, "version_required")
    assert (await door("PUT", memory, who=agent, json={"goal": "g"})).status_code == 428
    put = await door("PUT", memory, who=agent, json={"goal": "g", "plan": ["a"]}, headers={"If-Match": '"v0"'})
    assert (put.status_code, put.headers["etag"]) == (200, '"v1"')
    await door.say(session, "a message does not starve the editor")
    patched = await door(
        "PATCH", memory, who=agent, json={"append": {"plan": "b"}, "set": {"next_action": "n"}, "expected_version": 1}
    )
    assert patched.json() | {"version": 0} == {
        "goal": "g",
        "plan": ["a", "b"],
        "completed": [],
        "errors": [],
        "important_files": [],
        "next_action": "n",
        "version": 0,
    }
    assert patched.headers["etag"] == '"v3"'
    assert (await door("GET", memory)).json() == patched.json()
    wrong = await door("PATCH", memory, who=agent, json={"append": {"goal": "x"}})
    assert problem_of(wrong)["errors"][0]["pointer"] == "/append/goal"
    assert problem_of(await door("PATCH", memory, json={"append": {"plan": "x"}}))["code"] == "not_allowed"


async def test_a_tool_call_in_one_stroke_and_in_two(door: Door) -> None:
    session = await door.session()
    history = f"{session}/tool-history"
    agent = "adas agent"
    whole = await door(
        "POST", history, who=agent, json={"tool": "read_file", "arguments": {"path": "app.py"}, "ok": True}
    )
    assert (whole.status_code, whole.json()["status"], whole.json()["ok"]) == (201, "succeeded", True)
    started = await door("POST", history, who=agent, json={"tool": "read_file", "arguments": {"path": "app.py"}})
    assert (started.json()["status"], started.json()["repeat_of"]) == ("started", whole.json()["seq"])
    result = f"{history}/{started.json()['seq']}/result"
    done = await door("POST", result, who=agent, content=b'{"result":{"n":123456789012345678901234567890}}')
    assert (done.json()["status"], done.json()["result"]) == ("succeeded", {"n": 123456789012345678901234567890})
    other = await door("POST", result, who=agent, json={"error": "x"})
    assert (other.status_code, problem_of(other)["code"]) == (409, "tool_call_ended")
    for seq in ("99", "0", "-1", "x", "9" * 40):
        unknown = await door("POST", f"{history}/{seq}/result", who=agent, json={"result": 1})
        assert (unknown.status_code, problem_of(unknown)["code"]) == (404, "tool_call_not_found"), seq
    calls = await door("GET", history, params={"tool": "read_file", "is_open": "false"})
    assert [call["seq"] for call in calls.json()["items"]] == [1, 2]


async def test_numbers_of_a_tool_call_are_stored_as_they_came(door: Door) -> None:
    session = await door.session()
    agent = "adas agent"
    body = b'{"tool":"t","arguments":{"price":1.10,"id":12345678901234567890123},"result":[0.10,1e2]}'
    await door("POST", f"{session}/tool-history", who=agent, content=body)
    log = (await door("GET", f"{session}/events")).text
    assert '"arguments":{"price":1.10,"id":12345678901234567890123}' in log
    assert '"result":[0.10,1e2]' in log


@pytest.mark.parametrize("number", ["0.1234567890123456789012", "1e-400", "12345678901234567.89"])
async def test_a_memory_keeps_its_numbers(door: Door, number: str) -> None:
    session = await door.session("adas agent")
    url = f"{session}/working-memory"
    patch = f'{{"set":{{"notes":{{"a":{number}}}}},"expected_version":0}}'
    memory = f'{{"notes":{{"b":{number}}},"expected_version":1}}'
    for name, method, body in (("a", "PATCH", patch), ("b", "PUT", memory)):
        answer = await door(method, url, who="adas agent", content=body.encode())
        assert answer.status_code == 200, answer.text
        for text in (answer.text, (await door("GET", url)).text, (await door("GET", session)).text):
            assert f'"notes":{{"{name}":{number}}}' in text


async def test_runs_are_added_read_and_cancelled(door: Door) -> None:
    session = await door.session()
    added = await door("POST", f"{session}/runs", json={"goal": "find out", "input": "why?"})
    run = added.json()
    assert (added.status_code, run["status"], run["agent"]) == (201, "READY", "coding")
    assert run["input"] == {"role": "user", "content": "why?"}
    url = added.headers["location"]
    assert (await door("GET", url)).json() == run
    busy = await door("POST", f"{session}/runs", json={"agent": "data"})
    assert (busy.status_code, problem_of(busy)["run_id"]) == (409, run["run_id"])
    queued = await door("POST", f"{session}/runs", json={"on_busy": "queue", "input": {"content": [], "role": "user"}})
    assert queued.status_code == 201
    listed = await door("GET", f"{session}/runs", params={"status": "READY"})
    assert [one["number"] for one in listed.json()["items"]] == [2, 1]
    cancelled = await door("POST", f"{url}/cancel", json={"reason": "enough"})
    assert cancelled.json()["status"] == "CANCELLED"
    assert problem_of(await door("GET", f"{session}/runs/run_unknown"))["code"] == "run_not_found"


async def test_who_executes_a_run_itself_tells_of_it_over_http(door: Door) -> None:
    session = await door.session()
    agent = "adas agent"
    run = (await door("POST", f"{session}/runs", who=agent, json={"start": True, "agent": "own"})).json()
    assert (run["status"], run["attempt"]) == ("RUNNING", 1)
    url = f"{session}/runs/{run['run_id']}"
    mine = {"Satchel-Attempt": f"{run['run_id']}/1"}
    foreign = {"Satchel-Attempt": f"{run['run_id']}/2"}

    assert (await door("POST", f"{url}/renew", who=agent, headers=mine)).json() == {"cancel_requested": False}
    fenced = await door("POST", f"{url}/renew", who=agent, headers=foreign)
    assert (fenced.status_code, problem_of(fenced)["code"]) == (409, "run_fenced")
    nobody = await door("POST", f"{url}/renew", who=agent)
    assert problem_of(nobody)["errors"][0]["header"] == "Satchel-Attempt"

    memory = await door(
        "PATCH", f"{session}/working-memory", who=agent, headers=mine, json={"set": {"goal": "no version needed"}}
    )
    assert memory.status_code == 200
    said = await door(
        "POST", f"{session}/messages", who=agent, headers=mine, json={"role": "assistant", "content": "done"}
    )
    assert said.json()["run_id"] == run["run_id"]
    step = await door("POST", f"{url}/steps", who=agent, headers=mine, json={"name": "model", "input_tokens": 7})
    assert step.json()["usage"]["input_tokens"] == 7
    child = await door("POST", f"{url}/children", who=agent, headers=mine, json={"goal": "a part"})
    assert (child.status_code, child.json()["parent_run_id"]) == (201, run["run_id"])
    part = {"Satchel-Attempt": f"{child.json()['run_id']}/1"}
    ended = await door("POST", f"{child.headers['location']}/complete", who=agent, headers=part)
    assert ended.json()["status"] == "COMPLETED"
    done = await door("POST", f"{url}/complete", who=agent, headers=mine)
    assert (done.json()["status"], done.json()["stop_reason"]) == ("COMPLETED", "end_turn")
    assert problem_of(await door("POST", f"{url}/fail", who=agent, headers=mine, json={"code": "x"}))["status"] == 409


async def test_a_fork_and_a_transfer(door: Door) -> None:
    session = await door.session(title="first")
    await door.say(session, "one")
    await door.say(session, "two")
    fork = await door("POST", f"{session}/fork", json={"up_to": 1})
    assert (fork.status_code, fork.json()["message_count"]) == (201, 1)
    assert fork.json()["forked_from"] == {"session_id": session.rpartition("/")[2], "seq": 1}
    assert problem_of(await door("POST", f"{session}/transfer", json={"user_id": "bob"}))["code"] == "not_allowed"
    moved = await door("POST", f"{session}/transfer", who="admin", json={"user_id": "bob"})
    assert moved.json()["user_id"] == "bob"
    assert (await door("GET", session)).status_code == 404
    assert (await door("GET", session, who="bob")).status_code == 200


async def test_the_context_is_what_the_python_door_gives(door: Door) -> None:
    session = await door.session()
    await door.say(session, "hello")
    context = await door("GET", f"{session}/context", params={"max_tokens": 100})
    assert context.json()["messages"] == [{"role": "user", "content": "hello"}]
    assert context.json()["max_tokens"] == 100


async def test_a_chat_that_takes_longer_is_told_where_to_look(door: Door) -> None:
    answer = await door("POST", "/v1/chat", json={"message": "repair it", "external_id": "t1", "wait": 0.05})
    chat = answer.json()
    assert (answer.status_code, chat["message"], chat["run"]["status"]) == (202, None, "READY")
    assert chat["run"]["goal"] == "repair it"
    assert answer.headers["location"] == f"/v1/sessions/{chat['session_id']}/runs/{chat['run']['run_id']}"
    more = await door("POST", "/v1/chat", json={"message": {"content": "more"}, "external_id": "t1", "wait": 0})
    assert more.json()["session_id"] == chat["session_id"]
    assert (more.json()["run"]["number"], more.json()["run"]["status"]) == (2, "READY")


@pytest.mark.parametrize("stream", [False, True])
async def test_a_chat_in_a_long_session_reads_no_more_than_in_a_short_one(stream: bool) -> None:
    read = 0

    class Counting(StoreWrapper):
        async def events(self, ref: Any, **options: Any) -> EventPage:
            nonlocal read
            page = await self.inner.events(ref, **options)
            read += len(page.events)
            return page

    store = OpenStore(Counting(MemoryStore()))
    sessions = SessionManager(store, Principal.agent("shop", tenant_id="acme", acting_for="ada"))
    runs = RunManager(store, sessions.principal)
    counts = []
    async with store, door_over(store, agents=("shop",)) as door:
        for length in (1, 12):
            sid = (await sessions.create_session()).session_id
            for _ in range(length):
                await sessions.append_messages(sid, [{"role": "user", "content": "x"}] * 100)
            read = 0
            said = {"session_id": sid, "message": "hello", "wait": 10, "stream": stream}
            who = {"Authorization": f"Bearer {door.keys['ada']}"}
            chat = asyncio.create_task(door.client.post("/v1/chat", json=said, headers=who))
            async with asyncio.timeout(20):
                while not (found := (await runs.list_runs(sid)).items):  # noqa: ASYNC110  # of what stands in the store
                    await asyncio.sleep(0.01)
                run = await runs.start_run(sid, found[0].run_id)
            attempt = Attempt(run.run_id, run.attempt)
            await sessions.append_message(sid, {"role": "assistant", "content": "hi"}, attempt=attempt)
            await runs.complete_run(sid, attempt)
            answer = await chat
            assert "COMPLETED" in answer.text
            assert '"hi"' in answer.text
            counts.append(read)
    assert counts[1] <= counts[0] < 50, counts


async def test_a_chat_that_was_said_is_not_told_as_refused_when_the_store_goes_away_then() -> None:
    class Away(StoreWrapper):
        is_away = False

        async def events(self, ref: Any, **options: Any) -> EventPage:
            if self.is_away:
                raise StoreUnavailable("the cable was pulled")
            return await self.inner.events(ref, **options)

        async def runs(self, ref: Any, **options: Any) -> RunPage:
            if self.is_away:
                raise StoreUnavailable("the cable was pulled")
            return await self.inner.runs(ref, **options)

    away = Away(MemoryStore())
    store = OpenStore(away)
    async with store, door_over(store, agents=("shop",)) as door:
        session = await door.session()
        said = {"session_id": session.rpartition("/")[2], "message": "pay the bill"}
        chat = asyncio.create_task(door("POST", "/v1/chat", json=said | {"wait": 0.3}))
        async with asyncio.timeout(20):
            while not (await door("GET", f"{session}/runs")).json()["items"]:  # noqa: ASYNC110  # of what is stored
                await asyncio.sleep(0.01)
        away.is_away = True
        answer = await chat
        away.is_away = False
        (run,) = (await door("GET", f"{session}/runs")).json()["items"]
        assert (answer.status_code, answer.json()["run"]["run_id"]) == (202, run["run_id"])
        assert (await door("GET", answer.headers["location"])).status_code == 200


async def test_a_chats_new_session_is_called_by_its_first_words(door: Door) -> None:
    first = await door("POST", "/v1/chat", json={"message": "帮我修复\n启动失败。", "external_id": "t1", "wait": 0})
    await door("POST", "/v1/chat", json={"message": "more", "external_id": "t1", "wait": 0})
    long = await door("POST", "/v1/chat", json={"message": {"content": "word " * 50}, "wait": 0})
    parts = await door("POST", "/v1/chat", json={"message": {"content": [{"type": "text", "text": "x"}]}, "wait": 0})
    titles = {one["session_id"]: one["title"] for one in (await door("GET", "/v1/sessions")).json()["items"]}
    assert titles[first.json()["session_id"]] == "帮我修复 启动失败。"
    assert titles[long.json()["session_id"]] == ("word " * 50)[:59] + "…"
    assert titles[parts.json()["session_id"]] == "x"


async def test_a_chat_that_nobody_here_answers_says_who_is_served() -> None:
    async def hint(door: Door, **more: Any) -> str | None:
        answer = await door("POST", "/v1/chat", json={"message": "go", "wait": 0, **more})
        assert answer.status_code == 202
        said: str | None = answer.json().get("hint")
        return said

    async with open_door(agents=("coding", "data")) as door:
        served = "this server serves coding, data"
        assert await hint(door, agent="codign") == f"the run waits for a worker that serves agent 'codign': {served}"
        assert await hint(door, agent="data") is None
        assert await hint(door) is None
    async with open_door() as door:
        alone = "the run waits for a worker that serves agent 'data': this server executes no runs"
        assert await hint(door, agent="data") == alone


async def test_a_run_for_an_agent_that_nobody_is_known_to_serve_says_so_at_once() -> None:
    async with open_door(agents=("coding",)) as door:
        session = await door.session()
        hint = "the run waits for a worker that serves agent 'codign': this server serves coding"
        began = time.monotonic()
        chatted = await door("POST", "/v1/chat", json={"message": "go", "agent": "codign", "wait": 30})
        assert time.monotonic() - began < 10
        assert (chatted.status_code, chatted.json()["hint"]) == (202, hint)
        key = {"Idempotency-Key": "once"}
        added = await door("POST", f"{session}/runs", json={"agent": "codign"}, headers=key)
        again = await door("POST", f"{session}/runs", json={"agent": "codign"}, headers=key)
        for answer in (added, again):
            assert (answer.status_code, answer.headers["satchel-hint"]) == (201, hint)
        for body in ({"agent": "coding"}, {}):
            served = await door("POST", f"{session}/runs", json={"on_busy": "queue", **body})
            assert "satchel-hint" not in served.headers
        chinese = await door("POST", f"{session}/runs", json={"agent": "修", "on_busy": "queue"})
        assert chinese.headers["satchel-hint"] == hint.replace("codign", r"\u4fee")
        # Somebody begins it: from now on its agent is known to be served.
        run = f"{session}/runs/{added.json()['run_id']}"
        assert (await door("POST", f"{run}/start", who="adas agent")).status_code == 200
        known = await door("POST", f"{session}/runs", json={"agent": "codign", "on_busy": "queue"})
        assert "satchel-hint" not in known.headers
        # What is answered under a key stays as it was all the same.
        replayed = await door("POST", f"{session}/runs", json={"agent": "codign"}, headers=key)
        assert (replayed.status_code, replayed.content) == (201, added.content)


async def test_a_chat_waits_for_a_run_that_a_worker_elsewhere_began() -> None:
    async def echo(ctx: RunContext) -> None:
        await asyncio.sleep(1.5)  # longer than the look
        await ctx.append_message({"role": "assistant", "content": "here I am"})

    async with open_door(agents=("coding",)) as door:
        worker = Worker(door.store, {"shop": echo})
        working = asyncio.create_task(worker.run_forever())
        try:
            answer = await door("POST", "/v1/chat", json={"message": "go", "agent": "shop", "wait": 30})
        finally:
            worker.stop()
            await working
        assert (answer.status_code, answer.json()["message"]["content"]) == (200, "here I am")


async def test_a_repeated_chat_makes_one_session_and_one_run(door: Door) -> None:
    async def once() -> Any:
        key = {"Idempotency-Key": "turn-1"}
        return await door("POST", "/v1/chat", json={"message": "hi", "wait": 0}, headers=key)

    answers = await asyncio.gather(*(once() for _ in range(5)))
    assert {answer.status_code for answer in answers} == {202}
    assert len({answer.json()["session_id"] for answer in answers}) == 1
    assert len({answer.json()["run"]["run_id"] for answer in answers}) == 1
    assert (await door("GET", "/v1/sessions")).json()["items"][0]["run_count"] == 1


async def test_one_chats_session_is_not_carried_into_the_next(door: Door) -> None:
    first = await door("POST", "/v1/chat", json={"message": "a", "wait": 0})
    second = await door("POST", "/v1/chat", json={"message": "b", "wait": 0}, who="bob")
    assert first.json()["session_id"] != second.json()["session_id"]
    assert second.json()["run"]["session_id"] == second.json()["session_id"]


async def test_sessions_per_user_are_limited_when_asked_for() -> None:
    async with open_door(sessions_per_user=2) as door:
        await door.session()
        await door.session()
        full = await door("POST", "/v1/sessions")
        assert (full.status_code, problem_of(full)["code"]) == (409, "too_many_sessions")
        assert (await door("POST", "/v1/sessions", who="bob")).status_code == 201


async def test_a_limit_is_not_for_who_asks_again_or_finds_what_is_there() -> None:
    async with open_door(sessions_per_user=2, runs_per_user=1, agents=("x",)) as door:
        made = [
            (await door("POST", "/v1/sessions", json=body, headers={"Idempotency-Key": "k"}))
            for body in ({"external_id": "talk"}, {"title": "t"})
        ]
        again = [
            (await door("POST", "/v1/sessions", json=body, headers={"Idempotency-Key": key}))
            for body, key in (({"external_id": "talk"}, "k"), ({"title": "t"}, "k"), ({"external_id": "talk"}, "other"))
        ]
        assert [answer.status_code for answer in (*made, *again)] == [201, 201, 201, 201, 200]
        assert (await door("POST", "/v1/sessions", headers={"Idempotency-Key": "new"})).status_code == 409
        chat = {"external_id": "talk", "message": "hi", "wait": 0}
        for replayed in (False, True):
            said = await door("POST", "/v1/chat", json=chat, headers={"Idempotency-Key": "said"})
            assert (said.status_code, "idempotent-replayed" in said.headers) == (202, replayed)
        assert (await door("POST", "/v1/chat", json=chat, headers={"Idempotency-Key": "more"})).status_code == 429
        stranger = await door(
            "POST", "/v1/chat", json=chat | {"external_id": "bobs"}, headers={"Idempotency-Key": "said"}
        )
        assert stranger.status_code == 409


async def test_open_runs_per_user_are_limited_and_ended_ones_do_not_count() -> None:
    async with open_door(runs_per_user=2) as door:
        sessions = [await door.session() for _ in range(3)]
        runs = [await door("POST", f"{session}/runs", json={"agent": "x"}) for session in sessions]
        assert [run.status_code for run in runs] == [201, 201, 429]
        assert (problem_of(runs[2])["code"], runs[2].headers["retry-after"]) == ("too_many_runs", "1")
        assert (await door("POST", f"{await door.session('bob')}/runs", who="bob", json={})).status_code == 201
        await door("POST", f"{runs[0].headers['location']}/cancel")
        assert (await door("POST", f"{sessions[2]}/runs", json={"agent": "x"})).status_code == 201


async def test_metrics_tell_of_commits_events_runs_and_the_queue(door: Door) -> None:
    session = await door.session()
    run = await door("POST", f"{session}/runs", json={"input": "go"})
    await asyncio.sleep(0.05)
    waiting = (await door("GET", "/metrics")).text
    age = float(waiting.split("\nsatchel_queue_age_seconds ")[1].split("\n")[0])
    assert 0.04 < age < 60
    await door("POST", f"{run.headers['location']}/cancel")
    told = (await door("GET", "/metrics")).text
    assert 'satchel_events_total{kind="run_added"} 1.0' in told
    assert 'satchel_runs_total{status="CANCELLED"} 1.0' in told
    assert "satchel_queue_age_seconds 0.0" in told
    assert "satchel_batch_decisions_count 3.0" in told
