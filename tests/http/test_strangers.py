"""Every route, by everybody: owners may, strangers are told the same as of what does not exist, and change nothing."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest

from satchel.http.table import ROUTES
from satchel.stores.sqlite import SqliteStore
from satchel.testing.clock import SettableClock
from satchel.testing.stage import ADMIN, Stage, lasting
from tests.http.door import Door, door_over, problem_of
from tests.http.requests import ELSEWHERE, IN_SESSION, REQUESTS, Request, address, options, parts_of
from tests.robust.test_odd_arguments import World

ROUTES_IN_SESSION = [route for route in ROUTES if route.path.startswith(IN_SESSION)]
UNKNOWN = "sess_aaaaaaaaaaaaaaaaaaaaaaaa"
INSIDERS: dict[str, frozenset[str]] = {
    "ada": frozenset({"use"}),
    "adas agent": frozenset({"use", "work"}),
    "agent": frozenset({"use", "work"}),
    "admin": frozenset({"use", "work", "govern"}),
}
STRANGERS = ("bob", "bobs agent", "ada elsewhere", "agent elsewhere", "admin elsewhere", "agent for bob")
WITHOUT_KEY = ("keep_waiting", "renew_run", "add_text", "end_text")  # they write, and take no key
TARGETS = ("busy", "asking", "closed", "expired", "overdue", "deleted")


class Place(NamedTuple):
    """A service over a store whose time is ours, in a file that can be compared whole."""

    door: Door
    stage: Stage
    path: Path

    def whole(self) -> list[str]:
        """All that is stored, as SQL."""
        with closing(sqlite3.connect(self.path)) as connection:
            return list(connection.iterdump())

    async def ask(self, who: str | None, method: str, url: str, **sent: Any) -> httpx.Response:
        if who == "agent for bob":
            sent = sent | {"headers": sent.get("headers", {}) | {"Satchel-Acting-For": "bob"}}
            who = "agent"
        return await self.door(method, url, who=who, **sent)

    async def target(self, kind: str) -> World:
        """A session of Ada's in every state that one can be in. ``overdue``: expired, and nobody has met it since."""
        world = await World.make(self.stage, work=kind if kind == "asking" else "busy" if kind == "busy" else "none")
        manager = self.stage.sessions(ADMIN)
        if kind == "closed":
            await manager.close_session(world.session_id)
        elif kind == "expired":
            await manager.expire_session(world.session_id)
        elif kind == "deleted":
            await manager.delete_session(world.session_id)
        return world

    async def overdue(self) -> str:
        session = await self.stage.sessions(ADMIN).create_session(user_id="ada", policy=lasting(idle=60))
        self.stage.clock.pass_time(61)
        return session.session_id


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    clock = SettableClock()
    path = tmp_path / "strangers.db"
    stage = Stage(SqliteStore(path, clock=clock), clock)
    async with stage.opened, door_over(stage.opened, agents=("coding",), requests_per_second=0) as door:
        yield Place(door, stage, path)


def test_every_route_is_in_the_matrix() -> None:
    assert {route.name for route in ROUTES_IN_SESSION} <= set(REQUESTS)
    assert {route.name for route in ROUTES} - {route.name for route in ROUTES_IN_SESSION} <= ELSEWHERE


async def test_who_may_is_served_and_who_may_not_is_refused_and_changes_nothing(place: Place) -> None:
    wrong = []
    for route in ROUTES_IN_SESSION:
        request = REQUESTS[route.name]
        for who, rights in INSIDERS.items():
            world = await World.make(place.stage, work=request.work)
            parts = parts_of(request, world)
            place.stage.clock.pass_time(1)  # a renewal is seen by it
            before = place.whole()
            url = address(route, world.session_id, parts)
            answer = await place.ask(who, route.method, url, **options(request, parts))
            changed = place.whole() != before
            if request.right in rights:
                changes = (route.is_write or route.name in WITHOUT_KEY) and route.name != "restore_session"
                is_right = answer.status_code in route.answers and changed == changes
            else:
                is_right = answer.status_code == 403 and problem_of(answer)["code"] == "not_allowed" and not changed
            if not is_right:
                wrong.append((route.name, who, changed, answer.status_code, answer.text))
    assert not wrong


async def test_foreign_and_unknown_are_alike_whatever_state_it_is_in_and_nothing_changes(place: Place) -> None:
    worlds = [await place.target(kind) for kind in TARGETS if kind != "overdue"]
    targets = [(world.session_id, world) for world in worlds] + [(await place.overdue(), worlds[0])]
    before = place.whole()
    for who in STRANGERS:
        for route in ROUTES_IN_SESSION:
            request = REQUESTS[route.name]
            for method in (route.method, "HEAD") if route.method == "GET" else (route.method,):
                parts = parts_of(request, worlds[0])
                sent = options(request, parts)
                unknown = await place.ask(who, method, address(route, UNKNOWN, parts), **sent)
                if method != "HEAD":
                    assert problem_of(unknown)["code"] == "session_not_found"
                for session_id, world in targets:
                    parts = parts_of(request, world)
                    sent = options(request, parts)
                    answer = await place.ask(who, method, address(route, session_id, parts), **sent)
                    assert answer.status_code == 404, (who, route.name, answer.text)
                    assert _shown(answer) == _shown(unknown), (who, route.name)
        assert place.whole() == before, who


