"""``satchel tail``."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable

from satchel import Event, RunManager, SessionManager, TextDelta
from satchel.cli import documents, flags, output
from satchel.cli.failures import FlagRefused
from satchel.cli.naming import chosen_session
from satchel.cli.store import opened, run_async

PAGE = 500


def tail_session(
    session_id: flags.SessionOrNone = None,
    /,
    *,
    where: flags.Where,
    external_id: flags.ExternalId = None,
    after: flags.After = None,
    from_start: flags.FromStart = False,
    follow: flags.Follow = True,
    run_id: flags.OfRun = None,
    text: flags.StreamedText = False,
    json: flags.Json = False,
) -> None:
    """Follow a session's log, line by line, as it grows.

    Shows what happens from now on; with --all or --after also what was before. --no-follow prints what is there, from the
    beginning, and ends. A line begins with its seq: to go on later without a gap, give the last one to --after.

    Ctrl-C ends it with exit code 0. It also ends with the run of --run, and with code 4 when the session is deleted.
    With --json each event is a JSON line. With --text what an agent is saying is shown as it comes, before the line of its
    message; as JSON lines of kind text_delta.
    """
    if from_start and after is not None:
        raise FlagRefused("--all begins at the beginning: leave --after out")
    if after is not None and after < 0:
        raise FlagRefused("--after must be a seq, or 0")
    if text and not follow:
        raise FlagRefused("--text shows what is still being said: leave --no-follow out")
    start = 0 if from_start else after
    if not follow:
        run_async(_tail(where, session_id, external_id, start, run_id, follow=False, text=False, json=json))
        return
    with contextlib.suppress(KeyboardInterrupt):
        run_async(_tail(where, session_id, external_id, start, run_id, follow=True, text=text, json=json))


async def _tail(
    where: flags.Where,
    named: str | None,
    external_id: str | None,
    start: int | None,
    run_id: str | None,
    *,
    follow: bool,
    text: bool,
    json: bool,
) -> None:
    show = _as_json if json else _as_lines()
    async with opened(where) as (sessions, store):
        session_id = await chosen_session(sessions, named, external_id)
        if run_id is not None:
            run = await RunManager(store, sessions.principal).get_run(session_id, run_id)
            if follow and start is None and run.is_terminal:
                output.say(f"run {run_id} has ended already ({run.status}); --all shows its events")
        if follow:
            items = sessions.follow(session_id, after=start, run_id=run_id, text=text)
        else:
            items = _there(sessions, session_id, start or 0, run_id)
        is_empty = True
        async for item in items:
            show(item)
            output.flush()
            is_empty = False
        if is_empty and not follow and not json:
            output.say(_nothing(session_id, start or 0, run_id))


def _nothing(session_id: str, after: int, run_id: str | None) -> str:
    of_run = "" if run_id is None else f" of run {run_id}"
    return f"no events{of_run} in {session_id}" + (f" behind seq {after}" if after else "")


async def _there(
    sessions: SessionManager, session_id: str, after: int, run_id: str | None
) -> AsyncIterator[Event | TextDelta]:
    """What is in the log, and no more."""
    cursor: str | None = None
    while True:
        page = await sessions.events(session_id, after=after, run_id=run_id, limit=PAGE, cursor=cursor)
        for event in page.items:
            yield event
        cursor = page.next
        if cursor is None:
            return


def _as_json(item: Event | TextDelta) -> None:
    output.write_json(item.to_dict() if isinstance(item, TextDelta) else documents.event_line(item))


def _as_lines() -> Callable[[Event | TextDelta], None]:
    from satchel.cli.tables import EventLines

    return EventLines(output.console()).print
