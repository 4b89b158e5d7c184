"""A session as it is now, and lists of sessions; and what every other part of the manager stands on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NoReturn

from satchel.access import checked_choice, checked_instant, checked_items, checked_limit
from satchel.client.connection import is_plain_id, part
from satchel.client.snapshots import page_from, session_from_json
from satchel.domain.canonical import canonical
from satchel.domain.ids import checked_id, checked_line
from satchel.domain.json_text import kind_of
from satchel.domain.message import admit_metadata
from satchel.domain.page import Page
from satchel.domain.principal import Principal
from satchel.domain.record import LISTED, NOT_LISTED, SessionStatus
from satchel.domain.session import Session
from satchel.domain.spelling import as_written
from satchel.errors import InvalidCursor, InvalidInput, NotServed, SessionNotFound
from satchel.sessions.reading import INCLUDES, Include

if TYPE_CHECKING:
    from satchel.client.connection import Connection

SESSIONS = "/v1/sessions"


def path_of(session_id: str) -> str:
    """Raises InvalidInput, SessionNotFound: an id that none can have is as unknown as a wrong one."""
    if type(session_id) is not str:
        raise InvalidInput(f"must be text, not {type(session_id).__name__}", field="session_id")
    if not is_plain_id(session_id):
        raise SessionNotFound(session_id[:128].encode("ascii", "backslashreplace").decode())
    return f"{SESSIONS}/{part(session_id)}"


def who_is_calling() -> NoReturn:
    raise NotServed("say whose the key is")


class RemoteReading:
    """See satchel.sessions.reading.SessionReading."""

    _server: Connection

    @property
    def principal(self) -> Principal:
        """Raises NotServed: a service does not say to whom a key belongs."""
        who_is_calling()

    async def get_session(self, session_id: str, *, include: Iterable[Include] = INCLUDES) -> Session:
        """See satchel.SessionManager.get_session."""
        path = path_of(session_id)
        checked_items(include, field="include")
        chosen = tuple(include)
        for name in chosen:
            checked_choice(name, INCLUDES, field="include")
        query = None if chosen == INCLUDES else {"include": ",".join(chosen)}
        reply = await self._server.read(path, query=query, about={"session_id": session_id})
        return session_from_json(reply.body)

    async def list_sessions(
        self,
        *,
        status: SessionStatus | None = None,
        updated_after: datetime | None = None,
        updated_before: datetime | None = None,
        metadata: Mapping[str, Any] | None = None,
        title: str | None = None,
        user_id: str | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page[Session]:
        """See satchel.SessionManager.list_sessions."""
        limits = self._server.limits
        if status is not None:
            checked_choice(status, LISTED, field="status", note=NOT_LISTED)
        if title is not None:
            self._check_title(title)
        if user_id is not None:
            checked_id(user_id, field="user_id", limits=limits)
        checked_instant(updated_after, field="updated_after")
        checked_instant(updated_before, field="updated_before")
        checked_limit(limit, most=limits.page)
        query: dict[str, Any] = {
            "status": status,
            "updated_after": None if updated_after is None else updated_after.astimezone(UTC),
            "updated_before": None if updated_before is None else updated_before.astimezone(UTC),
            "title": title or None,  # every title contains an empty text
            "user_id": user_id,
            "limit": limit,
            "cursor": checked_cursor(cursor),
        }
        if metadata is not None:
            members = as_written(admit_metadata(metadata, limits=limits))
            query |= {f"metadata.{name}": canonical(value).decode() for name, value in members.items()}
        return page_from((await self._server.read(SESSIONS, query=query, about={})).body, session_from_json)

    def _check_title(self, title: str) -> None:
        if not isinstance(title, str):
            raise InvalidInput(f"must be text, not {kind_of(title)}", field="title")
        checked_line(title, field="title", limit=self._server.limits.title, setting="limits.title")


def checked_cursor(cursor: str | None) -> str | None:
    """Raises InvalidCursor for what cannot be one."""
    if cursor is not None and (type(cursor) is not str or not cursor or not cursor.isascii() or len(cursor) > 1024):
        raise InvalidCursor
    return cursor
