"""Lists of sessions: the store filters by owner, status and time; title and metadata are looked at page by page."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import TypeVar

import msgspec

from satchel.domain.canonical import canonical
from satchel.domain.clock import to_datetime
from satchel.domain.page import Page, decode_cursor, encode_cursor
from satchel.domain.principal import Principal
from satchel.domain.record import SessionStatus
from satchel.domain.session import Session, session_from
from satchel.domain.spelling import as_written
from satchel.store import ListedSession, Store

SCANNED = 1000  # sessions that one call looks at
# How long a commit may take from its clock to being seen: a list is read again from this long before its last reading.
LATE = timedelta(minutes=1)

T = TypeVar("T")

# A page: of what changed from an instant on, behind a cursor.
List = Callable[[datetime | None, str | None], Awaitable[Page[Session]]]

_encode = msgspec.json.Encoder().encode
_LEFT_OUT = "session %r cannot be read, and is in no list"
_log = logging.getLogger("satchel.listing")


class Filters(msgspec.Struct, frozen=True, kw_only=True):
    tenant_id: str
    user_id: str | None
    status: SessionStatus | None
    updated_from: int | None
    updated_before: int | None
    metadata: bytes | None
    title: str | None

    @property
    def needs_scan(self) -> bool:
        return self.metadata is not None or self.title is not None

    def matches(self, listed: ListedSession) -> bool:
        if self.title is not None and self.title.casefold() not in listed.record.title.casefold():
            return False
        if self.metadata is None:
            return True
        held = as_written(listed.metadata) if listed.metadata else {}
        wanted = as_written(self.metadata)
        return all(name in held and canonical(held[name]) == canonical(value) for name, value in wanted.items())


def _shown(listed: ListedSession, filters: Filters, now: int) -> Session | None:
    """None: it is not asked for; or it is there, and makes no sense (a time in no calendar, say)."""
    try:
        if not filters.matches(listed):
            return None
        return session_from(listed.record, now=now, working_memory=None, metadata=listed.metadata)
    except (ValueError, TypeError, AttributeError, OverflowError):
        _log.error(_LEFT_OUT, listed.record.session_id)
        return None


async def list_page(store: Store, filters: Filters, *, side: str, limit: int, cursor: str | None) -> Page[Session]:
    """Newest ``updated_at`` first. A session that cannot be read is left out, and named in the log ``satchel.listing``; asked
    for by its id it is StoreCorrupt. Raises InvalidCursor when the cursor is of another list, or another caller's."""
    parts = ("sessions", side, _encode(filters).decode())
    after: tuple[int, str] | None = None
    if cursor is not None:
        updated_at, session_id = decode_cursor(cursor, *parts, shape=(int, str))
        after = (int(updated_at), str(session_id))
    found: list[Session] = []
    seen = 0
    while True:
        size = min(100, SCANNED - seen) if filters.needs_scan else limit + 1
        page = await store.sessions(
            filters.tenant_id,
            user_id=filters.user_id,
            status=filters.status,
            updated_from=filters.updated_from,
            updated_before=filters.updated_before,
            after=after,
            limit=size,
        )
        for session_id in page.unreadable:
            _log.error(_LEFT_OUT, session_id)
        for listed in page.sessions:
            if len(found) == limit:
                return Page(tuple(found), None if after is None else encode_cursor(after, *parts))
            after = (listed.record.updated_at, listed.record.session_id)
            seen += 1
            shown = _shown(listed, filters, page.clock.now)
            if shown is not None:
                found.append(shown)
        if len(page.sessions) < size:
            return Page(tuple(found))
        if seen >= SCANNED:
            return Page(tuple(found), None if after is None else encode_cursor(after, *parts))


async def whole_list(
    store: Store,
    principal: Principal,
    listed: List,
    kept: Callable[[Session], T],
    *,
    updated_after: datetime | None = None,
) -> list[T]:
    """What is to be ``kept`` of every session that is in the list throughout, once, as it was when it was first met. A list goes by the last change:
    what changes while it is read moves to the part that was read already. So what changed since the reading began is read
    again, until that finds nothing new."""
    found: dict[str, T] = {}
    since = updated_after
    while True:
        known = len(found)
        earliest = await _now(store, principal)
        cursor: str | None = None
        while True:
            page = await listed(since, cursor)
            for session in page.items:
                found.setdefault(session.session_id, kept(session))
            cursor = page.next
            if cursor is None:
                break
            earliest = min(earliest, await _now(store, principal))  # a clock may be set back
        if (known and len(found) == known) or not found:
            return list(found.values())
        since = earliest - LATE if updated_after is None else max(updated_after, earliest - LATE)


async def _now(store: Store, principal: Principal) -> datetime:
    page = await store.sessions(principal.tenant_id, user_id=principal.user_id, limit=1)
    return to_datetime(page.clock.now)
