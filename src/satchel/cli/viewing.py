"""``sessions list`` and ``sessions show``."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from satchel import Message, Page, Session, SessionManager
from satchel.cli import documents, flags, output
from satchel.cli.failures import FlagRefused
from satchel.cli.flag import as_metadata
from satchel.cli.naming import chosen_session
from satchel.cli.store import opened, run_async, where_flags

NEWEST = 50  # messages that a Session holds
PAGE = 500


def list_sessions(
    *,
    where: flags.Where,
    status: flags.Status = None,
    title: flags.Title = None,
    metadata: flags.Metadata = (),
    updated_after: flags.UpdatedAfter = None,
    updated_before: flags.UpdatedBefore = None,
    limit: flags.Limit = 50,
    cursor: flags.Cursor = None,
    all_pages: flags.AllPages = False,
    json: flags.Json = False,
) -> None:
    """List sessions, newest change first.

    With --json one document: `items`, and `next`, the cursor of the page after this one (null: there is none).
    """
    if all_pages and cursor is not None:
        raise FlagRefused("--all begins at the beginning: leave --cursor out")
    filters: dict[str, Any] = {
        "status": status,
        "title": title,
        "metadata": as_metadata(metadata),
        "updated_after": updated_after,
        "updated_before": updated_before,
    }
    run_async(_list(where, filters, limit, cursor, all_pages=all_pages, json=json))


async def _list(
    where: flags.Where, filters: dict[str, Any], limit: int, cursor: str | None, *, all_pages: bool, json: bool
) -> None:
    async with opened(where) as (sessions, _):
        pages = _pages(sessions, filters, limit, cursor, all_pages=all_pages)
        await (_print_json(pages) if json else _print_table(pages, with_user=where.user is None))


async def _pages(
    sessions: SessionManager, filters: dict[str, Any], limit: int, cursor: str | None, *, all_pages: bool
) -> AsyncIterator[Page[Session]]:
    """The page that was asked for, or all. A page may be short of its limit and still have a next."""
    while True:
        page = await sessions.list_sessions(limit=limit, cursor=cursor, **filters)
        yield page
        cursor = page.next
        if cursor is None or not all_pages:
            return


async def _print_json(pages: AsyncIterator[Page[Session]]) -> None:
    """One document, written page by page: a long list is never held as a whole."""
    following: str | None = None
    separator = b'{"items":['
    async for page in pages:
        for session in page.items:
            output.write_bytes(separator + output.encoded(documents.brief(session)))
            separator = b","
        following = page.next
    opening = b"" if separator == b"," else separator
    output.write_bytes(opening + b'],"next":' + output.encoded(following) + b"}\n")


async def _print_table(pages: AsyncIterator[Page[Session]], *, with_user: bool) -> None:
    from satchel.cli.tables import SessionTable

    table = SessionTable(output.console(), with_user=with_user)
    found = 0
    following: str | None = None
    async for page in pages:
        found += len(page.items)
        table.print(page.items)
        following = page.next
    if following is not None:
        output.say(f"there are more: --cursor {following}  (or --all)")
    elif not found:
        output.say("no sessions")


def show_session(
    session_id: flags.SessionOrNone = None,
    /,
    *,
    where: flags.Where,
    external_id: flags.ExternalId = None,
    messages: flags.Messages = 10,
    json: flags.Json = False,
) -> None:
    """Show a session: its facts, working memory, runs and what they ask, tool history and newest messages.

    With --json one document, with the newest 50 runs and tool calls.
    """
    if messages < 0:
        raise FlagRefused("--messages must be a whole number from 0")
    run_async(_show(where, session_id, external_id, messages, json=json))


async def _show(where: flags.Where, named: str | None, external_id: str | None, wanted: int, *, json: bool) -> None:
    async with opened(where) as (sessions, _):
        session_id = await chosen_session(sessions, named, external_id)
        session = await sessions.get_session(session_id)
        shown = tuple(session.messages)[-wanted:] if wanted else ()
        if wanted > NEWEST and session.message_count > NEWEST:
            shown = await _newest_messages(sessions, session_id, wanted)
    if json:
        output.write_json(documents.whole(session, shown))
        return
    from satchel.cli.tables import print_session

    print_session(output.console(), session, shown, where_flags(where))


async def _newest_messages(sessions: SessionManager, session_id: str, wanted: int) -> tuple[Message, ...]:
    """In order, oldest first."""
    found: list[Message] = []
    cursor: str | None = None
    while len(found) < wanted:
        page = await sessions.messages(session_id, order="desc", limit=min(PAGE, wanted - len(found)), cursor=cursor)
        found.extend(page.items)
        cursor = page.next
        if cursor is None:
            break
    return tuple(reversed(found))
