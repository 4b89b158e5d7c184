"""The one thread that writes: each of its transactions takes its turn between the processes first."""

from __future__ import annotations

import logging
import sqlite3
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from satchel.domain.ids import SessionRef
from satchel.domain.record import SessionRecord
from satchel.domain.state import Clock, SessionState, Want
from satchel.errors import StoreError, StoreUnavailable
from satchel.store import Change, Loaded, Outcome
from satchel.stores.sqlite import schema
from satchel.stores.sqlite.applying import apply
from satchel.stores.sqlite.connection import (
    JOURNAL_LIMIT,
    PATIENCE,
    begin,
    connect,
    create_file,
    is_full,
    roll_back,
    translated,
)
from satchel.stores.sqlite.gate import Gate
from satchel.stores.sqlite.loading import load

_log = logging.getLogger("satchel.stores.sqlite")

LOOK_AT_LOG_EVERY = 256  # commits
KEPT_RECORDS = 1024

# What a change that cannot be stored raises: a constraint, a text that is no Unicode, a number beyond 64 bits, …
_BAD_CHANGE = (
    sqlite3.IntegrityError,
    sqlite3.DataError,
    sqlite3.ProgrammingError,
    sqlite3.InterfaceError,
    OverflowError,
    ValueError,
    TypeError,
)

Known = Mapping[SessionRef, SessionRecord | None]


