"""The session's log: read, followed, and made into what a model sees."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Literal

from satchel.access import checked_whole
from satchel.context import DIGEST_CALLS, DIGEST_RUNS, Context, build_context
from satchel.domain.event import Event, EventKind
from satchel.domain.page import Page
from satchel.follow import follow
from satchel.sessions.pages import read_events
from satchel.sessions.reading import SessionReading
from satchel.sessions.run_view import read_for_run
from satchel.store import EventPage, Snapshot


class SessionLog(SessionReading):
    """Methods that read a session's events in order."""

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
        """The session's log, with ``after < seq < before``, in order or newest first."""
        page, more = await read_events(
            self._access,
            session_id,
            list_name="events",
            kind=kind,
            after=after,
            before=before,
            run_id=run_id,
            with_retracted=True,
            order=order,
            limit=limit,
            cursor=cursor,
        )
        return Page(page.events[:limit], more)

    async def follow(
        self, session_id: str, *, after: int | None = None, run_id: str | None = None
    ) -> AsyncIterator[Event]:
        """Every event after ``after`` (None: from when the first is asked for), in order, as they come; with ``run_id`` those of one run, until
        it has ended. A follower that starts again after the last ``seq`` it saw loses and repeats nothing. Ends with
        SessionDeleted when the session is deleted."""
        if after is not None:
            checked_whole(after, field="after")
        ref = self._access.ref(session_id)

        async def read(fetch: Callable[[], Awaitable[EventPage]]) -> EventPage:
            page, _ = await self._access.read(ref, fetch)
            return page

        if after is None:
            session = await self.get_session(session_id, include=())
            after = session.last_seq
        if run_id is not None:
            run = await self._runs.get_run(session_id, run_id)
            if run.is_terminal and not (await self.events(session_id, after=after, run_id=run_id, limit=1)).items:
                return
        async for event in follow(self._access.store, ref, read, after=after, run_id=run_id):
            yield event

    async def context(
        self, session_id: str, *, max_tokens: int = 8000, run_number: int | None = None, run_id: str | None = None
    ) -> Context:
        """What a model should see, in at most ``max_tokens``: the instructions at the beginning of the session, the newest
        messages that fit, pairs of call and result whole, and before the newest message of the user the session state (memory,
        runs, tool calls) as data. ``messages`` go straight into a chat API, whatever was stored. Once not everything fits,
        results of more than a quarter of the window are shown with their middle left out, and the newest message with as much
        of it as fits.

        Messages that nobody will answer any more (their run was cancelled before it began) are left out, and what child runs
        said; with ``run_number`` also what belongs to later runs. With ``run_id`` it is what that run sees: nothing of later
        runs, and the working memory under the run's own layer; a child run sees its own messages behind the instructions
        and the session state, and nothing else of the conversation. Raises RunNotFound.
        """
        checked_whole(max_tokens, field="max_tokens", least=1)
        if run_number is not None:
            checked_whole(run_number, field="run_number")
        ref = self._access.ref(session_id)

        async def fetch() -> Snapshot:
            return await self._access.store.snapshot(ref, metadata=False, tool_calls=DIGEST_CALLS, runs=DIGEST_RUNS)

        if run_id is None:
            page, _ = await self._access.read(ref, fetch)
            return await build_context(
                self._access.store,
                ref,
                page,
                max_tokens=max_tokens,
                run_number=run_number,
                count=self._access.count_tokens,
            )
        page, _, run = await read_for_run(self._access, ref, run_id, fetch)
        return await build_context(
            self._access.store,
            ref,
            page,
            max_tokens=max_tokens,
            run_number=run.row.number,
            reader=run.row,
            layer=run.layer,
            count=self._access.count_tokens,
        )
