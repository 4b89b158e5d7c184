"""What an open store on Redis holds."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from typing import Any

from satchel.store import Change, Outcome
from satchel.stores.redis.hints import Hints
from satchel.stores.redis.servers import Servers
from satchel.stores.redis.transacting import Transactions


class Opened:
    def __init__(self, servers: Servers, hints: Hints) -> None:
        self.process = os.getpid()
        self.loop = asyncio.get_running_loop()
        self.servers = servers
        self.hints = hints
        self.nothing_ready: dict[str | None, float] = {}  # for which agent, and until when that is believed
        self.tasks: set[asyncio.Task[Any]] = set()
        self.transactions: Transactions

    def settled(self, changes: Sequence[Change], outcomes: Sequence[Outcome]) -> None:
        """Tell those who wait."""
        if self.nothing_ready and any(change.record.ready_agent is not None for change in changes):
            self.nothing_ready.clear()
        self.hints.committed(
            [change.record for change, outcome in zip(changes, outcomes, strict=True) if outcome is Outcome.APPLIED]
        )