def _shown(answer: httpx.Response) -> tuple[int, bytes, list[tuple[str, str]]]:
    return answer.status_code, answer.content, answer.headers.multi_items()


async def test_a_stream_of_a_foreign_session_is_not_begun(place: Place) -> None:
    world = await place.target("busy")
    sse = {"Accept": "text/event-stream", "X-Request-Id": "the-same"}
    for who in STRANGERS:
        answers = [
            await place.ask(who, "GET", f"/v1/sessions/{one}/events{query}", headers=sse)
            for query in ("", f"?run_id={world.run}")
            for one in (world.session_id, UNKNOWN)
        ]
        assert answers[0].status_code == 404
        assert len({(answer.status_code, answer.content) for answer in answers}) == 1, who


async def test_no_identity_opens_nothing_and_is_told_nothing(place: Place) -> None:
    worlds = [await place.target(kind) for kind in TARGETS if kind != "overdue"]
    overdue = await place.overdue()
    before = place.whole()
    told: set[bytes] = set()
    for route in ROUTES:
        if route.is_open:
            continue
        request = REQUESTS.get(route.name, Request(body={"message": "hi"} if route.name == "chat" else None))
        for world, session_id in [*((one, one.session_id) for one in worlds), (worlds[0], overdue)]:
            parts = parts_of(request, world)
            answer = await place.ask(None, route.method, address(route, session_id, parts), **options(request, parts))
            assert answer.status_code == 401, route.name
            told.add(answer.content)
    assert len(told) == 1
    assert place.whole() == before


MALFORMED = (
    "x",
    "sess_",
    "{upper}",
    "{id}%20",
    "%20{id}",
    "{id}%00",
    "{id}%0a",
    "{id}%0d%0aSet-Cookie:%20a=b",
    "{id}%2f",
    "{id}%2F..%2F{id}",
    "{id}%2fmessages",
    "{id}%2e",
    "{id}%252f",
    "{id}%3b",
    "acme%2f{id}",
    "{id}%e2%80%8b",
    "%ff",
    "启动",
    "*",
    "%25",
    "x" * 4000,
)


async def test_a_malformed_id_is_as_unknown_as_a_wrong_one_to_everybody(place: Place) -> None:
    world = await place.target("busy")
    before = place.whole()
    for who in ("ada", "admin elsewhere"):
        for route in ROUTES_IN_SESSION:
            request = REQUESTS[route.name]
            parts = parts_of(request, world)
            sent = options(request, parts)
            unknown = await place.ask(who, route.method, address(route, UNKNOWN, parts), **sent)
            assert unknown.status_code == 404, (who, route.name)
            for wrong in MALFORMED:
                malformed = wrong.format(id=world.session_id, upper=world.session_id.upper())
                answer = await place.ask(who, route.method, address(route, malformed, parts), **sent)
                if "%2f" in wrong.lower():  # no address at all
                    assert (answer.status_code, problem_of(answer)["code"]) == (404, "path_not_found"), wrong
                else:
                    assert _shown(answer) == _shown(unknown), (who, route.name, wrong, answer.text)
    assert place.whole() == before


async def test_a_deleted_session_is_gone_for_its_own_and_unknown_to_others(place: Place) -> None:
    world = await place.target("deleted")
    before = place.whole()
    for route in ROUTES_IN_SESSION:
        request = REQUESTS[route.name]
        parts = parts_of(request, world)
        for who, rights in INSIDERS.items():
            url = address(route, world.session_id, parts)
            answer = await place.ask(who, route.method, url, **options(request, parts))
            if route.name == "delete_session":
                assert (answer.status_code, answer.json()["status"]) == (200, "DELETED")
                continue
            allowed = request.right in rights
            assert answer.status_code == (410 if allowed else 403), (who, route.name, answer.text)
            assert "hello" not in answer.text
    assert place.whole() == before


# -- what names a session, or something in it, elsewhere than in the first part of the address


