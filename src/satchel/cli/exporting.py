"""``sessions export``."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import IO

from satchel import NotFound, OpenStore, Page, Session, SessionDeleted, SessionManager
from satchel.cli import files, flags, output, sentences
from satchel.cli.naming import chosen_session
from satchel.cli.progress import bar
from satchel.cli.store import opened, run_async
from satchel.cli.typed import is_typed
from satchel.listing import whole_list

PAGE = 500
HELD = 8 * 1024 * 1024  # of a line, until it is known to be whole


def export_sessions(
    session_id: flags.SessionIds = (),
    /,
    *,
    where: flags.Where,
    external_id: flags.ExternalId = None,
    output_file: flags.Output = files.STDIO,
    json: flags.Json = False,
) -> None:
    """Export sessions as JSON lines, which `satchel sessions import` reads.

    One session a line: an object with source, licence, session_id, messages (OpenAI chat, the bytes that were stored) and
    meta, and under satchel all that these lack: title, working memory, tool history, runs, times. A session that is deleted
    meanwhile is left out.
    """
    run_async(_export(session_id, external_id, where, output_file, json=json))


async def _export(
    chosen: tuple[str, ...], external_id: str | None, where: flags.Where, name: str, *, json: bool
) -> None:
    async with opened(where) as (sessions, store):
        if external_id is not None and (not chosen or is_typed("--external-id")):
            chosen = (*chosen, await chosen_session(sessions, None, external_id))
        ids = list(dict.fromkeys(chosen)) or await _all_ids(sessions, store)
        with _sink(name) as sink, bar("exporting", total=len(ids), beside_data=name == files.STDIO) as progress:
            written = 0
            for done, session_id in enumerate(ids, start=1):
                written += await _export_one(sessions, session_id, sink, must_exist=bool(chosen))
                progress.reach(done)
    if name == files.STDIO:
        if not written and not json:
            whose = f"tenant {where.tenant}" if where.user is None else f"user {where.user} in tenant {where.tenant}"
            output.say(f"no sessions of {whose}: nothing was exported")
        return
    if json:
        output.write_json({"exported": written, "output": name})
    else:
        output.say(f"{sentences.count(written, 'session')} written to {name}")


async def _all_ids(sessions: SessionManager, store: OpenStore) -> list[str]:
    async def listed(since: datetime | None, cursor: str | None) -> Page[Session]:
        return await sessions.list_sessions(updated_after=since, limit=PAGE, cursor=cursor)

    return await whole_list(store.store, sessions.principal, listed, lambda session: session.session_id)


@contextmanager
def _sink(name: str) -> Iterator[IO[bytes] | None]:
    """None is stdout."""
    if name == files.STDIO:
        yield None
        return
    with files.writing(name) as file:
        yield file


async def _export_one(sessions: SessionManager, session_id: str, sink: IO[bytes] | None, *, must_exist: bool) -> bool:
    """One whole line, or none: it leaves here when its last piece is there."""
    with tempfile.SpooledTemporaryFile(max_size=HELD) as line:
        try:
            async for piece in sessions.export_sessions([session_id]):
                line.write(piece)
        except (SessionDeleted, NotFound):
            if must_exist:
                raise
            return False
        line.seek(0)
        if sink is not None:
            shutil.copyfileobj(line, sink)
        else:
            _to_stdout(line)
    return True


def _to_stdout(line: IO[bytes]) -> None:
    if output.is_terminal(sys.stdout):
        output.write_bytes(line.read())  # whole, so that no character is cut in two on its way through the escaping
    else:
        shutil.copyfileobj(line, sys.stdout.buffer)
