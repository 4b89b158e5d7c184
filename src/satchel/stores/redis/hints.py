"""Who waits for a session's next event. Own commits wake them at once; other processes' by a hint that the commit's script
publishes on its bucket's channel (of its shard, where there are many servers). A lost hint costs time, never data: everybody
looks for himself every two seconds.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Iterable

from satchel.domain.ids import SessionRef
from satchel.domain.record import SessionRecord
from satchel.errors import InvalidInput
from satchel.stores.redis.address import Address, Place
from satchel.stores.redis.connection import DRIVER_ERRORS, Line
from satchel.stores.redis.names import Keys
from satchel.stores.redis.servers import Servers

RETRY = 1.0  # seconds between two listeners of one server, and that one may take to hear a channel

_log = logging.getLogger("satchel.stores.redis")


class Waiter:
    __slots__ = ("after", "future", "revision")

    def __init__(self, after: int, revision: int | None) -> None:
        self.after = after
        self.revision = revision
        self.future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def is_behind(self, last_seq: int, revision: int, *, is_deleted: bool) -> bool:
        moved = self.revision is not None and revision != self.revision
        return moved or last_seq > self.after or is_deleted

    def wake(self) -> None:
        if not self.future.done():
            self.future.set_result(None)


class Hints:
    def __init__(self, address: Address, servers: Servers, keys: Keys) -> None:
        self._address = address
        self._servers = servers
        self._keys = keys
        self._waiters: dict[bytes, set[Waiter]] = {}  # by the session's entry
        self._listeners: dict[Place, _Listener] = {}

    def enter(self, ref: SessionRef, after: int, revision: int | None) -> Waiter:
        if not isinstance(after, int):
            raise InvalidInput("must be a seq", field="after")
        names = self._keys.names(ref)
        waiter = Waiter(after, revision)
        self._waiters.setdefault(names.entry, set()).add(waiter)
        return waiter

    def leave(self, ref: SessionRef, waiter: Waiter) -> None:
        names = self._keys.names(ref)
        waiters = self._waiters.get(names.entry)
        if waiters is None or waiter not in waiters:
            return
        waiters.discard(waiter)
        if not waiters:
            del self._waiters[names.entry]

    async def ready(self, ref: SessionRef) -> None:
        """Until hints arrive, or it is clear that they do not: who looks after this misses no commit for long."""
        names = self._keys.names(ref)
        place = self._servers.owner(self._keys.slots[names.bucket])
        listener = self._listeners.get(place)
        if listener is None or listener.is_over:
            if listener is not None and time.monotonic() < listener.began_at + RETRY:
                return  # it was refused, or its server is away
            listener = self._listeners[place] = _Listener(self._address, place, self._heard, self._wake_all)
        await listener.follow(names.hint)

    def committed(self, records: Iterable[SessionRecord]) -> None:
        if not self._waiters:
            return
        for record in records:
            self._tell(
                self._keys.names(record.ref).entry,
                record.last_seq,
                record.revision,
                is_deleted=record.status == "DELETED",
            )

    def _tell(self, entry: bytes, last_seq: int, revision: int, *, is_deleted: bool) -> None:
        for waiter in tuple(self._waiters.get(entry, ())):
            if waiter.is_behind(last_seq, revision, is_deleted=is_deleted):
                waiter.wake()

    def _heard(self, hint: bytes) -> None:
        last_seq, revision, is_deleted, entry = hint.split(b" ", 3)
        self._tell(entry, int(last_seq), int(revision), is_deleted=is_deleted == b"1")

    def _wake_all(self) -> None:
        """What was told while nobody listened nobody heard."""
        for waiters in tuple(self._waiters.values()):
            for waiter in tuple(waiters):
                waiter.wake()

    async def close(self) -> None:
        """Everybody is woken."""
        self._wake_all()
        for listener in self._listeners.values():
            await listener.close()


class _Listener:
    """One connection that hears the channels of one server. It ends with its connection; the next who waits makes another."""

    def __init__(
        self, address: Address, place: Place, heard: Callable[[bytes], None], lost: Callable[[], None]
    ) -> None:
        self._address = address
        self._place = place
        self._heard = heard
        self._lost = lost
        self.began_at = time.monotonic()
        self._followed: dict[bytes, asyncio.Event] = {}
        self._line: Line | None = None
        self._opened = asyncio.Event()
        self._task = asyncio.get_running_loop().create_task(self._listen(), name="satchel-redis-listen")

    @property
    def is_over(self) -> bool:
        return self._task.done()

    async def follow(self, channel: bytes) -> None:
        """Until it is heard, or it is clear that it is not."""
        await self._opened.wait()
        is_heard = self._followed.get(channel)
        if is_heard is None:
            is_heard = self._followed[channel] = asyncio.Event()
            if self._line is not None and not self.is_over:
                try:
                    await self._line.tell(("SSUBSCRIBE", channel))
                except DRIVER_ERRORS:
                    return
        if not is_heard.is_set() and not self.is_over:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(RETRY):
                    await is_heard.wait()

    async def _listen(self) -> None:
        try:
            self._line = await Line.open(self._address, self._place)
            self._opened.set()
            while True:
                told = await self._line.hear()
                if not isinstance(told, list):
                    break  # an error: the slot has moved
                if told[0] == b"smessage":
                    self._heard(told[2])
                elif told[0] == b"ssubscribe":
                    self._followed[told[1]].set()
                else:
                    break  # the slot is moving
        except DRIVER_ERRORS as error:
            _log.debug("hints are not heard: %s", type(error).__name__)
        finally:
            self._opened.set()
            for is_heard in self._followed.values():
                is_heard.set()
            if self._line is not None:
                await self._line.close()
            self._lost()

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.wait((self._task,))
