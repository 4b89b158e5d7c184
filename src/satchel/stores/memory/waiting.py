"""Who waits for a session to move on."""

from __future__ import annotations

import asyncio

from satchel.domain.record import SessionRecord


class Waiter:
    __slots__ = ("_after", "_revision", "future")

    def __init__(self, after: int, revision: int | None) -> None:
        self._after = after
        self._revision = revision
        self.future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def is_behind(self, record: SessionRecord) -> bool:
        return record.is_past(self._after, self._revision)

    def wake(self) -> None:
        if not self.future.done():
            self.future.set_result(None)
