"""Sessions on the move: fork, export, import."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Iterable
from datetime import datetime
from typing import Any

from satchel.access import checked_items, checked_whole
from satchel.domain.imported import Imported
from satchel.domain.json_text import kind_of
from satchel.domain.page import Page
from satchel.domain.rights import new_owner
from satchel.domain.session import Session
from satchel.errors import InvalidInput
from satchel.sessions.reading import SessionReading


class SessionTransfer(SessionReading):
    """Methods that copy sessions, within a store and from one to another."""

    async def fork_session(
        self,
        session_id: str,
        *,
        up_to: int | None = None,
        title: str | None = None,
        expected_version: int | None = None,
        idempotency_key: str | None = None,
    ) -> Session:
        """A new session of the same owner that begins as a copy of this one, up to and including the event ``up_to`` (None:
        all). The copy ends before a call whose result it would cut off. Seqs, versions, times and actors come over; open
        runs arrive as failed, open calls as unknown.

        Title and metadata are those of the point, as far as the log holds them: what a later change covered is left out.
        ``expected_version`` is that of the session that is copied. The key is the new session's: a repeated call finds it.
        """
        if up_to is not None:
            checked_whole(up_to, field="up_to")
        if title is not None:
            self._check_title(title)
        if expected_version is not None:
            checked_whole(expected_version, field="expected_version")
        from satchel import (
            transfer,  # with what it needs it is a tenth of the package's import: only who moves sessions pays
        )

        new_id, replayed = await transfer.fork(
            self._access,
            session_id,
            up_to=up_to,
            title=title,
            expected_version=expected_version,
            idempotency_key=idempotency_key,
        )
        return await self._as_it_is(new_id, replayed=replayed)

    async def export_sessions(self, session_ids: Iterable[str] | None = None, **filters: Any) -> AsyncIterator[bytes]:
        """JSON lines, one conversation a line, in pieces to be joined: ``source``, ``licence``, ``session_id`` (the
        external_id where there is one), ``messages``, ``meta``, and a ``satchel`` object with what these five lack.
        Without ids: all that :meth:`list_sessions` would show with these ``filters``; each that is there throughout comes
        once, whatever changes meanwhile, and one that is deleted meanwhile is left out. A line is handed out when all of it
        was read, so it is whole or not there."""
        from satchel import transfer

        if session_ids is not None:
            checked_items(session_ids, field="session_ids")
            for session_id in session_ids:
                async for piece in transfer.export_session(self._access, session_id):
                    yield piece
            return
        wanted = {"limit": self._access.limits.page} | filters
        updated_after = wanted.pop("updated_after", None)

        async def listed(since: datetime | None, cursor: str | None) -> Page[Session]:
            return await self.list_sessions(updated_after=since, cursor=cursor, **wanted)

        async for piece in transfer.export_all(self._access, listed, updated_after=updated_after):
            yield piece

    async def import_sessions(
        self, lines: Iterable[bytes | str] | AsyncIterable[bytes | str], *, user_id: str | None = None
    ) -> AsyncIterator[Imported]:
        """Conversations from JSON lines, as :meth:`export_sessions` writes them or with the five keys alone; gives one
        report for each as it is done.

        A conversation gets an id of ours and keeps its own as ``external_id``. It is written in chunks, and seen by
        nobody before its last. The same call goes on where a former one stopped, and leaves out what is there already
        (``exists``: a session of this name that begins with all of the line). Where another session of its owner has the name, or less is
        in it than in the line, that is left and reported as ``differs``. All become ``user_id``'s (left out: one's own); a principal that
        is not bound to one user may leave it out for lines that name their owner: then each stays its owner's.

        A line is checked as strictly as what anybody writes, and whole, before anything of it is stored. Actors are kept as
        given for an admin and the operator; what anybody else brings was done by this principal. Raises InvalidInput,
        LimitExceeded, NotAllowed, naming the line and the place in it; the lines before it are imported.
        """
        from satchel import transfer

        checked_items(lines, field="lines")
        bound = self._access.principal.user_id
        owner = (
            None
            if user_id is None and bound is None
            else new_owner(self._access.principal, user_id, limits=self._access.limits)
        )
        async for imported in transfer.import_sessions(self._access, _texts(lines), owner=owner):
            yield imported


async def _texts(lines: Iterable[bytes | str] | AsyncIterable[bytes | str]) -> AsyncIterator[bytes | str]:
    """Raises InvalidInput at the first line that is no text."""
    if isinstance(lines, AsyncIterable):
        async for line in lines:
            yield _text(line)
    else:
        for line in lines:
            yield _text(line)


def _text(line: object) -> bytes | str:
    if not isinstance(line, (bytes, str)):
        raise InvalidInput(f"must be texts, not {kind_of(line)}", field="lines")
    return line
