"""The session's log, over HTTP: read, followed, and made into what a model sees."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Literal, overload

from satchel.access import checked_choice, checked_filters, checked_flag, checked_position, checked_whole
from satchel.client.following import Following
from satchel.client.pages import page_query
from satchel.client.reading import RemoteReading, path_of
from satchel.client.snapshots import context_from, event_from, page_from
from satchel.context import Context
from satchel.domain.event import KINDS, Event, EventKind
from satchel.domain.page import Page
from satchel.domain.stream import TextDelta, TextPosition
from satchel.errors import InvalidInput


class RemoteLog(RemoteReading):
    """See satchel.sessions.log.SessionLog."""

    async def events(
        self,
        session_id: str,
        *,
        after: int = 0,
        before: int | None = None,
        kind: EventKind | None = None,
        run_id: str | None = None,
        order: Literal["asc", "desc"] = "asc",
        limit: int = 100,
        cursor: str | None = None,
    ) -> Page[Event]:
        """See satchel.SessionManager.events."""
        if kind is not None:
            checked_choice(kind, KINDS, field="kind")
        query = page_query(self, after, before, run_id, order, limit, cursor) | {"kind": kind}
        path = path_of(session_id) + "/events"
        return page_from(
            (await self._server.read(path, query=query, about={"session_id": session_id})).body, event_from
        )

    @overload
    def follow(
        self, session_id: str, *, after: int | None = None, run_id: str | None = None, text: Literal[False] = False
    ) -> AsyncIterator[Event]: ...

    @overload
    def follow(
        self,
        session_id: str,
        *,
        after: int | None = None,
        run_id: str | None = None,
        text: bool,
        position: TextPosition | None = None,
    ) -> AsyncIterator[Event | TextDelta]: ...

    async def follow(
        self,
        session_id: str,
        *,
        after: int | None = None,
        run_id: str | None = None,
        text: bool = False,
        position: TextPosition | None = None,
    ) -> AsyncIterator[Event | TextDelta]:
        """See satchel.SessionManager.follow. A connection that is cut, and a service that starts again, go unnoticed: it
        goes on where it was. Raises StoreUnavailable once the service was away for a minute (or the connection's ``patience``,
        if that is more)."""
        if after is not None:
            checked_whole(after, field="after")
        checked_flag(text, field="text")
        if position is not None:
            checked_position(position)
            if not text:
                raise InvalidInput("needs text=True", field="position")
        path = path_of(session_id) + "/events"
        checked_filters(self._server.limits, run_id=run_id)
        if after is None:
            after = (await self.get_session(session_id, include=())).last_seq
        following = Following(self._server, session_id, path, after=after, run_id=run_id, text=text, position=position)
        async for item in following.follow():
            yield item

    async def context(
        self, session_id: str, *, max_tokens: int = 8000, run_number: int | None = None, run_id: str | None = None
    ) -> Context:
        """See satchel.SessionManager.context."""
        checked_whole(max_tokens, field="max_tokens", least=1)
        if run_number is not None:
            checked_whole(run_number, field="run_number")
        checked_filters(self._server.limits, run_id=run_id)
        query = {"max_tokens": max_tokens, "run_number": run_number, "run_id": run_id}
        about = {"session_id": session_id, "run_id": run_id}
        return context_from((await self._server.read(path_of(session_id) + "/context", query=query, about=about)).body)

    async def _something_new(self, session_id: str, after: int, timeout: float) -> None:
        """Until there is an event after ``after``, or for ``timeout`` seconds."""

        async def first() -> None:
            async for _ in self.follow(session_id, after=after):
                return

        waiting = asyncio.ensure_future(first())
        try:
            await asyncio.wait({waiting}, timeout=timeout)
        finally:
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
