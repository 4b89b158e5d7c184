"""``sessions import``."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import msgspec

from satchel import Imported, SatchelError, SessionManager
from satchel.cli import files, flags, output, sentences
from satchel.cli.failures import Failure, ImportDiffers, LineRefused
from satchel.cli.progress import Bar, bar
from satchel.cli.store import opened, run_async
from satchel.cli.visible import one_line

if TYPE_CHECKING:
    from rich.console import Console


NAMED = 5  # former owners that the last lines name; the JSON names all


class Tally:
    """What was done so far."""

    def __init__(self) -> None:
        self.imported = 0
        self.exists = 0
        self.differs = 0
        self.messages = 0
        self.former: Counter[str] = Counter()  # of the imported, by whose they were where they come from

    @property
    def read(self) -> int:
        return self.imported + self.exists + self.differs

    def add(self, one: Imported) -> None:
        if one.result == "differs":
            self.differs += 1
            return
        if one.result == "imported":
            self.imported += 1
            self.messages += one.messages
            if one.former_user_id is not None:
                self.former[one.former_user_id] += 1
        else:
            self.exists += 1

    def to_dict(self) -> dict[str, Any]:
        return {
            "imported": self.imported,
            "exists": self.exists,
            "differs": self.differs,
            "messages": self.messages,
            "former_owners": dict(self.former),
        }

    def lines(self, owner: str | None) -> Iterator[str]:
        """``owner``: for whom all were imported."""
        there = f"; {self.exists:,} {'was' if self.exists == 1 else 'were'} there already" if self.exists else ""
        left = f"; {self.differs:,} left: another session has the name" if self.differs else ""
        yield (
            f"{sentences.count(self.imported, 'conversation')} imported"
            f" ({sentences.count(self.messages, 'message')}){there}{left}"
        )
        named = self.former.most_common(NAMED)
        parts = [f"{sentences.count(number, 'session')} of {one_line(name)}" for name, number in named]
        if others := len(self.former) - len(named):
            rest = self.former.total() - sum(number for _, number in named)
            parts.append(f"{sentences.count(rest, 'session')} of {sentences.count(others, 'other user')}")
        if parts and owner is not None:
            yield (
                f"imported for {one_line(owner)}; the file says whose they were: {', '.join(parts)}"
                " (without --user each stays its owner's)"
            )


def import_sessions(file: flags.Files, /, *, whose: flags.Whose, json: flags.Json = False) -> None:
    """Import conversations from files of JSON lines.

    One conversation a line: an object with session_id and messages (OpenAI chat), and if you have them source, licence
    and meta. Lines that `satchel sessions export` wrote come back with everything the session held.

    With --user all become this user's. Without it each stays its owner's, whom exported lines name: so a backup of a whole
    tenant comes back. A line that names no owner is refused then.

    Each conversation becomes a session, whole or not at all, and keeps its session_id as external id. What is there
    already is left alone, so the same command goes on where it stopped. Where another session of the owner has the name, it
    is left too and the line is not imported (exit code 4, at the end). The first line that is wrong ends it and is named.

    Prints a line for each conversation (imported, exists or differs) and a summary, with whose the imported ones were by the
    file; with --json these are JSON lines.
    """
    run_async(_import(file, whose, json=json))


async def _import(names: tuple[str, ...], whose: flags.Whose, *, json: bool) -> None:
    total = files.check_readable(names)
    async with opened(whose, create=True, json=json) as (sessions, _):
        with bar("importing", total=total, in_bytes=True) as progress, _summed_up(whose.user, json=json) as tally:
            done = 0
            for name in names:
                done += await _import_file(sessions, name, tally, progress, done, json=json)
    if tally.differs:
        raise ImportDiffers(tally.differs)


@contextmanager
def _summed_up(owner: str | None, *, json: bool) -> Iterator[Tally]:
    """However it ends: what was imported before it is said."""
    tally = Tally()
    try:
        yield tally
    finally:
        if json:
            output.write_json({"summary": tally.to_dict()})
        else:
            for line in tally.lines(owner):
                output.console().print(line, soft_wrap=True)


async def _import_file(
    sessions: SessionManager, name: str, tally: Tally, progress: Bar, done: int, *, json: bool
) -> int:
    """How many bytes the file had."""
    paper = None if json else progress.paper()
    with files.reading(name) as lines:
        async for one in _reports(sessions, lines, name):
            tally.add(one)
            _print_report(one, files.shown_name(name), paper)
            progress.reach(done + lines.position, note=f"{tally.read:,}")
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
    left = (
        f": another session of {one_line(one.user_id)} has this name ({one.reason}); it was left" if one.reason else ""
    )
    paper.print(f"{one.result:<8}  {one.session_id}  {holds}  {one_line(one.external_id)}{left}", soft_wrap=True)
