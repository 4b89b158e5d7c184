"""Writers in this process that ask again until they are told yes, and what they were told."""

from __future__ import annotations

import asyncio
import collections
import itertools
import random
import time

import satchel
from satchel import SessionManager
from tests.processes.ledger import contents

AWAY = (satchel.StoreUnavailable, satchel.StoreBusy, satchel.OutcomeUnknown)


class Load:
    """``writers`` tasks append to sessions drawn at random, each append under a key of its own, again until it is acknowledged."""

    def __init__(
        self, manager: SessionManager, session_ids: list[str], *, writers: int = 24, patience: float = 60
    ) -> None:
        self._manager = manager
        self._session_ids = session_ids
        self._patience = patience
        self._is_over = False
        self._random = random.Random(7)
        self.acknowledged: dict[str, tuple[str, int, float]] = {}  # by key: session, seq, when
        self._tasks = [asyncio.create_task(self._write(number)) for number in range(writers)]

    async def _write(self, number: int) -> None:
        for turn in itertools.count():
            if self._is_over:
                return
            await self._append(f"{number}-{turn}")

    async def _append(self, key: str) -> None:
        session_id = self._random.choice(self._session_ids)
        deadline = time.monotonic() + self._patience
        while time.monotonic() < deadline:
            try:
                message = await self._manager.append_message(
                    session_id, {"role": "user", "content": key}, idempotency_key=key
                )
            except AWAY:
                await asyncio.sleep(0.1)
            else:
                self.acknowledged[key] = (session_id, message.seq, time.monotonic())
                return
        raise AssertionError("the service did not recover by itself")

    async def more(self, count: int, *, patience: float = 60) -> None:
        """Until so many more were acknowledged."""
        target = len(self.acknowledged) + count
        async with asyncio.timeout(patience):
            while len(self.acknowledged) < target:
                for task in self._tasks:
                    if task.done():
                        await task
                await asyncio.sleep(0.02)

    async def stop(self) -> None:
        self._is_over = True
        await asyncio.gather(*self._tasks)

    async def check(self) -> None:
        """What was acknowledged is where it was said to be; what was asked for again and again is there once."""
        stored: collections.Counter[str] = collections.Counter()
        for session_id in self._session_ids:
            said = await contents(self._manager, session_id)
            stored.update(said)
            for key, (where, seq, _) in self.acknowledged.items():
                if where == session_id:
                    assert said[seq - 1 : seq] == [key]
        assert set(stored) == set(self.acknowledged)
        assert set(stored.values()) == {1}
