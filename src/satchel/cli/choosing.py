"""Deleting all sessions that somebody chose: shown first, then asked about, then done together."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal

from satchel import OpenStore, Page, Principal, Session, SessionDeleted, SessionManager
from satchel.access import Access, request
from satchel.cli import documents, flags, output, sentences
from satchel.cli.asking import can_ask, says_yes
from satchel.cli.failures import ConfirmationNeeded, NotConfirmed, NotDeleted
from satchel.cli.progress import bar, waiting
from satchel.cli.store import opened
from satchel.cli.visible import one_line, shortened
from satchel.domain.clock import to_datetime
from satchel.domain.decisions.lifecycle import DeleteSession
from satchel.domain.ids import SessionRef
from satchel.errors import NotFound, SatchelError, StoreUnavailable, VersionConflict
from satchel.listing import whole_list
from satchel.sweeper import erase_all

PAGE = 500
AT_ONCE = 32  # deletions that share a commit
SHOWN = 20  # lines of the list, before a question


@dataclass(frozen=True, kw_only=True)
class Chosen:
    """Which sessions: all of ``where`` that fit."""

    status: Literal["ACTIVE", "CLOSED", "EXPIRED"] | None
    before: datetime | None
    older_than: timedelta | None


@dataclass(kw_only=True)
class Tally:
    deleted: int = 0
    rows: int = 0
    left: int = 0  # changed since they were listed
    failed: int = 0


def line(session: Session) -> str:
    name = shortened(session.title or session.external_id or "", 40)
    return one_line(
        f"{session.session_id}  {session.status:<7}  {sentences.moment(session.updated_at)}  {session.user_id}  {name}"
    ).rstrip()


async def delete_many(where: flags.Where, chosen: Chosen, reason: str, *, yes: bool, dry_run: bool, json: bool) -> None:
    async with opened(where) as (sessions, store):
        with waiting("looking for sessions"):
            found = await _listed(sessions, store, where.tenant, chosen)
        if not json:
            _show(found)
        if dry_run or not found:
            if json:
                output.write_json(_document(found, Tally(), dry_run=dry_run))
            return
        if not yes:
            if not can_ask():
                if json:
                    output.write_json(_document(found, Tally(), dry_run=True))
                raise ConfirmationNeeded
            if not says_yes(f"Delete {sentences.count(len(found), 'session')} for ever? [y/N] "):
                raise NotConfirmed(sentences.count(len(found), "session"))
        tally = await _delete_all(sessions, store, where, found, reason)
    if json:
        output.write_json(_document(found, tally, dry_run=False))
    else:
        output.write_text(_sum(tally))
    if tally.failed:
        raise NotDeleted(tally.failed)


async def _listed(sessions: SessionManager, store: OpenStore, tenant: str, chosen: Chosen) -> list[Session]:
    """Newest change first; what changed while they were listed comes last."""
    before = chosen.before
    if chosen.older_than is not None:
        now = to_datetime((await store.store.sessions(tenant, limit=1)).clock.now)  # the store's time, not ours
        try:
            reached = now - chosen.older_than
        except OverflowError:  # before there were dates
            reached = datetime.min.replace(tzinfo=UTC)
        before = reached if before is None else min(before, reached)

    async def listed(since: datetime | None, cursor: str | None) -> Page[Session]:
        return await sessions.list_sessions(
            status=chosen.status, updated_after=since, updated_before=before, limit=PAGE, cursor=cursor
        )

    return await whole_list(store.store, sessions.principal, listed, lambda session: session)


def _show(found: Sequence[Session]) -> None:
    for session in found[:SHOWN]:
        output.write_text(line(session))
    if len(found) > SHOWN:
        output.write_text(f"… and {len(found) - SHOWN:,} more (--json --dry-run lists all)")
    users = Counter(session.user_id for session in found)
    messages = sum(session.message_count for session in found)
    output.write_text(
        f"{sentences.count(len(found), 'session')} of {sentences.count(len(users), 'user')},"
        f" {sentences.count(messages, 'message')}"
    )


def _document(found: Sequence[Session], tally: Tally, *, dry_run: bool) -> dict[str, object]:
    if dry_run:
        return {"would_delete": len(found), "sessions": [documents.brief(session) for session in found]}
    return {"deleted": tally.deleted, "left": tally.left, "failed": tally.failed, "rows_erased": tally.rows}


def _sum(tally: Tally) -> str:
    parts = [f"{sentences.count(tally.deleted, 'session')} deleted, {sentences.count(tally.rows, 'row')} erased"]
    if tally.left:
        parts.append(f"{tally.left:,} left: changed since the list was made")
    if tally.failed:
        parts.append(f"{tally.failed:,} failed")
    return "; ".join(parts)


async def _delete_all(
    sessions: SessionManager, store: OpenStore, where: flags.Where, found: Sequence[Session], reason: str
) -> Tally:
    """First all tombstones, then the rows, then the traces of all at once. What a break leaves is the sweeper's."""
    access = Access(store, Principal.operator(tenant_id=where.tenant, acting_for=where.user), store.policy)
    tally = Tally()
    gone: list[SessionRef] = []
    with bar("deleting", total=len(found)) as progress:
        for start in range(0, len(found), AT_ONCE):
            some = found[start : start + AT_ONCE]
            for session, ended in zip(
                some, await asyncio.gather(*(_bury(access, sessions, one, reason) for one in some)), strict=True
            ):
                if ended is None:
                    tally.failed += 1
                elif ended:
                    tally.deleted += 1
                    gone.append(access.ref(session.session_id))
                else:
                    tally.left += 1
            progress.reach(start + len(some))
    with waiting("erasing"):
        tally.rows = await erase_all(store, gone)
    return tally


async def _bury(access: Access, sessions: SessionManager, listed: Session, reason: str) -> bool | None:
    """False: it changed since it was listed; None: it could not be deleted."""
    version = listed.version
    while True:
        decision = DeleteSession(
            **access.common(listed.session_id, None, version, None),
            fingerprint=request("DeleteSession", reason),
            reason=reason,
        )
        try:
            await access.submit(decision)
        except VersionConflict as moved:
            if listed.status != "EXPIRED" or moved.current == version:
                return False
            # Its expiry was true in the list, and is committed only now.
            now = await sessions.get_session(listed.session_id, include=())
            if now.status != "EXPIRED" or now.version == version:
                return False
            version = now.version
        except (NotFound, SessionDeleted):
            return True  # somebody else was first
        except StoreUnavailable:
            raise
        except SatchelError as error:
            output.say(f"satchel: {listed.session_id} was not deleted: {error}")
            return None
        else:
            return True
