"""Who waits for a session's next event. Own commits wake them at once; other processes' commits by NOTIFY, or, where nobody
can listen (a pooler gives each transaction another server process), by looking now and then.

A hint names sessions by a hash. It is sent after the commit and not in it, where it would cost more than half of all commits;
at most one goes out per process and PERIOD. A lost hint costs time, never data.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import logging
import secrets
from collections.abc import Awaitable, Callable, Iterable

from satchel.domain.ids import SessionRef, join_parts
from satchel.domain.record import SessionRecord
from satchel.errors import SatchelError
from satchel.stores.postgres.connection import DRIVER_ERRORS, Fetch, Line
from satchel.stores.postgres.queries import SQL
from satchel.stores.sql.hints import Waiter, Waiters

CHANNEL = "satchel_sessions"
PERIOD = 0.02  # seconds between two hints of one process, and between two looks where nobody listens
RETRY = 1.0  # seconds until a listener that was lost is tried again
NAMES_AT_ONCE = 600  # a NOTIFY carries less than 8,000 bytes
EVERYBODY = "*"
# Nobody needs a hint to survive a power cut: its commit does not wait for the disk.
_TELL = "SELECT set_config('synchronous_commit', 'off', true), pg_notify($1, $2)"

_log = logging.getLogger("satchel.stores.postgres")


def name_of(ref: SessionRef) -> str:
    """12 characters; two sessions of one name wake each other's waiters, which look and wait on."""
    return base64.urlsafe_b64encode(hashlib.sha256(join_parts(*ref)).digest()[:9]).decode()


class Hints:
    """``connect`` gives a connection of its own; ``run`` one statement on any."""

    def __init__(self, connect: Callable[[], Awaitable[Line]], fetch: Fetch) -> None:
        self._connect = connect
        self._fetch = fetch
        self._waiters = Waiters()
        self._refs: dict[str, set[SessionRef]] = {}
        self._changed: set[SessionRef] = set()
        self._sender: asyncio.Task[None] | None = None
        self._listener: asyncio.Task[None] | None = None
        self._listening = asyncio.Event()
        self._line: Line | None = None
        self._closed = False
        self._own = secrets.token_urlsafe(6)  # who said it: one's own commits have woken everybody here

    def enter(self, ref: SessionRef, after: int, revision: int | None) -> Waiter:
        waiter = self._waiters.add(ref, after, revision)
        self._refs.setdefault(name_of(ref), set()).add(ref)
        if self._listener is None or self._listener.done():
            self._listener = asyncio.get_running_loop().create_task(self._listen(), name="satchel-postgres-listen")
        return waiter

    def leave(self, ref: SessionRef, waiter: Waiter) -> None:
        if self._waiters.remove(ref, waiter):
            name = name_of(ref)
            self._refs[name].discard(ref)
            if not self._refs[name]:
                del self._refs[name]

    async def ready(self) -> None:
        """Until hints arrive, or it is clear that they do not: who looks at the log after this misses no commit for long."""
        if self._line is None:
            await self._listening.wait()

    def committed(self, records: Iterable[SessionRecord]) -> None:
        """Tell those who wait here, and soon all other processes."""
        for record in records:
            self._waiters.wake_behind(record)
            self._changed.add(record.ref)
        if self._changed and not self._closed and (self._sender is None or self._sender.done()):
            self._sender = asyncio.get_running_loop().create_task(self._send(), name="satchel-postgres-notify")

    async def close(self) -> None:
        """Everybody is woken; what is to be told is told."""
        self._closed = True
        self._listening.set()
        self._waiters.wake_all()
        if self._listener is not None:
            self._listener.cancel()
        tasks = [task for task in (self._sender, self._listener) if task is not None]
        try:
            if tasks:
                await asyncio.wait(tasks)
        finally:
            line, self._line = self._line, None
            if line is not None:
                line.connection.terminate()

    async def _send(self) -> None:
        await asyncio.sleep(0)  # who wrote is answered first
        while self._changed:
            changed, self._changed = self._changed, set()
            names = [name_of(ref) for ref in changed] if len(changed) <= NAMES_AT_ONCE else [EVERYBODY]
            try:
                await self._fetch(_TELL, CHANNEL, ",".join([self._own, *names]))
            except SatchelError as error:
                _log.debug("a hint was not sent: %s", error)
            if not self._closed:
                await asyncio.sleep(PERIOD)

    def _heard(self, connection: object, pid: int, channel: str, payload: object) -> None:
        del connection, pid, channel
        teller, *names = str(payload).split(",")
        if teller == self._own:
            return
        if EVERYBODY in names:
            self._waiters.wake_all()
        for name in names:
            for ref in tuple(self._refs.get(name, ())):
                self._waiters.wake(ref)

    async def _listen(self) -> None:
        """While somebody waits: listen; where that does not work, look."""
        quiet_until = 0.0
        loop = asyncio.get_running_loop()
        while self._waiters.by_ref and not self._closed:
            if self._line is not None and self._line.connection.is_closed():
                self._line = None
                self._waiters.wake_all()  # what was told meanwhile nobody heard
            if self._line is None and loop.time() >= quiet_until:
                self._line = await self._try_to_listen()
                quiet_until = loop.time() + RETRY
            self._listening.set()
            if self._line is None:
                await self._look()
                await asyncio.sleep(PERIOD)
            else:
                await asyncio.sleep(RETRY)
        self._listening.clear()

    async def _try_to_listen(self) -> Line | None:
        """None where it cannot be done, now or ever."""
        try:
            line = await self._connect()
        except DRIVER_ERRORS:
            return None
        try:
            if not line.is_shared:
                await line.connection.add_listener(CHANNEL, self._heard)
                return line
        except DRIVER_ERRORS:
            pass
        except BaseException:
            line.connection.terminate()
            raise
        line.connection.terminate()
        return None

    async def _look(self) -> None:
        """For all who wait, in one statement."""
        waiting = [(ref, waiter) for ref, waiters in self._waiters.by_ref.items() for waiter in waiters]
        if not waiting:
            return
        columns = zip(*[(*ref, waiter.after, waiter.revision) for ref, waiter in waiting], strict=True)
        try:
            rows = await self._fetch(SQL["wakeable"], *(list(column) for column in columns))
        except SatchelError:
            return
        for row in rows:
            waiting[row[0] - 1][1].wake()
