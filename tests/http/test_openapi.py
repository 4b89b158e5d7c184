"""The OpenAPI document is true: every route is in it, and what is sent fits the shapes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from satchel.http import shapes
from satchel.http.openapi import document_bytes
from satchel.http.table import ROUTES
from tests.http.door import Door, problem_of

ROOT = Path(__file__).parent.parent.parent


def test_the_document_in_the_docs_is_that_of_today() -> None:
    assert (ROOT / "docs" / "openapi.json").read_bytes() == document_bytes(), "make openapi writes it anew"


async def test_it_is_served_as_it_is_written(door: Door) -> None:
    assert (await door("GET", "/openapi.json")).content == document_bytes()


def test_every_route_is_in_it_with_all_that_it_takes() -> None:
    document = msgspec.json.decode(document_bytes())
    for route in ROUTES:
        operation = document["paths"][route.path][route.method.lower()]
        assert operation["operationId"] == route.name
        named = {parameter["name"] for parameter in operation.get("parameters", ())}
        assert set(route.path_parameters) <= named
        assert {one.name for one in route.query if one.kind != "members"} <= named
        assert ("Idempotency-Key" in named) == route.is_write
    assert len({route.name for route in ROUTES}) == len(ROUTES)


def test_every_reference_leads_somewhere() -> None:
    document = msgspec.json.decode(document_bytes())
    for reference in _references(document):
        _, _, kind, name = reference.split("/")
        assert name in document["components"][kind]


def _references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, inner in value.items():
            if key == "$ref":
                yield inner
            else:
                yield from _references(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _references(inner)


async def test_what_is_sent_fits_its_shape(door: Door) -> None:
    agent = "adas agent"
    session = await door.session(agent, title="t", metadata={"a": 1})
    await door.say(session, "hello", agent)
    other = await door("POST", f"{session}/messages", who=agent, json={"message": [1], "format": "x.y"})
    call = await door("POST", f"{session}/tool-history", who=agent, json={"tool": "t", "error": "x"})
    run = await door("POST", f"{session}/runs", who=agent, json={"input": "go", "start": True})
    headers = {"Satchel-Attempt": f"{run.json()['run_id']}/1"}
    memory = await door(
        "PATCH", f"{session}/working-memory", who=agent, headers=headers, json={"set": {"notes": {"n": 1}}}
    )
    failed = await door(
        "POST", f"{session}/runs/{run.json()['run_id']}/fail", who=agent, headers=headers, json={"code": "c"}
    )
    fork = await door("POST", f"{session}/fork", who=agent)
    chat = await door("POST", "/v1/chat", who=agent, json={"message": "hi", "wait": 0})
    several = await door("POST", f"{session}/messages", who=agent, json={"messages": [{"content": "x"}]})
    for answer, shape in (
        (await door("GET", session), shapes.Session),
        (fork, shapes.Session),
        (await door("GET", "/v1/sessions"), shapes.SessionPage),
        (await door("GET", f"{session}/messages"), shapes.MessagePage),
        (other, shapes.Message),
        (several, shapes.Messages),
        (await door("GET", f"{session}/tool-history"), shapes.ToolCallPage),
        (call, shapes.ToolCall),
        (await door("GET", f"{session}/runs"), shapes.RunPage),
        (failed, shapes.Run),
        (memory, shapes.WorkingMemory),
        (await door("GET", f"{session}/events"), shapes.EventPage),
        (await door("GET", f"{session}/context"), shapes.Context),
        (chat, shapes.ChatAnswer),
        (await door("GET", "/readyz"), shapes.Ready),
    ):
        assert answer.status_code < 300, answer.text
        msgspec.json.decode(answer.content, type=shape)
    refused = await door("GET", f"{session}/messages?limit=0")
    problem_of(refused)
    msgspec.json.decode(refused.content, type=shapes.Problem)


@pytest.mark.parametrize("route", [route for route in ROUTES if route.body is not None], ids=lambda route: route.name)
async def test_a_body_that_fits_no_shape_is_refused(door: Door, route: Any) -> None:
    session = await door.session("admin", user_id="ada")
    url = route.path.replace("{session_id}", session.rpartition("/")[2]).replace("{run_id}", "run_x")
    url = url.replace("{message_id}", "msg_1").replace("{seq}", "1")
    for body in (b'{"nonsense":1}', b"[]", b"null", b'"x"', b"{", b"", b'{"a":1,"a":2}', b"\xff"):
        answer = await door(route.method, url, who="admin", content=body, headers={"Satchel-Attempt": "run_x/1"})
        assert answer.status_code < 500, answer.text
        if body == b"" and not route.body_required:
            continue
        assert answer.status_code in (400, 404, 422), (body, answer.text)
