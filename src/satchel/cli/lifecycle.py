"""``sessions close``, ``restore`` and ``delete``."""

from __future__ import annotations

import sys
from typing import Literal

from satchel import Session, SessionDeleted, SessionManager
from satchel.cli import documents, flags, output, sentences
from satchel.cli.failures import ConfirmationNeeded, NotConfirmed
from satchel.cli.progress import waiting
from satchel.cli.stdin import InterruptibleStdin
from satchel.cli.store import opened, run_async


def close_session(
    session_id: flags.SessionId,
    /,
    *,
    where: flags.Where,
    reason: flags.Reason = "",
    expected_version: flags.ExpectedVersion = None,
    json: flags.Json = False,
) -> None:
    """Close a session: it stays readable and takes no writes until it is restored.

    Open runs are cancelled, open tool calls end as unknown. Prints the new status; closing twice is fine.
    """
    run_async(_move("close", where, session_id, reason, expected_version, json=json))


def restore_session(
    session_id: flags.SessionId,
    /,
    *,
    where: flags.Where,
    reason: flags.Reason = "",
    expected_version: flags.ExpectedVersion = None,
    json: flags.Json = False,
) -> None:
    """Restore a closed or expired session: ACTIVE again, with everything in it.

    Prints the new status; restoring an ACTIVE session is fine. What was deleted cannot be restored.
    """
    run_async(_move("restore", where, session_id, reason, expected_version, json=json))


async def _move(
    verb: Literal["close", "restore"],
    where: flags.Where,
    session_id: str,
    reason: str,
    expected_version: int | None,
    *,
    json: bool,
) -> None:
    async with opened(where) as (sessions, _):
        move = sessions.close_session if verb == "close" else sessions.restore_session
        session = await move(session_id, reason=reason, expected_version=expected_version)
    _print_status(session, json=json)


def delete_session(
    session_id: flags.SessionId,
    /,
    *,
    where: flags.Where,
    yes: flags.Yes = False,
    reason: flags.Reason = "",
    expected_version: flags.ExpectedVersion = None,
    json: flags.Json = False,
) -> None:
    """Delete a session and erase what it holds. There is no way back, and its id is never used again.

    Asks first on a terminal. Prints the new status; deleting twice is fine.
    """
    run_async(_delete(where, session_id, reason, expected_version, yes=yes, json=json))


async def _delete(
    where: flags.Where, session_id: str, reason: str, expected_version: int | None, *, yes: bool, json: bool
) -> None:
    if not yes and not _can_ask():
        raise ConfirmationNeeded
    async with opened(where) as (sessions, _):
        if not yes:
            await _confirm(sessions, session_id)
        with waiting(f"erasing {session_id}"):
            session = await sessions.delete_session(session_id, reason=reason, expected_version=expected_version)
    _print_status(session, json=json)


def _can_ask() -> bool:
    return output.is_terminal(sys.stdin) and output.is_terminal(sys.stderr)


async def _confirm(sessions: SessionManager, session_id: str) -> None:
    """Raises NotConfirmed unless the answer is yes. A session that is deleted already needs no question."""
    try:
        session = await sessions.get_session(session_id, include=())
    except SessionDeleted:
        return
    output.say(f"{session.session_id}  {session.title or session.external_id or '(no title)'}")
    output.say(
        f"of {session.user_id}, {session.status}, {sentences.count(session.message_count, 'message')},"
        f" {sentences.count(session.run_count, 'run')}"
    )
    sys.stderr.write("Delete it for ever? [y/N] ")
    sys.stderr.flush()
    with InterruptibleStdin() as stdin:
        answer = stdin.readline()
    if answer.strip().lower() not in (b"y", b"yes"):
        raise NotConfirmed(session_id)


def _print_status(session: Session, *, json: bool) -> None:
    if json:
        output.write_json(documents.brief(session))
    else:
        sys.stdout.write(f"{session.session_id}  {session.status}\n")
