"""Conditions, keys, methods, identity, limits: what holds on every route."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest

from satchel.http.table import ROUTES
from tests.http.door import Door, door_over, open_door, problem_of

NOWHERE = "/v1/sessions/sess_aaaaaaaaaaaaaaaaaaaaaaaa"


async def test_no_identity_is_served_nothing_but_health(door: Door) -> None:
    session = await door.session()
    for route in ROUTES:
        url = route.path.replace("{session_id}", session.rpartition("/")[2]).replace("{run_id}", "run_x")
        url = re.sub(r"\{\w+\}", "1", url)
        answer = await door(route.method, url, who=None)
        if route.is_open:
            assert answer.status_code == 200, url
            continue
        assert (answer.status_code, problem_of(answer)["code"]) == (401, "unauthenticated"), url
        assert answer.headers["www-authenticate"].startswith("Bearer")
    for url in ("/nothing", "/v1/sessions/x/y/z", "/"):
        assert (await door("GET", url, who=None)).status_code == 401


@pytest.mark.parametrize(
    "credentials",
    [
        "",
        "Bearer",
        "Bearer ",
        "Basic YWRhOnNlY3JldA==",
        "Bearer satchel_aaaaaaaaaaaaaaaa_" + "a" * 52,
        "Bearer satchel_x",
        "Bearer \xff",
    ],
)
async def test_what_is_no_key_opens_nothing(door: Door, credentials: str) -> None:
    answer = await door("GET", "/v1/sessions", who=None, headers={"Authorization": credentials.encode("latin-1")})  # type: ignore[dict-item]  # bytes, as a client may send them
    assert answer.status_code == 401
    assert len(credentials) < 10 or credentials[7:] not in answer.text


async def test_a_key_works_at_once_and_a_revoked_one_no_more(door: Door) -> None:
    key = await door.ring.create(tenant_id="acme", role="user", user_id="ada")
    mine = {"Authorization": f"bearer {key}"}
    assert (await door("GET", "/v1/sessions", who=None, headers=mine)).status_code == 200
    await door.ring.revoke(key.split("_")[1])
    assert (await door("GET", "/v1/sessions", who=None, headers=mine)).status_code == 401


async def test_an_agent_is_narrowed_to_the_user_that_it_names(door: Door) -> None:
    mine, bobs = await door.session(), await door.session("bob")
    for_ada = {"Satchel-Acting-For": "ada"}
    assert (await door("GET", bobs, who="agent")).status_code == 200
    assert (await door("GET", bobs, who="agent", headers=for_ada)).status_code == 404
    assert (await door("GET", mine, who="agent", headers=for_ada)).status_code == 200
    assert (await door("GET", mine, who="adas agent", headers=for_ada)).status_code == 200
    for who, user in (("bobs agent", "ada"), ("ada", "bob"), ("admin", "ada")):
        refused = await door("GET", mine, who=who, headers={"Satchel-Acting-For": user})
        assert (refused.status_code, problem_of(refused)["code"]) == (403, "not_allowed"), who
    assert (await door("GET", mine, who="agent", headers={"Satchel-Acting-For": ""})).status_code == 401


async def test_foreign_and_unknown_are_answered_byte_for_byte_alike(door: Door) -> None:
    session = await door.session()
    before = (await door("GET", session)).content
    ids = {"X-Request-Id": "the-same"}
    for who in ("bob", "bobs agent", "ada elsewhere", "admin elsewhere"):
        for route in ROUTES:
            if "{session_id}" not in route.path:
                continue
            answers = []
            for url in (session, NOWHERE):
                tail = route.path.removeprefix("/v1/sessions/{session_id}").replace("{run_id}", "run_x")
                tail = re.sub(r"\{\w+\}", "1", tail)
                body = {"content": "x"} if route.name == "append_message" else _least_body(route.name)
                headers = ids | ({"Satchel-Attempt": "run_x/1"} if "/runs/" in tail else {})
                answers.append(await door(route.method, url + tail, who=who, json=body, headers=headers))
            assert answers[0].status_code == 404, (who, route.name, answers[0].text)
            assert answers[0].content == answers[1].content, (who, route.name)
            assert dict(answers[0].headers).keys() == dict(answers[1].headers).keys()
    assert (await door("GET", session)).content == before


def _least_body(name: str) -> Any:
    bodies: dict[str, Any] = {
        "update_session": {"title": "mine now"},
        "transfer_session": {"user_id": "bob"},
        "append_tool_history": {"tool": "t"},
        "add_step": {"name": "n"},
        "fail_run": {"code": "c"},
        "answer_run": {"answer": 1},
        "add_child_run": {"goal": "g"},
        "ask_question": {"name": "q", "question": "?"},
        "add_text": {"message": 1, "offset": 0, "text": "x"},
        "end_text": {"message": 1, "answer": {"role": "assistant", "content": "x"}},
        "replace_working_memory": {"goal": "g"},
        "update_working_memory": {"append": {"plan": "p"}},
    }
    return bodies.get(name)


async def test_if_match_answers_412_and_the_body_409(door: Door) -> None:
    session = await door.session()
    await door.say(session, "one")
    for condition, status in (('"v0"', 412), ('"v9"', 412), ('"v1"', 200)):
        answer = await door("PATCH", session, json={"title": "t"}, headers={"If-Match": condition})
        assert answer.status_code == status, condition
    conflict = await door("PATCH", session, json={"title": "t", "expected_version": 1})
    problem = problem_of(conflict)
    assert (conflict.status_code, problem["code"], problem["retryable"]) == (409, "version_conflict", False)
    assert (problem["expected_version"], problem["current_version"], problem["changed"]) == (1, 2, ["title"])
    assert (await door("PATCH", session, json={"title": "t"}, headers={"If-Match": "*"})).status_code == 200
    for wrong in ('"x"', "v1", 'W/"v1"', '"v1", "v2"', '"v01"'):
        refused = await door("PATCH", session, json={"title": "t"}, headers={"If-Match": wrong})
        assert (refused.status_code, problem_of(refused)["errors"][0]["header"]) == (422, "If-Match"), wrong
    both = await door("PATCH", session, json={"title": "t", "expected_version": 3}, headers={"If-Match": '"v2"'})
    assert both.status_code == 422


async def test_a_repeated_request_finds_its_run_where_another_agent_is_the_default_one(door: Door) -> None:
    session = await door.session()
    said = {"session_id": session.rpartition("/")[2], "message": "pay the bill", "wait": 0}
    async with door_over(door.store, agents=("coding",)) as first, door_over(door.store, agents=("shop",)) as second:
        for path, body in (
            (f"{session}/runs", {"input": "hi", "on_busy": "queue"}),
            ("/v1/chat", said),
        ):
            added = await first("POST", path, json=body, headers={"Idempotency-Key": path})
            again = await second("POST", path, json=body, headers={"Idempotency-Key": path})
            assert again.status_code == added.status_code
            assert again.headers["idempotent-replayed"] == "true"
            ids = [one.json().get("run", one.json())["run_id"] for one in (added, again)]
            assert ids[0] == ids[1]
            for other in (body | {"agent": "shop"}, body | {"goal": "another"}):
                refused = await second("POST", path, json=other, headers={"Idempotency-Key": path})
                assert (refused.status_code, refused.json()["code"]) == (422, "idempotency_mismatch")
    assert len((await door("GET", f"{session}/runs")).json()["items"]) == 2


async def test_a_condition_that_nobody_would_look_at_is_refused_and_nothing_is_done(door: Door) -> None:
    session = await door.session()
    run = (await door("POST", f"{session}/runs", who="agent", json={"start": True})).json()
    url, attempt = f"{session}/runs/{run['run_id']}", {"Satchel-Attempt": f"{run['run_id']}/1"}
    message = {"session_id": session.rpartition("/")[2], "message": "pay the bill", "wait": 0}
    for path, body in (
        ("/v1/chat", message),
        ("/v1/sessions", {"external_id": "one"}),
        (f"{url}/renew", {}),
        (f"{url}/wait", {}),
        (f"{url}/text", {"message": 1, "offset": 0, "text": "x"}),
    ):
        refused = await door("POST", path, who="agent", json=body, headers={"If-Match": '"v0"'} | attempt)
        assert (refused.status_code, problem_of(refused)["errors"][0]["header"]) == (422, "If-Match"), path
    for verb in ("renew", "wait"):
        refused = await door("POST", f"{url}/{verb}", who="agent", json={"expected_version": 0}, headers=attempt)
        assert (refused.status_code, problem_of(refused)["errors"][0]["pointer"]) == (422, "/expected_version"), verb
    assert len((await door("GET", f"{session}/runs")).json()["items"]) == 1
    assert len((await door("GET", "/v1/sessions")).json()["items"]) == 1
    taken = await door("POST", "/v1/sessions", json={"external_id": "one"}, headers={"If-Match": "*"})
    assert taken.status_code == 201


async def test_what_a_reader_has_already_is_not_sent_again(door: Door) -> None:
    session = await door.session()
    tag = (await door("GET", session)).headers["etag"]
    known = await door("GET", session, headers={"If-None-Match": f'"other", W/{tag}'})
    assert (known.status_code, known.content, known.headers["etag"]) == (304, b"", tag)
    await door.say(session, "news")
    assert (await door("GET", session, headers={"If-None-Match": tag})).status_code == 200


async def test_a_repeated_write_is_answered_as_it_was_first(door: Door) -> None:
    session = await door.session()
    body = {"content": "once"}
    first = await door("POST", f"{session}/messages", json=body, headers={"Idempotency-Key": '"k-1"'})
    await door("POST", f"{session}/close")
    again = await door("POST", f"{session}/messages", json=body, headers={"Idempotency-Key": "k-1"})
    assert (again.status_code, again.content) == (first.status_code, first.content)
    assert "idempotent-replayed" not in first.headers
    assert again.headers["idempotent-replayed"] == "true"
    other = await door("POST", f"{session}/messages", json={"content": "other"}, headers={"Idempotency-Key": "k-1"})
    assert (other.status_code, problem_of(other)["code"]) == (422, "idempotency_mismatch")


async def test_concurrent_duplicates_are_done_once(door: Door) -> None:
    session = await door.session()
    key = {"Idempotency-Key": "k"}
    answers = await asyncio.gather(
        *(door("POST", f"{session}/messages", json={"content": "once"}, headers=key) for _ in range(20))
    )
    assert {answer.content for answer in answers} == {answers[0].content}
    assert (await door("GET", session)).json()["message_count"] == 1


@pytest.mark.parametrize("key", ["", '""', " ", "a b", "é", "x" * 256, "tab\there"])
async def test_a_key_is_visible_ascii(door: Door, key: str) -> None:
    headers = {"Idempotency-Key": key.encode("latin-1")}
    answer = await door("POST", "/v1/sessions", headers=headers)  # type: ignore[arg-type]  # bytes, as they go over the wire
    assert answer.status_code == 422
    assert problem_of(answer)["errors"][0]["header"] == "Idempotency-Key"


async def test_the_order_of_checks(door: Door) -> None:
    """Who, then the request by itself, then whose, then role, then replay, then status, then condition."""
    session = await door.session()
    await door("POST", f"{session}/messages", json={"content": "a"}, headers={"Idempotency-Key": "k"})
    await door("POST", f"{session}/close")
    messages = f"{session}/messages"
    stale = {"If-Match": '"v0"'}
    assert (await door("POST", messages, who=None, content=b"{")).status_code == 401
    assert (await door("POST", messages, who="bob", content=b"{")).status_code == 400
    assert (await door("POST", messages, who="bob", json={"role": "system", "content": "a"})).status_code == 404
    assert (await door("POST", messages, json={"role": "system", "content": "a"}, headers=stale)).status_code == 403
    replayed = await door("POST", messages, json={"content": "a"}, headers={"Idempotency-Key": "k"} | stale)
    assert replayed.status_code == 201
    assert problem_of(await door("POST", messages, json={"content": "b"}, headers=stale))["code"] == "session_closed"


async def test_head_options_and_wrong_methods_on_every_address(door: Door) -> None:
    session = await door.session()
    taken: dict[str, set[str]] = {}
    for route in ROUTES:
        methods = taken.setdefault(route.path, {"OPTIONS"})
        methods |= {"GET", "HEAD"} if route.method == "GET" else {route.method}
    for path, methods in taken.items():
        url = path.replace("{session_id}", session.rpartition("/")[2])
        url = re.sub(r"\{\w+\}", "1", url)
        options = await door("OPTIONS", url)
        assert options.status_code == 204
        assert set(options.headers["allow"].split(", ")) == methods
        for method in {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "TRACE"} - methods:
            refused = await door(method, url)
            assert refused.status_code == 405, (method, url)
            assert set(refused.headers["allow"].split(", ")) == methods
        if "HEAD" in methods:
            got, head = await door("GET", url), await door("HEAD", url)
            assert head.status_code == got.status_code
            assert head.headers["content-type"] == got.headers["content-type"]


@pytest.mark.parametrize(
    "query",
    [
        "limit=0",
        "limit=1001",
        "limit=-1",
        "limit=1.5",
        "limit=",
        "limit=99999999999999999999999999",
        "limit=1&limit=2",
        "order=up",
        "lmit=1",
        "after=x",
        "after=null",
        "include_retracted=yes",
        "run_id=%FF",
        "metadata.x=1",
        "&&&",
        "run_id",
    ],
)
async def test_a_wrong_query_is_named_and_never_corrected(door: Door, query: str) -> None:
    session = await door.session()
    answer = await door("GET", f"{session}/messages?{query}")
    assert (answer.status_code, problem_of(answer)["code"]) == (422, "invalid_input")
    assert "parameter" in problem_of(answer)["errors"][0]


async def test_requests_are_counted_per_principal() -> None:
    async with open_door(requests_per_second=0.1, burst=3) as door:
        first = await door("GET", "/v1/sessions")
        assert first.headers["ratelimit"].startswith('"requests";r=2;t=')
        for _ in range(2):
            assert (await door("GET", "/v1/sessions")).status_code == 200
        limited = await door("GET", "/v1/sessions")
        assert (limited.status_code, problem_of(limited)["retryable"]) == (429, True)
        assert 1 <= int(limited.headers["retry-after"]) <= 10
        assert limited.headers["ratelimit-policy"] == '"requests";q=3;w=30'
        assert (await door("GET", "/v1/sessions", who="bob")).status_code == 200
        assert (await door("GET", "/v1/sessions", who=None)).status_code == 401
        assert (await door("GET", "/livez", who=None)).status_code == 200


async def test_a_request_keeps_the_id_that_it_came_with(door: Door) -> None:
    given = await door("GET", "/nothing", headers={"X-Request-Id": "trace-1.2_3"})
    assert problem_of(given)["request_id"] == "trace-1.2_3"
    for wrong in ("", "a b", "x" * 65, "{}"):
        answer = await door("GET", "/nothing", headers={"X-Request-Id": wrong})
        assert problem_of(answer)["request_id"].startswith("req_")


async def test_a_refusal_is_a_figure_and_a_fault_is_in_the_log(
    door: Door, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = await door.session()
    assert (await door("PATCH", session, json={"title": "t", "expected_version": 7})).status_code == 409
    assert caplog.text == ""
    assert 'satchel_conflicts_total{code="version_conflict"} 1.0' in (await door("GET", "/metrics", who=None)).text

    async def broken(*arguments: object, **options: object) -> None:
        raise RuntimeError("SELECT secret FROM /var/lib/satchel.db")

    monkeypatch.setattr(door.store.store, "events", broken)
    fault = await door("GET", f"{session}/messages")
    problem = problem_of(fault)
    assert (fault.status_code, problem["code"]) == (500, "internal_error")
    assert "SELECT" not in fault.text
    assert "SELECT secret" in caplog.text
    assert problem["request_id"] in caplog.text


async def test_metrics_are_for_this_machine_and_for_admins() -> None:
    async with open_door(metrics_need_key=True) as door:
        assert (await door("GET", "/metrics", who=None)).status_code == 401
        assert (await door("GET", "/metrics")).status_code == 403
        assert "satchel_requests_total" in (await door("GET", "/metrics", who="admin")).text
    async with open_door() as door:
        assert (await door("GET", "/metrics", who=None)).status_code == 200
        assert (await door("GET", "/metrics", who=None, headers={"X-Forwarded-For": "1.2.3.4"})).status_code == 401


async def test_readiness_says_what_is_wrong(door: Door) -> None:
    assert (await door("GET", "/readyz", who=None)).json()["status"] == "ready"
    door.service.drain()
    draining = await door("GET", "/readyz", who=None)
    assert (draining.status_code, draining.json()["checks"]["draining"]) == (503, True)
    assert (await door("GET", "/livez", who=None)).status_code == 200
    await door.store.close()
    assert (await door("GET", "/readyz", who=None)).json()["checks"]["store"] == "store_misused"


@pytest.mark.parametrize("status", ["closed", "Closed", "CLOSED"])
async def test_a_status_is_taken_whatever_its_case(door: Door, status: str) -> None:
    session = await door.session()
    await door("POST", f"{session}/close")
    found = await door("GET", "/v1/sessions", params={"status": status})
    assert [item["status"] for item in found.json()["items"]] == ["CLOSED"]
    runs = await door("GET", f"{session}/runs", params={"status": "failed"})
    assert (runs.status_code, runs.json()["items"]) == (200, [])


async def test_what_is_deleted_is_in_no_list_and_says_so(door: Door) -> None:
    refused = await door("GET", "/v1/sessions", params={"status": "DELETED"})
    (place,) = problem_of(refused)["errors"]
    assert (refused.status_code, place["parameter"]) == (422, "status")
    assert place["detail"] == "must be one of ACTIVE, CLOSED, EXPIRED (what is deleted is in no list)"
