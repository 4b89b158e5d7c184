"""``sessions close`` and ``restore``."""

from __future__ import annotations

import sys
from typing import Literal

from satchel import Session
from satchel.cli import documents, flags, output
from satchel.cli.naming import chosen_session
from satchel.cli.store import opened, run_async


def close_session(
    session_id: flags.SessionOrNone = None,
    /,
    *,
    where: flags.Where,
    external_id: flags.ExternalId = None,
    reason: flags.Reason = "",
    expected_version: flags.ExpectedVersion = None,
    json: flags.Json = False,
) -> None:
    """Close a session: it stays readable and takes no writes until it is restored.

    Open runs are cancelled, open tool calls end as unknown. Prints the new status; closing twice is fine.
    """
    run_async(_move("close", where, session_id, external_id, reason, expected_version, json=json))


def restore_session(
    session_id: flags.SessionOrNone = None,
    /,
    *,
    where: flags.Where,
    external_id: flags.ExternalId = None,
    reason: flags.Reason = "",
    expected_version: flags.ExpectedVersion = None,
    json: flags.Json = False,
) -> None:
    """Restore a closed or expired session: ACTIVE again, with everything in it.

    Prints the new status; restoring an ACTIVE session is fine. What was deleted cannot be restored.
    """
    run_async(_move("restore", where, session_id, external_id, reason, expected_version, json=json))


async def _move(
    verb: Literal["close", "restore"],
    where: flags.Where,
    session_id: str | None,
    external_id: str | None,
    reason: str,
    expected_version: int | None,
    *,
    json: bool,
) -> None:
    async with opened(where) as (sessions, _):
        session_id = await chosen_session(sessions, session_id, external_id)
        move = sessions.close_session if verb == "close" else sessions.restore_session
        session = await move(session_id, reason=reason, expected_version=expected_version)
    print_status(session, json=json)


def print_status(session: Session, *, json: bool) -> None:
    if json:
        output.write_json(documents.brief(session))
    else:
        sys.stdout.write(f"{session.session_id}  {session.status}\n")
