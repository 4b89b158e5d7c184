"""Who waits for a session's next event: own commits wake them at once, other processes' commits are looked for."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sqlite3
import threading
from collections.abc import Callable, Iterable

from satchel.domain.ids import SessionRef
from satchel.domain.record import SessionRecord
from satchel.errors import InvalidInput
from satchel.stores.sqlite.connection import UNBINDABLE
from satchel.stores.sqlite.queries import SQL

PERIOD = 0.02  # seconds between two looks
END = 2**63 - 1  # beyond every seq: who waits for a tombstone hears of the end

_log = logging.getLogger("satchel.stores.sqlite")


class Waiter:
    __slots__ = ("_after", "_revision", "future", "loop")

    def __init__(self, after: int, revision: int | None) -> None:
        self._after = after
        self._revision = revision
        self.loop = asyncio.get_running_loop()
        self.future: asyncio.Future[None] = self.loop.create_future()

    def is_behind(self, seq: int, revision: int) -> bool:
        return seq > self._after or (self._revision is not None and revision != self._revision)


def wake(waiters: Iterable[Waiter]) -> None:
    """From any thread. Each loop is called once for all that wait there."""
    of: dict[asyncio.AbstractEventLoop, list[asyncio.Future[None]]] = {}
    for waiter in waiters:
        of.setdefault(waiter.loop, []).append(waiter.future)
    for loop, futures in of.items():
        with contextlib.suppress(RuntimeError):  # it is closed
            loop.call_soon_threadsafe(_end, futures)


def _end(futures: Iterable[asyncio.Future[None]]) -> None:
    for future in futures:
        if not future.done():
            future.set_result(None)


class Watch:
    """One thread and connection of its own; both sleep while nobody waits."""

    def __init__(self, connect: Callable[[], sqlite3.Connection]) -> None:
        self._connect = connect
        self._waiters: dict[SessionRef, set[Waiter]] = {}
        self._changed = threading.Condition()
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def enter(self, ref: SessionRef, after: int, revision: int | None = None) -> Waiter:
        if not isinstance(after, int):  # the thread compares it, for everybody
            raise InvalidInput("must be a seq", field="after")
        waiter = Waiter(after, revision)
        with self._changed:
            self._waiters.setdefault(ref, set()).add(waiter)
            if self._thread is None or not (self._thread.is_alive() or self._stopped.is_set()):
                self._thread = threading.Thread(target=self._look, name="satchel-sqlite-watch", daemon=True)
                self._thread.start()
            self._changed.notify()
        return waiter

    def leave(self, ref: SessionRef, waiter: Waiter) -> None:
        with self._changed:
            waiters = self._waiters.get(ref)
            if waiters is not None:
                waiters.discard(waiter)
                if not waiters:
                    del self._waiters[ref]

    def committed(self, records: Iterable[SessionRecord]) -> None:
        """From any thread."""
        if not self._waiters:
            return
        with self._changed:
            behind: list[Waiter] = []
            for record in records:
                seq = END if record.status == "DELETED" else record.last_seq
                waiters = self._waiters.get(record.ref, ())
                behind += [waiter for waiter in waiters if waiter.is_behind(seq, record.revision)]
        wake(behind)

    async def close(self) -> None:
        """Everybody is woken."""
        with self._changed:
            self._stopped.set()
            self._changed.notify()
            wake([waiter for waiters in self._waiters.values() for waiter in waiters])
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join)

    def _look(self) -> None:
        connection: sqlite3.Connection | None = None
        version: int | None = None
        while True:
            with self._changed:
                while not self._waiters and not self._stopped.is_set():
                    self._changed.wait()
            if self._stopped.is_set():
                break
            try:
                if connection is None:
                    connection = self._connect()
                (found,) = connection.execute("PRAGMA data_version").fetchone()
                if found != version:
                    self._wake_those_behind(connection)
                    version = found
            except sqlite3.Error:  # a lost hint costs time, never data: look again
                version = None
            except Exception:  # noqa: BLE001  # the one thread that looks must go on, whatever happened
                _log.exception("looking for other processes' commits failed")
                version = None
            self._stopped.wait(PERIOD)
        if connection is not None:
            connection.close()

    def _wake_those_behind(self, connection: sqlite3.Connection) -> None:
        with self._changed:
            refs = list(self._waiters)
        for ref in refs:
            try:
                row = connection.execute(SQL["newest"], ref).fetchone()
            except UNBINDABLE:  # nothing can be stored under it: its waiters need not wait
                row = None
            with self._changed:
                wake([waiter for waiter in self._waiters.get(ref, ()) if row is None or waiter.is_behind(*row)])
