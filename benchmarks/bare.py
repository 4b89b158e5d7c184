"""The limit for writes: a bare ``sqlite3`` loop that writes the same rows into the same tables and indexes."""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path
from typing import Any

from satchel.domain.idempotency import decode_answer
from satchel.stores.sqlite.queries import SQL

Row = tuple[Any, ...]

_EVENT = (
    "tenant_id, session_id, seq, version, kind, at, actor, run_id, refers_to, status, format, outcome, tokens, streamed,"
    " metadata, body"
)


class Rows:
    """The rows that satchel wrote, in the order in which it wrote them: for each append a session's update, an event and
    an idempotency record."""

    def __init__(self, path: Path, *, first_seq: int = 1) -> None:
        connection = connect(path)
        self.sessions: dict[Row, Row] = {
            (row[0], row[1]): (*row[:2], *row[2:])
            for row in connection.execute(
                "SELECT tenant_id, session_id, updated_at, turns_at, revision, record FROM sessions"
            )
        }
        self.events: list[Row] = connection.execute(
            f"SELECT {_EVENT} FROM events WHERE seq >= ? ORDER BY at, session_id, seq",  # noqa: S608  # fixed columns
            (first_seq,),
        ).fetchall()
        keys = connection.execute(
            "SELECT tenant_id, session_id, key_hash, fingerprint, answer FROM idempotency_records"
        )
        # Each beside its own event: in another order they would meet other pages than ours did.
        by_event = {(row[0], row[1], decode_answer(row[4]).seqs[0]): row for row in keys if decode_answer(row[4]).seqs}
        self.keys = [by_event[event[:3]] for event in self.events]
        connection.close()


def connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA secure_delete = ON")
    return connection


def empty_copy(path: Path, copy: Path) -> None:
    """The same schema and the same sessions, nothing else."""
    source = connect(path)
    target = connect(copy)
    source.backup(target)
    for table in ("events", "idempotency_records"):
        target.execute(f"DELETE FROM {table}")  # noqa: S608  # fixed names
    target.execute("VACUUM")
    target.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    source.close()
    target.close()


def write(path: Path, rows: Rows, *, per_commit: int) -> float:
    """Seconds for all rows, ``per_commit`` appends in one transaction."""
    connection = connect(path)
    update, insert_event, insert_key = SQL["update_session"], SQL["insert_event"], SQL["insert_idempotency_record"]
    began = time.perf_counter()
    for start in range(0, len(rows.events), per_commit):
        connection.execute("BEGIN IMMEDIATE")
        for event, key in zip(
            rows.events[start : start + per_commit], rows.keys[start : start + per_commit], strict=True
        ):
            session = rows.sessions[event[:2]]
            # updated_at moves with each append, as it does for us.
            connection.execute(update, (session[0], session[1], event[5], session[3], event[3], session[5]))
            connection.execute(insert_event, event)
            connection.execute(insert_key, key)
        connection.execute("COMMIT")
    took = time.perf_counter() - began
    connection.close()
    return took
