"""A write that is done and cannot be shown is never told as one that was not done."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from satchel import OpenStore, Principal, Session, SessionManager
from satchel.errors import OutcomeUnknown, StoreUnavailable
from satchel.store import Change, Outcome, Snapshot
from satchel.stores.memory import MemoryStore
from satchel.testing.wrappers import StoreWrapper

ADMIN = Principal.admin("root", tenant_id="acme")
Write = Callable[[SessionManager, str], Awaitable[Session]]
WRITES: dict[str, Write] = {
    "close": lambda sessions, sid: sessions.close_session(sid, idempotency_key="k"),
    "expire": lambda sessions, sid: sessions.expire_session(sid, idempotency_key="k"),
    "update": lambda sessions, sid: sessions.update_session(sid, title="t", idempotency_key="k"),
    "transfer": lambda sessions, sid: sessions.transfer_session(sid, "bob", idempotency_key="k"),
    "fork": lambda sessions, sid: sessions.fork_session(sid, idempotency_key="k"),
}


class GoesAway(StoreWrapper):
    """Behind the next commit it answers no reads, until it ``is_back``."""

    armed = False
    is_away = False

    async def commit(self, changes: Any) -> list[Outcome]:
        kept: list[Change] = list(changes)
        outcomes = await self.inner.commit(kept)
        self.is_away = self.armed
        return outcomes

    async def erase(self, *arguments: Any, **options: Any) -> int:
        if self.is_away:
            raise StoreUnavailable("the cable was pulled")
        return await self.inner.erase(*arguments, **options)

    async def snapshot(self, *arguments: Any, **options: Any) -> Snapshot:
        if self.is_away:
            raise StoreUnavailable("the cable was pulled")
        return await self.inner.snapshot(*arguments, **options)


@pytest.mark.parametrize("verb", WRITES)
async def test_a_write_that_is_done_and_cannot_be_read_again_is_not_told_as_refused(verb: str) -> None:
    store = GoesAway(MemoryStore())
    async with OpenStore(store) as opened:
        sessions = SessionManager(opened, ADMIN)
        sid = (await sessions.create_session(user_id="ada")).session_id
        await sessions.append_message(sid, {"role": "user", "content": "x"})
        store.armed = True
        with pytest.raises(OutcomeUnknown):
            await WRITES[verb](sessions, sid)
        store.armed = store.is_away = False
        assert (await WRITES[verb](sessions, sid)).replayed


async def test_a_deletion_that_is_done_and_not_erased_yet_is_not_told_as_refused() -> None:
    store = GoesAway(MemoryStore())
    async with OpenStore(store) as opened:
        sessions = SessionManager(opened, ADMIN)
        sid = (await sessions.create_session(user_id="ada")).session_id
        await sessions.append_message(sid, {"role": "user", "content": "x"})
        store.armed = True
        with pytest.raises(OutcomeUnknown):
            await sessions.delete_session(sid)
        store.armed = store.is_away = False
        assert (await sessions.delete_session(sid)).status == "DELETED"
