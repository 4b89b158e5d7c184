"""The store's connections: a bounded number, a bounded wait, nothing kept that is in doubt."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Generic, NamedTuple, Protocol, TypeVar

from satchel.errors import OutcomeUnknown, SatchelError, StoreBusy, StoreError, StoreUnavailable
from satchel.stores.sql.address import Patience

T = TypeVar("T")

TRIES = 5  # of one transaction
RECONNECT_PAUSE = 0.05  # seconds between two tries, and up to twice that
CLOSE_PATIENCE = 2.0  # seconds that a server may take to say goodbye


class Connected(Protocol):
    """One connection."""

    def is_closed(self) -> bool: ...

    def terminate(self) -> None:
        """At once, whatever it is doing."""
        ...

    async def close(self, patience: float) -> None:
        """Politely, within ``patience`` seconds. Raises the driver's errors."""
        ...

    def transaction(self) -> AbstractAsyncContextManager[None]: ...


L = TypeVar("L", bound=Connected)


class Faults(NamedTuple):
    """What a driver's errors mean."""

    errors: tuple[type[Exception], ...]  # all that it may raise
    meaning_of: Callable[[BaseException], SatchelError]  # what a caller hears: no text of the server's
    is_lost: Callable[[BaseException], bool]  # nobody knows what became of the statement
    is_worth_another_try: Callable[[BaseException], bool]  # nothing was stored, and the same may succeed
    is_read_only: Callable[[BaseException], bool]  # the server takes no writes: it became a standby
    is_bad_change: Callable[[BaseException], bool]  # it cannot be stored, however often it is tried
    leaves_usable: Callable[[BaseException], bool]  # the connection is at rest after it
    may_pass: Callable[[BaseException], bool]  # of one that was met when connecting: the same may succeed


class Pool(Generic[L]):
    """``first``: a connection that is there already."""

    def __init__(self, address: Patience, connect: Callable[[], Awaitable[L]], faults: Faults, *, first: L) -> None:
        self._address = address
        self._connect = connect
        self.faults = faults
        self._idle = [first]  # the one used last is taken first
        self._free = asyncio.Semaphore(address.pool_size)
        self._away_since: float | None = None
        self._closed = False
        self.losses = 0  # whoever was asked before may not be the one who answers now

    def use(self) -> AbstractAsyncContextManager[L]:
        """Raises StoreBusy when no connection is free in time, StoreUnavailable when the server is away. Driver's errors of
        the block leave it as they are."""
        return _Use(self)

    async def enter(self) -> L:
        await self._enter()
        try:
            return await self._take()
        except BaseException:
            self._free.release()
            raise

    def leave(self, line: L, error: BaseException | None) -> None:
        try:
            self._put_back(line, usable=error is None or self.faults.leaves_usable(error))
            if error is not None and self.faults.is_lost(error):
                self.forget_idle()
        finally:
            self._free.release()

    async def _enter(self) -> None:
        if not self._free.locked():
            await self._free.acquire()  # at once
            return
        try:
            async with asyncio.timeout(self._address.pool_wait):
                await self._free.acquire()
        except TimeoutError:
            raise StoreBusy(
                f"all {self._address.pool_size} connections were in use for {self._address.pool_wait:g} s;"
                " nothing was stored (pool_size and pool_wait of the store's address)"
            ) from None

    async def _take(self) -> L:
        while self._idle:
            line = self._idle.pop()
            if not line.is_closed():
                return line
            line.terminate()  # it may be only as good as closed: its server ends it soon
            self.losses += 1
        return await self._open()

    async def _open(self) -> L:
        """A server that goes away comes back, or another takes its place: it is waited for, but once it has been away for
        that long, nobody waits any more."""
        while True:
            try:
                line = await self._connect()
            except self.faults.errors as error:
                refused = self.faults.meaning_of(error)
                now = time.monotonic()
                if self._away_since is None:
                    self._away_since = now
                if not isinstance(refused, (StoreUnavailable, StoreBusy)) or not self.faults.may_pass(error):
                    raise refused from error
                if now - self._away_since >= self._address.connect_timeout or self._closed:
                    raise refused from error
            else:
                self._away_since = None
                return line
            await asyncio.sleep(RECONNECT_PAUSE * (1 + random.random()))  # noqa: S311  # spreads the tries

    def _put_back(self, line: L, *, usable: bool) -> None:
        if usable and not self._closed and not line.is_closed():
            self._idle.append(line)
        else:
            line.terminate()

    def forget_idle(self) -> None:
        """One was lost: what is idle may be as dead, or lead to a server that is not the first any more."""
        self.losses += 1
        while self._idle:
            self._idle.pop().terminate()

    async def close(self) -> None:
        self._closed = True
        idle, self._idle = self._idle, []
        await asyncio.gather(*(self._say_goodbye(line) for line in idle))

    async def _say_goodbye(self, line: L) -> None:
        try:
            await line.close(CLOSE_PATIENCE)
        except self.faults.errors:
            line.terminate()


class _Use(AbstractAsyncContextManager[L]):
    """A class and not a generator: each statement goes through it."""

    __slots__ = ("_line", "_pool")

    def __init__(self, pool: Pool[L]) -> None:
        self._pool = pool

    async def __aenter__(self) -> L:
        self._line = await self._pool.enter()
        return self._line

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._pool.leave(self._line, error)


class Again:
    """A bounded number of tries with growing, random pauses between."""

    def __init__(self, tries: int) -> None:
        self._left = tries
        self._pause = 0.005

    def at_most(self, tries: int) -> None:
        self._left = min(self._left, tries)

    async def pause(self) -> bool:
        """False: no try is left."""
        self._left -= 1
        if self._left <= 0:
            return False
        await asyncio.sleep(self._pause * random.random())  # noqa: S311  # spreads the tries
        self._pause *= 2
        return True


async def in_transaction(pool: Pool[L], work: Callable[[L], Awaitable[T]], *, counts: bool = False) -> T:
    """``work`` in one transaction, tried again when the server says that another try may do, and when a connection was lost: to do
    it twice is fine. ``counts``: it matters to the caller whether it was done. Raises SatchelErrors only."""
    again = Again(TRIES)
    is_unknown = False
    while True:
        try:
            async with pool.use() as line, line.transaction():
                return await work(line)
        except pool.faults.errors as error:
            is_lost = pool.faults.is_lost(error) and not isinstance(error, TimeoutError)
            is_unknown = is_unknown or (counts and pool.faults.is_lost(error))
            if (is_lost or pool.faults.is_worth_another_try(error)) and await again.pause():
                continue
            meaning = pool.faults.meaning_of(error)
            raise (_unknown(meaning) if is_unknown else meaning) from error
        except StoreError as away:  # before anything was asked
            if is_unknown:
                raise _unknown(away) from away
            raise


def _unknown(error: SatchelError) -> OutcomeUnknown:
    return OutcomeUnknown(error.reason if isinstance(error, StoreUnavailable) else str(error))
