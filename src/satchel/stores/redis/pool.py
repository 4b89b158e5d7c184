"""The connections to one server: a bounded number, a bounded wait, nothing kept that is in doubt."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from satchel.errors import StoreBusy
from satchel.stores.redis.address import Address, Place
from satchel.stores.redis.connection import Line


class Pool:
    def __init__(self, address: Address, place: Place) -> None:
        self._address = address
        self.place = place
        self._idle: list[Line] = []  # the one used last is taken first
        self._free = asyncio.Semaphore(address.pool_size)
        self._closed = False

    @asynccontextmanager
    async def use(self) -> AsyncIterator[Line]:
        """Raises StoreBusy when no connection is free in time, and the driver's errors when there is none to be had. A block
        that raises loses its connection."""
        await self._enter()
        try:
            line = await self._take()
            try:
                yield line
            except BaseException:
                await line.close()
                raise
            if self._closed or not line.is_open:
                await line.close()
            else:
                self._idle.append(line)
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

    async def _take(self) -> Line:
        while self._idle:
            line = self._idle.pop()
            if line.is_open:
                return line
        return await Line.open(self._address, self.place)

    async def forget_idle(self) -> None:
        """One was lost: what is idle may be as dead."""
        while self._idle:
            await self._idle.pop().close()

    async def close(self) -> None:
        self._closed = True
        await self.forget_idle()
