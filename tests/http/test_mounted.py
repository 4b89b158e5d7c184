"""The service inside another application, with that application's identities."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

import satchel
from satchel import Principal
from satchel.errors import Unauthenticated
from satchel.http.app import make_app
from tests.http.plain import NO_CERTIFICATES


async def whoever(request: Any) -> Principal:
    """An application knows its users by a cookie, say."""
    name = request.cookies.get("user")
    if not name:
        raise Unauthenticated("no cookie")
    return Principal.user(name, tenant_id="acme")


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    async with satchel.open("memory:") as store:
        app = FastAPI()

        @app.get("/own")
        async def own() -> dict[str, str]:
            return {"mine": "yes"}

        app.mount("/memory", make_app(store, principal_of=whoever))
        transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
        async with httpx.AsyncClient(verify=NO_CERTIFICATES, transport=transport, base_url="http://app") as made:
            yield made


async def test_it_serves_under_its_mount_whom_the_application_knows(client: httpx.AsyncClient) -> None:
    assert (await client.get("/own")).json() == {"mine": "yes"}
    assert (await client.get("/memory/livez")).json() == {"status": "live"}
    assert (await client.get("/memory/v1/sessions")).status_code == 401

    client.cookies.set("user", "ada")
    session = (await client.post("/memory/v1/sessions", json={"title": "mine"})).json()
    assert (session["tenant_id"], session["user_id"]) == ("acme", "ada")
    url = f"/memory/v1/sessions/{session['session_id']}"
    assert (await client.post(f"{url}/messages", json={"content": "hi"})).status_code == 201
    assert (await client.get(url)).json()["message_count"] == 1
    assert (await client.get("/memory/nothing")).json()["code"] == "path_not_found"

    client.cookies.set("user", "bob")
    assert (await client.get(url)).status_code == 404


async def test_what_is_made_under_a_mount_is_where_it_says(client: httpx.AsyncClient) -> None:
    client.cookies.set("user", "ada")
    made = await client.post("/memory/v1/sessions", json={})
    url = made.headers["location"]
    forked = await client.post(f"{url}/fork")
    added = await client.post(f"{url}/runs", json={"input": "hi"})
    said = await client.post("/memory/v1/chat", json={"message": "hi", "agent": "shop", "wait": 0})
    for answer in (made, forked, added, said):
        assert answer.headers["location"].startswith("/memory/v1/sessions/sess_")
        assert (await client.get(answer.headers["location"])).status_code == 200


async def test_a_hook_that_finds_nobody_lets_nobody_in() -> None:
    async with satchel.open("memory:") as store:
        app = make_app(store, principal_of=lambda _: None)  # type: ignore[arg-type, return-value]  # wrong on purpose
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(verify=NO_CERTIFICATES, transport=transport, base_url="http://app") as client:
            assert (await client.get("/v1/sessions")).status_code == 401
