"""Changes as statements: of a batch one for each table that it touches."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from satchel.domain.ids import SessionRef
from satchel.store import Change
from satchel.stores.mysql.connection import Rows
from satchel.stores.mysql.literals import Part, row
from satchel.stores.mysql.loading import in_lots
from satchel.stores.mysql.queries import SQL
from satchel.stores.mysql.rows import session_row
from satchel.stores.sql.rows import call_row, event_row, idempotency_row, piece_row, run_row
from satchel.stores.sql.writing import Basis

Key = tuple[bytes, bytes]

_ROWS_AT_ONCE = 4 << 20  # bytes of rows in one statement; a larger row goes alone


class Question(NamedTuple):
    """Before anything is written: locks the sessions in order, looks for keys that must not be there, and at the clock."""

    statements: list[bytes]
    locks: int  # how many of these lock
    keys: int  # how many look for keys


def question(changes: Sequence[Change], basis: Basis) -> Question:
    """Raises ValueError, TypeError, AttributeError of a change that holds no rows."""
    refs = sorted(key_of(change.ref) for change in changes)
    asked: list[tuple[object, ...]] = []
    for change in changes:
        asked += [(*change.ref, kept.key_hash) for kept in change.idempotency]
        if change.ref in basis.unseen:
            asked += [(*change.ref, key_hash) for key_hash in basis.unseen[change.ref].keys]
    locks = [SQL["lock"](lot) for lot in in_lots(refs)]
    keys = [SQL["find_keys"](lot) for lot in in_lots(asked)]
    return Question([*locks, *keys, SQL["clock"]()], len(locks), len(keys))


def lock(refs: Iterable[SessionRef]) -> list[bytes]:
    """Raises UnicodeEncodeError."""
    return [SQL["lock"](lot) for lot in in_lots(sorted(key_of(ref) for ref in refs))]


def key_of(ref: SessionRef) -> Key:
    return ref.tenant_id.encode(), ref.session_id.encode()


def applicable(
    changes: Sequence[Change], asked: Question, found: Sequence[Rows], now: int | None
) -> tuple[list[bool], int]:
    """Which of the changes may be written, and the clock; ``now`` where it is not the server's."""
    revisions: dict[Key, int] = {
        (tenant_id, session_id): revision for rows in found[: asked.locks] for tenant_id, session_id, revision in rows
    }
    known: set[Key] = {(row[0], row[1]) for rows in found[asked.locks : asked.locks + asked.keys] for row in rows}
    ((server_now,),) = found[-1]
    at = server_now if now is None else now
    may: list[bool] = []
    for change in changes:
        key = key_of(change.ref)
        may.append(
            revisions.get(key) == change.base
            and key not in known
            and (change.not_after is None or change.not_after > at)
        )
    return may, server_now


class Statements:
    """The rows of all tables, as literals."""

    def __init__(self) -> None:
        self._lists: dict[str, list[bytes]] = {name: [] for name in _TABLES}
        self._before: list[bytes] = []

    def add(self, change: Change) -> None:
        """Raises ValueError, TypeError, AttributeError of a change that holds no rows."""
        ref = change.ref
        lists = self._lists
        lists["insert_sessions" if change.base is None else "replace_sessions"].append(row(session_row(change.record)))
        for kept in change.idempotency:
            lists["insert_keys"].append(row((*ref, *idempotency_row(kept))))
        for event in change.events:
            lists["insert_events"].append(row((*ref, *event_row(event))))
            if event.kind == "message_retracted" and event.refers_to is not None:
                lists["insert_retractions"].append(row((*ref, event.refers_to, event.seq)))
        lists["replace_tool_calls"] += [row((*ref, *call_row(call))) for call in change.calls]
        lists["replace_runs"] += [row((*ref, *run_row(run))) for run in change.runs]
        lists["insert_partials"] += [row((*ref, *piece_row(piece))) for piece in change.partials]
        self._before += [SQL["drop_partials"](*ref, *ended) for ended in change.ended_streams]
        for name, body in (("working_memory", change.working_memory), ("metadata", change.metadata)):
            if body:
                lists[f"replace_{name}"].append(row((*ref, body.decode())))
            elif body is not None:
                self._before.append(SQL[f"drop_{name}"](*ref))

    def all(self) -> list[bytes]:
        return [
            *self._before,
            *(SQL[name](Part(b",".join(lot))) for name, rows in self._lists.items() for lot in _lots(rows)),
        ]


_TABLES = (
    "insert_sessions",
    "replace_sessions",
    "insert_keys",
    "insert_events",
    "insert_retractions",
    "replace_tool_calls",
    "replace_runs",
    "insert_partials",
    "replace_working_memory",
    "replace_metadata",
)


def _lots(rows: list[bytes]) -> list[list[bytes]]:
    lots: list[list[bytes]] = []
    size = _ROWS_AT_ONCE
    for one in rows:
        if size + len(one) > _ROWS_AT_ONCE:
            lots.append([])
            size = 0
        lots[-1].append(one)
        size += len(one)
    return lots
