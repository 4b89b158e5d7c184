"""A page of a list, read on past what cannot be read in it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from satchel.errors import StoreCorrupt
from satchel.store import ListedSession, SessionPage
from satchel.stores.sql.loading import ReadClock
from satchel.stores.sql.rows import record_of, shown_metadata

K = TypeVar("K", str, bytes)  # a session id, as the driver gives it

# Those after a place in the list, at most so many: the time that holds for them, and id, updated_at, record and metadata of each.
ReadList = Callable[[tuple[int, K], int], Awaitable[tuple[int, Sequence[Any]]]]


async def listed(read: ReadList[K], read_clock: ReadClock, position: tuple[int, K], limit: int) -> SessionPage:
    sessions: list[ListedSession] = []
    unreadable: list[str] = []
    while True:
        asked = max(0, limit - len(sessions))
        now, found = await read(position, asked)
        for key, updated_at, record, metadata in found:
            position = (updated_at, key)
            session_id = key.decode(errors="replace") if isinstance(key, bytes) else key
            try:
                sessions.append(ListedSession(record=record_of(session_id, record), metadata=shown_metadata(metadata)))
            except StoreCorrupt:
                unreadable.append(session_id)
        if len(found) < asked or len(sessions) >= limit:
            return SessionPage(clock=read_clock(now), sessions=tuple(sessions), unreadable=tuple(unreadable))
