"""A service in this process: its store, keys for everybody, and requests to it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx

import satchel
from satchel import OpenStore, Principal
from satchel.http.app import app_of
from satchel.http.identity import Credentials, Identity
from satchel.http.keys import KeyRing
from satchel.http.service import Service
from satchel.http.settings import ServerSettings
from tests.http.documented import check_documented
from tests.http.plain import NO_CERTIFICATES

WHO: dict[str, dict[str, Any]] = {
    "ada": {"tenant_id": "acme", "role": "user", "user_id": "ada"},
    "bob": {"tenant_id": "acme", "role": "user", "user_id": "bob"},
    "adas agent": {"tenant_id": "acme", "role": "agent", "acting_for": "ada"},
    "bobs agent": {"tenant_id": "acme", "role": "agent", "acting_for": "bob"},
    "agent": {"tenant_id": "acme", "role": "agent"},
    "admin": {"tenant_id": "acme", "role": "admin"},
    "ada elsewhere": {"tenant_id": "umbrella", "role": "user", "user_id": "ada"},
    "agent elsewhere": {"tenant_id": "umbrella", "role": "agent"},
    "admin elsewhere": {"tenant_id": "umbrella", "role": "admin"},
}


class Door:
    """``await door("POST", "/v1/sessions", who="ada", json={…})``."""

    def __init__(self, client: httpx.AsyncClient, service: Service, keys: dict[str, str], ring: KeyRing) -> None:
        self.client = client
        self.service = service
        self.keys = keys
        self.ring = ring

    @property
    def store(self) -> OpenStore:
        return self.service.store

    async def __call__(
        self, method: str, url: str, *, who: str | None = "ada", headers: dict[str, str] | None = None, **options: Any
    ) -> httpx.Response:
        sent = dict(headers or {})
        if who is not None:
            sent["Authorization"] = f"Bearer {self.keys[who]}"
        answer = await self.client.request(method, url, headers=sent, **options)
        check_documented(answer)
        return answer

    async def session(self, who: str = "ada", **fields: Any) -> str:
        """A new session's address."""
        answer = await self("POST", "/v1/sessions", who=who, json=fields)
        assert answer.status_code == 201, answer.text
        return f"/v1/sessions/{answer.json()['session_id']}"

    async def say(self, session: str, content: str, who: str = "ada") -> dict[str, Any]:
        answer = await self("POST", f"{session}/messages", who=who, json={"content": content})
        assert answer.status_code == 201, answer.text
        said: dict[str, Any] = answer.json()
        return said


@asynccontextmanager
async def open_door(
    url: str = "memory:", *, identity: Identity | None = None, agents: tuple[str, ...] = (), **settings: Any
) -> AsyncIterator[Door]:
    async with satchel.open(url) as store, door_over(store, identity=identity, agents=agents, **settings) as door:
        yield door


@asynccontextmanager
async def door_over(
    store: OpenStore, *, identity: Identity | None = None, agents: tuple[str, ...] = (), **settings: Any
) -> AsyncIterator[Door]:
    """Over a store that is open."""
    ring = KeyRing(store)
    keys = {name: await ring.create(**options) for name, options in WHO.items()}
    chosen = ServerSettings(**{"access_log": False} | settings)
    service = Service(store, identity or Credentials(ring), settings=chosen, agents=agents)
    transport = httpx.ASGITransport(app=app_of(service), raise_app_exceptions=False)
    async with httpx.AsyncClient(verify=NO_CERTIFICATES, transport=transport, base_url="http://service") as client:
        yield Door(client, service, keys, ring)


def problem_of(answer: httpx.Response) -> dict[str, Any]:
    """The problem, which is whole and says what the status line says."""
    assert answer.headers["content-type"] == "application/problem+json", answer.text
    problem: dict[str, Any] = answer.json()
    assert problem["status"] == answer.status_code
    assert problem["type"] == f"urn:satchel:problem:{problem['code']}"
    assert problem["request_id"] == answer.headers["x-request-id"]
    assert isinstance(problem["retryable"], bool)
    assert problem["title"]
    assert problem["detail"]
    return problem


def operator(tenant_id: str = "acme") -> Principal:
    return Principal.operator(tenant_id=tenant_id)
