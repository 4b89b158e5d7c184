"""Who waits for a session's next event. Own commits wake them at once; other processes' commits by looking now and then, in one
statement for all who wait: there is nothing on these servers that could tell. A look that takes long is made less often."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable

from satchel.domain.ids import SessionRef
from satchel.domain.record import SessionRecord
from satchel.errors import SatchelError
from satchel.stores.mysql.connection import Fetch
from satchel.stores.mysql.loading import in_lots
from satchel.stores.mysql.queries import SQL
from satchel.stores.mysql.reading import is_past
from satchel.stores.mysql.rows import ref_of
from satchel.stores.sql.hints import Waiter, Waiters

PERIOD = 0.02  # seconds between two looks
SHARE = 10  # a look takes at most a tenth of the time
RETRY = 0.5  # seconds until the next look after one that failed

_log = logging.getLogger("satchel.stores.mysql")


class Looks:
    """``fetch`` reads statements on any connection."""

    def __init__(self, fetch: Fetch) -> None:
        self._fetch = fetch
        self._waiters = Waiters()
        self._task: asyncio.Task[None] | None = None
        self._closed = False

    def enter(self, ref: SessionRef, after: int, revision: int | None) -> Waiter:
        waiter = self._waiters.add(ref, after, revision)
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._look_around(), name="satchel-mysql-look")
        return waiter

    def leave(self, ref: SessionRef, waiter: Waiter) -> None:
        self._waiters.remove(ref, waiter)

    async def ready(self) -> None:
        """A commit is seen by the next look, whenever it was."""

    def committed(self, records: Iterable[SessionRecord]) -> None:
        for record in records:
            self._waiters.wake_behind(record)

    async def close(self) -> None:
        self._closed = True
        self._waiters.wake_all()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))

    async def _look_around(self) -> None:
        while not self._closed:
            await asyncio.sleep(PERIOD)
            if not self._waiters.by_ref:
                return
            began = time.monotonic()
            try:
                await self._look()
            except SatchelError as error:
                _log.debug("a look failed: %s", error)
                await asyncio.sleep(RETRY)
            else:
                await asyncio.sleep(max(0.0, (time.monotonic() - began) * SHARE - PERIOD))

    async def _look(self) -> None:
        waiting = {ref: tuple(waiters) for ref, waiters in self._waiters.by_ref.items()}
        lists = await self._fetch(*(SQL["newest"](lot) for lot in in_lots(list(waiting))))
        found = {ref_of(*row[:2]): row[2:] for rows in lists for row in rows}
        for ref, waiters in waiting.items():
            newest = found.get(ref)
            for waiter in waiters:
                if newest is None or is_past(newest, waiter.after, waiter.revision):
                    waiter.wake()
