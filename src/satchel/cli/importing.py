"""``sessions import``."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import msgspec

from satchel import Imported, SatchelError, SessionManager
from satchel.cli import files, flags, output, sentences
from satchel.cli.failures import Failure, LineRefused
from satchel.cli.progress import Bar, bar
from satchel.cli.store import opened, run_async
from satchel.cli.visible import one_line

if TYPE_CHECKING:
    from rich.console import Console


class Tally:
    """What was done so far."""

    def __init__(self) -> None:
        self.imported = 0
        self.exists = 0
        self.messages = 0

    def add(self, one: Imported) -> None:
        if one.result == "imported":
            self.imported += 1
            self.messages += one.messages
        else:
            self.exists += 1

    def to_dict(self) -> dict[str, int]:
        return {"imported": self.imported, "exists": self.exists, "messages": self.messages}

    def __str__(self) -> str:
        there = f"; {self.exists:,} were there already" if self.exists else ""
        return (
            f"{sentences.count(self.imported, 'conversation')} imported"
            f" ({sentences.count(self.messages, 'message')}){there}"
        )


def import_sessions(file: flags.Files, /, *, whose: flags.Whose, json: flags.Json = False) -> None:
    """Import conversations from files of JSON lines.

    One conversation a line: an object with session_id and messages (OpenAI chat), and if you have them source, licence
    and meta. Lines that `satchel sessions export` wrote come back with everything the session held.

    Each conversation becomes a session, whole or not at all, and keeps its session_id as external id. What is there
    already is left alone, so the same command goes on where it stopped. The first line that is wrong ends it and is named.

    Prints a line for each conversation (imported, or exists) and a summary; with --json these are JSON lines.
    """
    run_async(_import(file, whose, json=json))


async def _import(names: tuple[str, ...], whose: flags.Whose, *, json: bool) -> None:
    total = files.check_readable(names)
    async with opened(whose, create=True, json=json) as (sessions, _):
        with bar("importing", total=total, in_bytes=True) as progress, _summed_up(json=json) as tally:
            done = 0
            for name in names:
                done += await _import_file(sessions, name, tally, progress, done, json=json)


@contextmanager
def _summed_up(*, json: bool) -> Iterator[Tally]:
    """However it ends: what was imported before it is said."""
    tally = Tally()
    try:
        yield tally
    finally:
        if json:
            output.write_json({"summary": tally.to_dict()})
        else:
            output.console().print(str(tally))


async def _import_file(
    sessions: SessionManager, name: str, tally: Tally, progress: Bar, done: int, *, json: bool
) -> int:
    """How many bytes the file had."""
    paper = None if json else progress.paper()
    with files.reading(name) as lines:
        async for one in _reports(sessions, lines, name):
            tally.add(one)
            _print_report(one, files.shown_name(name), paper)
            progress.reach(done + lines.position, note=f"{tally.imported + tally.exists:,}")
        return lines.position


async def _reports(sessions: SessionManager, lines: files.Lines, name: str) -> AsyncIterator[Imported]:
    try:
        async for one in sessions.import_sessions(lines):
            yield one
    except Failure:
        raise
    except SatchelError as refused:
        raise LineRefused(name=files.shown_name(name), line=lines.number, cause=refused) from refused


def _print_report(one: Imported, name: str, paper: Console | None) -> None:
    if paper is None:
        output.write_json({"file": name} | msgspec.to_builtins(one))
        output.flush()
        return
    holds = f"{sentences.count(one.messages, 'message'):>14}"
    paper.print(f"{one.result:<8}  {one.session_id}  {holds}  {one_line(one.external_id)}", soft_wrap=True)
