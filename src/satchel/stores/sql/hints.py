"""Who waits for a session's next event. Own commits wake them at once."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Protocol

from satchel.domain.ids import SessionRef
from satchel.domain.record import SessionRecord
from satchel.errors import InvalidInput


class Waiter:
    __slots__ = ("after", "future", "revision")

    def __init__(self, after: int, revision: int | None) -> None:
        self.after = after
        self.revision = revision
        self.future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def is_behind(self, record: SessionRecord) -> bool:
        return record.is_past(self.after, self.revision)

    def wake(self) -> None:
        if not self.future.done():
            self.future.set_result(None)


class Hints(Protocol):
    """How those who wait hear of commits."""

    def enter(self, ref: SessionRef, after: int, revision: int | None) -> Waiter: ...

    def leave(self, ref: SessionRef, waiter: Waiter) -> None: ...

    async def ready(self) -> None:
        """Until hints arrive, or it is clear that they do not: who looks at the log after this misses no commit for long."""
        ...

    def committed(self, records: Iterable[SessionRecord]) -> None: ...

    async def close(self) -> None:
        """Everybody is woken; what is to be told is told."""
        ...


class Waiters:
    """By session."""

    def __init__(self) -> None:
        self.by_ref: dict[SessionRef, set[Waiter]] = {}

    def add(self, ref: SessionRef, after: int, revision: int | None) -> Waiter:
        """Raises InvalidInput."""
        if not isinstance(after, int):
            raise InvalidInput("must be a seq", field="after")
        waiter = Waiter(after, revision)
        self.by_ref.setdefault(ref, set()).add(waiter)
        return waiter

    def remove(self, ref: SessionRef, waiter: Waiter) -> bool:
        """True: it was the session's last."""
        waiters = self.by_ref.get(ref)
        if waiters is None:
            return False
        waiters.discard(waiter)
        if waiters:
            return False
        del self.by_ref[ref]
        return True

    def wake_behind(self, record: SessionRecord) -> None:
        if not self.by_ref:  # nobody waits here, as in most processes
            return
        for waiter in tuple(self.by_ref.get(record.ref, ())):
            if waiter.is_behind(record):
                waiter.wake()

    def wake(self, ref: SessionRef) -> None:
        for waiter in tuple(self.by_ref.get(ref, ())):
            waiter.wake()

    def wake_all(self) -> None:
        for ref in tuple(self.by_ref):
            self.wake(ref)
