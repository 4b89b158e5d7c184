"""Which session is meant, and which run of it."""

from __future__ import annotations

from satchel import Run, RunManager, SessionManager, SessionNotFound
from satchel.cli.failures import FlagRefused, NoOpenRun
from satchel.cli.typed import is_typed

PAGE = 500


async def chosen_session(sessions: SessionManager, session_id: str | None, external_id: str | None) -> str:
    """Its id, also where the caller knows it by a name of their own. Raises FlagRefused, SessionNotFound."""
    if session_id is not None and external_id is not None and is_typed("--external-id"):
        raise FlagRefused("SESSION_ID and --external-id do not go together")
    if session_id is not None:
        return session_id
    if external_id is None:
        raise FlagRefused("SESSION_ID (or --external-id) is required")
    found: list[tuple[str, str]] = []
    cursor: str | None = None
    while True:
        page = await sessions.list_sessions(limit=PAGE, cursor=cursor)
        found += [(one.session_id, one.user_id) for one in page.items if one.external_id == external_id]
        cursor = page.next
        if cursor is None:
            break
    if not found:
        raise SessionNotFound(external_id)
    if len(found) > 1:
        owners = ", ".join(sorted(user for _, user in found)[:5])
        raise FlagRefused(f"several users have a session called {external_id!r} ({owners}); name one with --user")
    return found[0][0]


def shifted(external_id: str | None, first: str | None, second: str | None) -> tuple[str | None, str | None]:
    """What stands behind the session where --external-id names the session, and what would be its id is left out."""
    return (None, first) if external_id is not None and second is None else (first, second)


async def chosen_run(sessions: SessionManager, runs: RunManager, session_id: str, run_id: str | None) -> Run:
    """The run of that id, or the one that has the turn. Raises NoOpenRun, RunNotFound."""
    if run_id is None:
        run_id = (await sessions.get_session(session_id, include=())).active_run_id
        if run_id is None:
            raise NoOpenRun(session_id)
    return await runs.get_run(session_id, run_id)