async def test_what_stands_in_ones_own_session_is_all_that_can_be_named_in_it(place: Place) -> None:
    theirs = await place.target("busy")
    for who in ("bob", "bobs agent", "agent for bob", "admin elsewhere"):
        body = {"user_id": "bob"} if who == "admin elsewhere" else {}
        mine = (await place.ask(who, "POST", "/v1/sessions", json=body)).json()["session_id"]
        before = place.whole()
        for route in ROUTES_IN_SESSION:
            if not any(name in route.path_parameters for name in ("run_id", "message_id", "seq")):
                continue
            request = REQUESTS[route.name]
            foreign, unknown = parts_of(request, theirs), {"run_id": "run_x", "message_id": "msg_77", "seq": "77"}
            answers = [
                await place.ask(who, route.method, address(route, mine, parts), **options(request, parts))
                for parts in (foreign, unknown)
            ]
            assert answers[0].status_code in (403, 404, 409), (who, route.name, answers[0].text)
            if answers[0].status_code == 409:  # a fence: it says which run was named, and by whom
                assert answers[0].json()["code"] == answers[1].json()["code"] == "run_fenced"
                continue
            assert answers[0].content == answers[1].content, (who, route.name)
        for query in ("messages", "events", "tool-history", "runs"):
            name = "parent_run_id" if query == "runs" else "run_id"
            page = await place.ask(who, "GET", f"/v1/sessions/{mine}/{query}?{name}={theirs.run}")
            assert page.json() == {"items": [], "next": None}
        for query in ("context", "working-memory"):
            answer = await place.ask(who, "GET", f"/v1/sessions/{mine}/{query}?run_id={theirs.run}")
            assert (answer.status_code, problem_of(answer)["code"]) == (404, "run_not_found")
        assert place.whole() == before


async def test_chat_finds_no_foreign_session(place: Place) -> None:
    worlds = [await place.target(kind) for kind in ("busy", "closed", "deleted")]
    targets = [*(world.session_id for world in worlds), await place.overdue()]
    before = place.whole()
    for who in STRANGERS:
        for session_id in targets:
            for more in ({}, {"stream": True}, {"wait": 0}):
                answers = [
                    await place.ask(
                        who,
                        "POST",
                        "/v1/chat",
                        json={"message": "hi", "session_id": one} | more,
                        headers={"X-Request-Id": "the-same", "Idempotency-Key": "k"},
                    )
                    for one in (session_id, UNKNOWN)
                ]
                assert (answers[0].status_code, problem_of(answers[0])["code"]) == (404, "session_not_found")
                assert _shown(answers[0]) == _shown(answers[1]), who
        assert place.whole() == before, who


async def test_the_same_name_or_key_finds_everybody_a_session_of_their_own(place: Place) -> None:
    own: dict[str, tuple[str, str]] = {}
    for who in ("ada", "bob", "ada elsewhere"):
        named = await place.ask(who, "POST", "/v1/sessions", json={"external_id": "talk"})
        keyed = await place.ask(who, "POST", "/v1/sessions", headers={"Idempotency-Key": "k"})
        assert (named.status_code, keyed.status_code) == (201, 201)
        assert "idempotent-replayed" not in keyed.headers
        own[who] = named.json()["session_id"], keyed.json()["session_id"]
    assert len({one for pair in own.values() for one in pair}) == 6
    before = place.whole()
    for who, other in (("bob", "ada"), ("bobs agent", "ada"), ("agent for bob", "ada"), ("ada elsewhere", "bob")):
        for body in ({"user_id": other}, {"user_id": other, "external_id": "talk"}):
            created = await place.ask(who, "POST", "/v1/sessions", json=body)
            chat = await place.ask(who, "POST", "/v1/chat", json=body | {"message": "hi", "wait": 0})
            assert {created.status_code, chat.status_code} == {403}, (who, created.text, chat.text)
    assert place.whole() == before


async def test_lists_show_ones_own_and_no_filter_or_cursor_shows_more(place: Place) -> None:
    mine = {
        (await place.ask("ada", "POST", "/v1/sessions", json={"title": "secret"})).json()["session_id"] for _ in "abc"
    }
    cursor = (await place.ask("ada", "GET", "/v1/sessions?limit=1")).json()["next"]
    admins = (await place.ask("admin", "GET", "/v1/sessions?limit=1")).json()["next"]
    assert cursor
    assert admins
    shown = await place.ask("ada", "GET", "/v1/sessions?title=secret")
    assert {one["session_id"] for one in shown.json()["items"]} == mine
    before = place.whole()
    for who in STRANGERS:
        for query in ("", "?title=secret", "?status=ACTIVE", "?limit=1000"):
            page = await place.ask(who, "GET", f"/v1/sessions{query}")
            assert page.json() == {"items": [], "next": None}, who
        foreign = await place.ask(who, "GET", "/v1/sessions?user_id=ada")
        assert foreign.status_code == 403 or foreign.json()["items"] == [], (who, foreign.text)
        for one in (cursor, admins):
            answer = await place.ask(who, "GET", f"/v1/sessions?limit=1&cursor={one}")
            assert (answer.status_code, problem_of(answer)["code"]) == (400, "invalid_cursor"), who
    assert place.whole() == before
