"""What a name costs that was deleted often: the looks at the store grow with the logarithm of the deletions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import satchel
from satchel import OpenStore, SessionManager
from satchel.testing.stage import ADA
from tests.http.door import Door, door_over

DELETIONS = 200
MOST = 2 * 8 + 6  # 200 is below 2 to the 8th: doubled, then halved, and what creates and answers


class Looks:
    """Of a store: how often it was asked."""

    def __init__(self, opened: OpenStore, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        for name in ("load", "transact", "snapshot", "sessions"):
            monkeypatch.setattr(opened.store, name, self._counted(getattr(opened.store, name)))

    def _counted(self, method: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def counted(*arguments: Any, **options: Any) -> Any:
            self.count += 1
            return await method(*arguments, **options)

        return counted


async def delete_often(sessions: SessionManager) -> None:
    for _ in range(DELETIONS):
        made = await sessions.create_session(external_id="chat")
        await sessions.delete_session(made.session_id)


async def create_over_http(door: Door) -> int:
    answer = await door("POST", "/v1/sessions", json={"external_id": "chat"})
    return answer.status_code


async def test_a_name_that_was_deleted_often_is_found_in_few_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    async with satchel.open("memory:") as opened:
        sessions = SessionManager(opened, ADA)
        await delete_often(sessions)
        looks = Looks(opened, monkeypatch)
        made = await sessions.create_session(external_id="chat")
        assert looks.count <= MOST
        looks.count = 0
        assert (await sessions.create_session(external_id="chat")).session_id == made.session_id
        assert looks.count <= MOST
        line = b"".join([piece async for piece in sessions.export_sessions([made.session_id])])
        looks.count = 0
        assert [one.result async for one in sessions.import_sessions([line])] == ["exists"]
        assert looks.count <= MOST


async def test_the_limit_of_sessions_looks_no_more_often(monkeypatch: pytest.MonkeyPatch) -> None:
    async with satchel.open("memory:") as opened, door_over(opened, sessions_per_user=1) as door:
        sessions = SessionManager(opened, ADA)
        await delete_often(sessions)
        assert await create_over_http(door) == 201
        looks = Looks(opened, monkeypatch)
        assert await create_over_http(door) == 200  # it is there: found by the limit, and by the creation
        assert looks.count <= 2 * MOST
        refused = await door("POST", "/v1/sessions", json={"external_id": "another"})
        assert refused.json()["code"] == "too_many_sessions"
