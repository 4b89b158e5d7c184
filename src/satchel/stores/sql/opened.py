"""What an open store on a database server holds."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from typing import Any

from satchel.store import Change, Outcome
from satchel.stores.sql.hints import Hints
from satchel.stores.sql.pool import Pool
from satchel.stores.sql.recent import Recent
from satchel.stores.sql.writing import Contention, Written


async def finish(tasks: set[asyncio.Task[Any]], *closing: Callable[[], Awaitable[None]]) -> None:
    """Wait for what is under way, then close, one after another; all of it also when this is cancelled: nobody else would."""
    async with AsyncExitStack() as stack:
        for close in reversed(closing):
            stack.push_async_callback(close)
        while tasks:
            await asyncio.wait(tasks)


class Opened:
    def __init__(self, pool: Pool[Any], hints: Hints, recent: Recent) -> None:
        self.process = os.getpid()
        self.loop = asyncio.get_running_loop()
        self.pool = pool
        self.hints = hints
        self.contention = Contention()
        self.recent = recent
        self.vouched = -1  # after how many losses the server last vouched for what it shows
        self.tasks: set[asyncio.Task[Any]] = set()

    def settle(self, changes: Sequence[Change], written: Written) -> list[Outcome]:
        """Remember it, and tell those who wait."""
        outcomes = written.outcomes
        self.recent.note(changes, outcomes, written.now)
        self.hints.committed(
            [change.record for change, outcome in zip(changes, outcomes, strict=True) if outcome is Outcome.APPLIED]
        )
        return outcomes
