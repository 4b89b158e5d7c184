"""``sessions delete``: one session, or all that are chosen."""

from __future__ import annotations

from satchel import Session, SessionDeleted, SessionManager
from satchel.cli import documents, flags, output, sentences
from satchel.cli.asking import can_ask, says_yes
from satchel.cli.choosing import Chosen, delete_many, line
from satchel.cli.failures import ConfirmationNeeded, FlagRefused, NotConfirmed
from satchel.cli.lifecycle import print_status
from satchel.cli.naming import chosen_session
from satchel.cli.progress import waiting
from satchel.cli.store import opened, run_async
from satchel.cli.typed import is_typed
from satchel.http.settings import duration


def delete_sessions(
    session_id: flags.MaybeSessionId = None,
    /,
    *,
    where: flags.Where,
    external_id: flags.ExternalId = None,
    status: flags.Status = None,
    before: flags.Before = None,
    older_than: flags.OlderThan = None,
    all_sessions: flags.EverySession = False,
    dry_run: flags.DryRun = False,
    yes: flags.Yes = False,
    reason: flags.Reason = "",
    expected_version: flags.ExpectedVersion = None,
    json: flags.Json = False,
) -> None:
    """Delete a session and erase what it holds, or all sessions that --user, --status, --before and --older-than choose
    together. There is no way back, and an id is never used again.

    Shows what would go, and asks on a terminal; elsewhere --yes says yes. Of many, one that changed since it was listed is
    left. Prints the new status; deleting twice is fine.
    """
    _check_choice(
        session_id if external_id is None else external_id,
        where=where,
        filters={"--status": status, "--before": before, "--older-than": older_than, "--all": all_sessions or None},
        expected_version=expected_version,
    )
    if session_id is not None or external_id is not None:
        run_async(
            _delete_one(where, session_id, external_id, reason, expected_version, yes=yes, dry_run=dry_run, json=json)
        )
        return
    lasting = None if older_than is None else duration(older_than, field="--older-than")
    if older_than is not None and lasting is None:
        raise FlagRefused("--older-than never chooses nothing; --all chooses all")
    chosen = Chosen(status=status, before=before, older_than=lasting)
    run_async(delete_many(where, chosen, reason, yes=yes, dry_run=dry_run, json=json))


def _check_choice(
    session_id: str | None, *, where: flags.Where, filters: dict[str, object], expected_version: int | None
) -> None:
    """Either a session or a choice. A choice that stands in variables alone is none: an empty SESSION_ID in a script must not
    come to mean everybody's sessions. Raises FlagRefused."""
    given = [name for name, value in filters.items() if value is not None]
    if session_id is not None:
        named = [name for name in given if is_typed(name)]
        if named:
            raise FlagRefused(f"{' and '.join(named)} choose among many sessions; SESSION_ID names one")
        return
    if expected_version is not None:
        raise FlagRefused("--expected-version is of one session: name it")
    if where.user is not None:
        given.append("--user")
    if not any(is_typed(name) for name in given):
        raise FlagRefused(
            "name a SESSION_ID, or choose by --user, --status, --before, --older-than, or --all"
            " (on the command line: a variable alone begins no deletion)"
        )


# -- one


async def _delete_one(
    where: flags.Where,
    named: str | None,
    external_id: str | None,
    reason: str,
    expected_version: int | None,
    *,
    yes: bool,
    dry_run: bool,
    json: bool,
) -> None:
    if not yes and not dry_run and not can_ask():
        raise ConfirmationNeeded
    async with opened(where) as (sessions, _):
        session_id = await chosen_session(sessions, named, external_id)
        if dry_run:
            _print_one(await sessions.get_session(session_id, include=()), json=json)
            return
        if not yes:
            await _confirm(sessions, session_id)
        with waiting(f"erasing {session_id}"):
            session = await sessions.delete_session(session_id, reason=reason, expected_version=expected_version)
    print_status(session, json=json)


def _print_one(session: Session, *, json: bool) -> None:
    if json:
        output.write_json({"would_delete": 1, "sessions": [documents.brief(session)]})
    else:
        output.write_text(f"would delete {line(session)}")


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
    if not says_yes("Delete it for ever? [y/N] "):
        raise NotConfirmed(session_id)
