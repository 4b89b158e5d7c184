"""The session's log: read, followed, and made into what a model sees."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Literal, overload

from satchel.access import checked_flag, checked_position, checked_whole
from satchel.context import DIGEST_CALLS, DIGEST_RUNS, Context, build_context
from satchel.domain.event import Event, EventKind
from satchel.domain.page import Page
from satchel.domain.stream import TextDelta, TextPosition
from satchel.errors import InvalidInput, ResyncRequired
from satchel.follow import Follower, R
from satchel.sessions.pages import read_events
from satchel.sessions.reading import SessionReading
from satchel.sessions.run_view import read_for_run
from satchel.store import Snapshot


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
        """Every event after ``after`` (None: from when the first is asked for), in order, as they come; with ``run_id`` those of one run, until
        it has ended. A follower that starts again after the last ``seq`` it saw loses and repeats nothing. Ends with
        SessionDeleted when the session is deleted. Raises ResyncRequired if what was seen is not in the log: ``after`` lies behind its
        end, or a failover of a store without ``prefix_after_failover`` took back what it had acknowledged to nobody.

        With ``text`` also what is being said, as TextDelta objects between the events: each is stored, and comes before the
        event of its message, which holds the whole text (``event.streamed`` is the deltas' ``message``). Who starts again is given what is
        still streaming from its beginning, or of one message from ``position``, the last delta's.
        """
        if after is not None:
            checked_whole(after, field="after")
        checked_flag(text, field="text")
        if position is not None:
            checked_position(position)
            if not text:
                raise InvalidInput("needs text=True", field="position")
        ref = self._access.ref(session_id)

        async def read(fetch: Callable[[], Awaitable[R]]) -> R:
            page, _ = await self._access.read(ref, fetch)
            return page

        if after is None:
            session = await self.get_session(session_id, include=())
            after = session.last_seq
        if run_id is not None:
            run = await self._runs.get_run(session_id, run_id)
            # Behind its end there may be more of it, a retraction say: what waits there for the end waits for ever.
            if run.is_terminal and not await self._has_end(session_id, run_id, after=after):
                session = await self.get_session(session_id, include=())
                if after > session.last_seq:  # what came is not what became of the run
                    raise ResyncRequired(session_id=session_id, after=after, last_seq=session.last_seq)
                return
        follower = Follower(self._access.store, ref, read, after=after, run_id=run_id, text=text, position=position)
        async for item in follower.follow():
            yield item

    async def _has_end(self, session_id: str, run_id: str, *, after: int) -> bool:
        page = await self.events(session_id, after=after, run_id=run_id, kind="run_ended", limit=1)
        return bool(page.items)

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
