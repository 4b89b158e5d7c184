"""``satchel runs``: what a session's runs do, and what they ask."""

from __future__ import annotations

import sys
from typing import Any

import msgspec

from satchel import InvalidInput, Page, Run, RunManager
from satchel.cli import flags, output
from satchel.cli.chat import answers
from satchel.cli.failures import FileUnusable
from satchel.cli.files import STDIO
from satchel.cli.naming import chosen_run, chosen_session, shifted
from satchel.cli.stdin import InterruptibleStdin
from satchel.cli.store import opened, run_async, where_flags
from satchel.domain.run import RunStatus


def list_runs(
    session_id: flags.SessionOrNone = None,
    /,
    *,
    where: flags.Where,
    external_id: flags.ExternalId = None,
    status: flags.OfRunStatus = None,
    limit: flags.RunsLimit = 50,
    cursor: flags.Cursor = None,
    json: flags.Json = False,
) -> None:
    """List a session's runs, newest first.

    With --json one document: `items`, and `next`, the cursor of the page after this one (null: there is none).
    """
    run_async(_list(where, session_id, external_id, status, limit, cursor, json=json))


async def _list(
    where: flags.Where,
    session_id: str | None,
    external_id: str | None,
    status: RunStatus | None,
    limit: int,
    cursor: str | None,
    *,
    json: bool,
) -> None:
    async with opened(where) as (sessions, store):
        chosen = await chosen_session(sessions, session_id, external_id)
        page = await RunManager(store, sessions.principal).list_runs(chosen, status=status, limit=limit, cursor=cursor)
    if json:
        output.write_json({"items": [msgspec.Raw(run.to_json()) for run in page.items], "next": page.next})
        return
    _print_page(page)


def _print_page(page: Page[Run]) -> None:
    from satchel.cli.tables import print_runs

    if page.items:
        print_runs(output.console(), page.items)
    else:
        output.say("no runs")
    if page.next is not None:
        output.say(f"there are more: --cursor {page.next}")


def show_run(
    session_id: flags.SessionOrNone = None,
    run_id: flags.RunOrNone = None,
    /,
    *,
    where: flags.Where,
    external_id: flags.ExternalId = None,
    json: flags.Json = False,
) -> None:
    """Show a run: its facts, its error, and all of what it asks. Without RUN_ID the run that has the turn, or else the newest."""
    run_async(_show(where, session_id, run_id, external_id, json=json))


async def _show(
    where: flags.Where, session_id: str | None, run_id: str | None, external_id: str | None, *, json: bool
) -> None:
    session_id, run_id = shifted(external_id, session_id, run_id)
    async with opened(where) as (sessions, store):
        chosen = await chosen_session(sessions, session_id, external_id)
        runs = RunManager(store, sessions.principal)
        if run_id is None and (await sessions.get_session(chosen, include=())).active_run_id is None:
            newest = (await runs.list_runs(chosen, limit=1)).items
            run_id = newest[0].run_id if newest else None
        run = await chosen_run(sessions, runs, chosen, run_id)
    if json:
        output.write_json(msgspec.Raw(run.to_json()))
        return
    from satchel.cli.tables import print_run

    print_run(output.console(), run, where_flags(where))


def answer_run(
    session_id: flags.SessionOrNone = None,
    answer: flags.AnswerText = None,
    /,
    *,
    where: flags.Where,
    external_id: flags.ExternalId = None,
    run_id: flags.AnsweredRun = None,
    name: flags.QuestionName = None,
    json: flags.Json = False,
) -> None:
    """Answer what a session's run asks. It goes on as soon as a worker that serves its agent takes it.

    ANSWER is typed as in `satchel chat`: text, y or n, the number of a choice, or JSON; - reads it from stdin. What is
    decided about a tool call is y, n, n REASON, or e JSON with other arguments.
    """
    run_async(_answer(where, session_id, answer, external_id, run_id, name, json=json))


async def _answer(
    where: flags.Where,
    session_id: str | None,
    text: str | None,
    external_id: str | None,
    run_id: str | None,
    name: str | None,
    *,
    json: bool,
) -> None:
    session_id, text = shifted(external_id, session_id, text)
    if text is None:
        raise InvalidInput("is required", field="ANSWER")
    if text == STDIO:
        text = _read_stdin()
    async with opened(where) as (sessions, store):
        runs = RunManager(store, sessions.principal)
        run = await chosen_run(sessions, runs, await chosen_session(sessions, session_id, external_id), run_id)
        answer: Any = text
        if run.question is not None and name in (None, run.question.name):
            try:
                answer = answers.read_answer(text, run.question.schema)
            except ValueError as wrong:
                raise InvalidInput(f"the run asks: {run.question.question} Type {wrong}", field="ANSWER") from None
            name = run.question.name  # of the question that was read: never another's that came meanwhile
        run = await runs.answer_run(run.session_id, run.run_id, answer, name=name)
    _print_status(run, json=json)


def _read_stdin() -> str:
    with InterruptibleStdin() as stdin:
        lines = []
        while line := stdin.readline():
            lines.append(line)
    try:
        return b"".join(lines).decode().strip("\r\n")
    except UnicodeDecodeError as wrong:
        raise FileUnusable("stdin", f"is not UTF-8 (byte {wrong.start})") from None


def cancel_run(
    session_id: flags.SessionOrNone = None,
    run_id: flags.RunOrNone = None,
    /,
    *,
    where: flags.Where,
    external_id: flags.ExternalId = None,
    reason: flags.CancelReason = "cancelled",
    json: flags.Json = False,
) -> None:
    """End a run that waits, at once; ask one that is RUNNING to stop. Without RUN_ID the run that has the turn.

    Prints the new status; cancelling twice is fine.
    """
    run_async(_cancel(where, session_id, run_id, external_id, reason, json=json))


async def _cancel(
    where: flags.Where,
    session_id: str | None,
    run_id: str | None,
    external_id: str | None,
    reason: str,
    *,
    json: bool,
) -> None:
    session_id, run_id = shifted(external_id, session_id, run_id)
    async with opened(where) as (sessions, store):
        runs = RunManager(store, sessions.principal)
        run = await chosen_run(sessions, runs, await chosen_session(sessions, session_id, external_id), run_id)
        run = await runs.cancel_run(run.session_id, run.run_id, reason=reason)
    _print_status(run, json=json)


def _print_status(run: Run, *, json: bool) -> None:
    if json:
        output.write_json(msgspec.Raw(run.to_json()))
        return
    asked = "  (asked to stop)" if run.cancel_requested and run.status == "RUNNING" else ""
    sys.stdout.write(f"{run.run_id}  {run.status}{asked}\n")
