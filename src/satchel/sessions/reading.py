"""A session as it is now, and lists of sessions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Literal

import msgspec

from satchel.access import access_to, behind_a_write, checked_choice, checked_instant, checked_items, checked_limit
from satchel.domain.ids import checked_id, checked_line
from satchel.domain.json_text import kind_of
from satchel.domain.message import Message, admit_metadata
from satchel.domain.page import Page
from satchel.domain.policy import Policy
from satchel.domain.principal import Principal
from satchel.domain.record import LISTED, NOT_LISTED, SessionStatus
from satchel.domain.run import Run
from satchel.domain.session import Session, session_from
from satchel.domain.tool_call import ToolCall
from satchel.errors import InvalidInput
from satchel.listing import Filters, list_page
from satchel.opened import OpenStore
from satchel.runs import RunManager
from satchel.store import Snapshot

NEWEST = 50
Include = Literal["messages", "tool_history", "runs"]
INCLUDES: tuple[Include, ...] = ("messages", "tool_history", "runs")


class SessionReading:
    """What every other part of the manager stands on: who asks, of which store, and the sessions this principal may see."""

    def __init__(
        self, store: OpenStore | None = None, principal: Principal | None = None, *, policy: Policy | None = None
    ) -> None:
        """``policy``: what this manager's tenant wants to differ from the store's policy, for sessions it creates."""
        self._access = access_to(store, principal, policy)
        self._runs = RunManager(self._access.opened, self._access.principal)

    @property
    def principal(self) -> Principal:
        return self._access.principal

    async def get_session(self, session_id: str, *, include: Iterable[Include] = INCLUDES) -> Session:
        """The session as it is now, with the newest 50 messages, tool calls and runs, as ``include`` says.

        Raises SessionNotFound; SessionDeleted for a tombstone of one's own.
        """
        ref = self._access.ref(session_id)
        checked_items(include, field="include")
        chosen = tuple(include)
        for name in chosen:
            checked_choice(name, INCLUDES, field="include")

        async def fetch() -> Snapshot:
            return await self._access.store.snapshot(
                ref,
                messages=NEWEST if "messages" in chosen else 0,
                tool_calls=NEWEST if "tool_history" in chosen else 0,
                runs=NEWEST if "runs" in chosen else 0,
            )

        page, record = await self._access.read(ref, fetch)
        return session_from(
            record,
            now=page.clock.now,
            working_memory=page.working_memory,
            metadata=page.metadata,
            messages=(Message.from_event(event) for event in page.messages),
            tool_history=(ToolCall.from_row(row) for row in page.tool_calls),
            runs=(Run.from_row(row, session_id=session_id) for row in page.runs),
        )

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
        """Own sessions (an unbound agent's and an admin's: the tenant's, or one ``user_id``'s), newest change first.

        ``status`` is the one that holds now (tombstones are in no list). ``updated_after`` (from it on) and ``updated_before`` bound the last change.
        ``metadata``: all these members are equal. ``title``: contains this text, whatever its case. A page can be short, or
        empty, and still have a ``next``: at most 1,000 sessions are looked at in one call.
        """
        if status is not None:
            checked_choice(status, LISTED, field="status", note=NOT_LISTED)
        if title is not None:
            self._check_title(title)
        owner = self._access.principal.user_id
        if user_id is not None:
            checked_id(user_id, field="user_id", limits=self._access.limits)
            if owner is not None and user_id != owner:
                return Page(())  # somebody else's sessions do not exist
            owner = user_id
        filters = Filters(
            tenant_id=self._access.principal.tenant_id,
            user_id=owner,
            status=status,
            updated_from=checked_instant(updated_after, field="updated_after"),
            updated_before=checked_instant(updated_before, field="updated_before"),
            metadata=None if metadata is None else admit_metadata(metadata, limits=self._access.limits),
            title=title,
        )
        checked_limit(limit, most=self._access.limits.page)
        return await list_page(
            self._access.store, filters, side=self._access.principal.side, limit=limit, cursor=cursor
        )

    async def _as_it_is(self, session_id: str, *, replayed: bool = False) -> Session:
        """Behind a write of it."""
        with behind_a_write():
            session = await self.get_session(session_id)
        return msgspec.structs.replace(session, replayed=True) if replayed else session

    def _check_title(self, title: str) -> None:
        if not isinstance(title, str):
            raise InvalidInput(f"must be text, not {kind_of(title)}", field="title")
        checked_line(title, field="title", limit=self._access.limits.title, setting="limits.title")