class _Turn:
    """From the gate's opening to its closing behind us."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate

    def __enter__(self) -> float:
        deadline = time.monotonic() + PATIENCE
        self._gate.enter(deadline)
        return deadline

    def __exit__(self, *raised: object) -> None:
        self._gate.leave()


class CommitFailed(Exception):
    """COMMIT itself failed: the rows may be there."""


class _KeyMayBeThere(Exception):
    """An idempotency key that was taken for new."""


def _leaves_all(wanted: Mapping[SessionRef, Want], changes: Sequence[Change]) -> bool:
    """A record of each key that was asked for."""
    left = {(change.ref, kept.key_hash) for change in changes for kept in change.idempotency}
    for ref, want in wanted.items():
        for key in want.keys:
            if (ref, key) not in left:
                return False
    return True


class Writer:
    def __init__(
        self, path: Path, clock: Callable[[], Clock], committed: Callable[[Iterable[SessionRecord]], None]
    ) -> None:
        self._clock = clock
        self._committed = committed
        self._commits = 0
        self._log_path = path.with_name(path.name + "-wal")
        self._records: dict[SessionRef, SessionRecord] = {}  # as they are now, while nobody else commits
        self._untold: dict[SessionRef, SessionRecord] = {}
        self._data_version: int | None = None
        create_file(path)
        with translated():
            self.connection = connect(path)
            try:
                schema.prepare(self.connection)
                self.connection.execute("PRAGMA busy_timeout = 0")  # it waits at the gate, and asks again by itself
                self._gate = Gate(path)
                self._turn = _Turn(self._gate)
            except OSError as error:
                self.connection.close()
                raise StoreUnavailable(f"the lock files cannot be opened: {error.strerror}") from error
            except BaseException:
                self.connection.close()
                raise

    def close(self) -> None:
        self.connection.close()
        self._gate.close()

    def transact(
        self, wanted: Mapping[SessionRef, Want], decide: Callable[[Loaded], Sequence[Change]]
    ) -> list[Outcome]:
        with translated(), self.turn() as deadline:
            begin(self.connection, deadline)
            try:
                return self._transact(wanted, decide, look=False)
            except _KeyMayBeThere:
                begin(self.connection, deadline)
                return self._transact(wanted, decide, look=True)

    def _transact(
        self, wanted: Mapping[SessionRef, Want], decide: Callable[[Loaded], Sequence[Change]], *, look: bool
    ) -> list[Outcome]:
        """In the open transaction. Nearly every idempotency key is new, and the index on it says so when its record goes in:
        unless it is to ``look``, each is taken for new. Raises _KeyMayBeThere, and ends the transaction, when one may not be:
        it is there, or its decision left no record of it (it was refused; had it been answered before, it would not)."""
        try:
            loaded = load(self.connection, self._clock(), wanted, self._known_records(), look=look)
            # Deciding lays effects over the states: keep the records as they were.
            known = {ref: state.record for ref, state in loaded.sessions.items() if type(state) is SessionState}
            changes = decide(loaded)
            if not look and not _leaves_all(wanted, changes):
                raise _KeyMayBeThere
        except BaseException:
            roll_back(self.connection)
            raise
        return self._finish(changes, known, is_sure=look)

    def commit(self, changes: Sequence[Change]) -> list[Outcome]:
        with translated(), self.turn() as deadline:
            begin(self.connection, deadline)
            return self._finish(changes, {}, is_sure=True)

    def _known_records(self) -> dict[SessionRef, SessionRecord]:
        """In the open transaction: it holds, as long as SQLite has seen no commit but our own."""
        (found,) = self.connection.execute("PRAGMA data_version").fetchone()
        if found != self._data_version:
            self._records.clear()
            self._data_version = found
        return self._records

    def turn(self) -> _Turn:
        """Gives the instant until which a transaction may wait for SQLite's own lock."""
        return self._turn

    def _finish(self, changes: Sequence[Change], known: Known, *, is_sure: bool) -> list[Outcome]:
        """Apply and commit in the open transaction; if a change cannot be stored, each in a transaction of its own. Unless
        it ``is_sure`` that the keys are new, raises _KeyMayBeThere for that."""
        try:
            outcomes = self._apply(changes, known)
        except _BAD_CHANGE as error:
            if not is_sure and isinstance(error, sqlite3.IntegrityError):
                raise _KeyMayBeThere from None
            return [self._apply_alone(change) for change in changes]
        except CommitFailed:
            return [Outcome.UNKNOWN] * len(changes)
        self._note(changes, outcomes)
        return outcomes

    def _apply(self, changes: Sequence[Change], known: Known) -> list[Outcome]:
        connection = self.connection
        try:
            outcomes = apply(connection, changes, known, self._clock().now) if changes else []
            if Outcome.APPLIED not in outcomes:
                connection.execute("ROLLBACK")
                return outcomes
            self.commit_open()
        except BaseException:
            self._records.clear()
            roll_back(connection)
            raise
        return outcomes

    def commit_open(self) -> None:
        """The open transaction. Raises CommitFailed."""
        try:
            self.connection.execute("COMMIT")
        except sqlite3.Error as error:
            roll_back(self.connection)
            if is_full(error):  # the frames did not fit: the one that would make them count was never written
                raise
            raise CommitFailed from error
        self._commits += 1
        if self._commits % LOOK_AT_LOG_EVERY == 0 and self._log_size() > JOURNAL_LIMIT:
            self.checkpoint()  # SQLite's own checkpoints met a reader each time

    def _apply_alone(self, change: Change) -> Outcome:
        """Once a batch failed: what happens here is this change's own, and no error of it may hide the others' outcomes."""
        try:
            begin(self.connection, time.monotonic() + PATIENCE)
            (outcome,) = outcomes = self._apply([change], {})
        except CommitFailed:
            return Outcome.UNKNOWN
        except _BAD_CHANGE:
            _log.exception("a change of session %s cannot be stored", change.ref.session_id)
            return Outcome.REJECTED
        except (
            sqlite3.Error,
            StoreError,
        ):  # away, full or busy: nothing was stored, and whoever asks again will hear it
            return Outcome.STALE
        self._note([change], outcomes)
        return outcome

    def _note(self, changes: Sequence[Change], outcomes: Sequence[Outcome]) -> None:
        for change, outcome in zip(changes, outcomes, strict=True):
            if outcome is Outcome.APPLIED:
                self._untold[change.ref] = change.record

    def rest(self) -> None:
        """What can wait until a job's answer is on its way, and is done before the next: records are kept, and who waits for
        events is told."""
        untold, self._untold = self._untold, {}
        if not untold:
            return
        for ref, record in untold.items():
            self._records.pop(ref, None)  # it becomes the newest
            self._records[ref] = record
        while len(self._records) > KEPT_RECORDS:
            del self._records[next(iter(self._records))]
        self._committed(untold.values())

    def _log_size(self) -> int:
        try:
            return self._log_path.stat().st_size
        except OSError:
            return 0

    def checkpoint(self) -> bool:
        """Move the log into the database and empty its file; False when a reader is in the way."""
        try:
            (busy, _, _) = self.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        except sqlite3.OperationalError:  # a checkpoint that failed loses nothing: the log stays
            return False
        return not busy
