"""Every order in which several parties may load and commit, over a store that they share.

A party is a list of calls, one after another; a call is a load and a commit, each of which waits until the schedule names its
party. A call that was STALE goes on at once, so that a schedule says of each call where its first load and its first
commit stand.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any

from satchel.domain.ids import SessionRef
from satchel.domain.state import Want
from satchel.store import Change, Loaded, Outcome, Store
from satchel.testing.clock import SettableClock
from satchel.testing.stage import Stage
from satchel.testing.wrappers import StoreWrapper

CLOCK = "clock"


class GatedStore(StoreWrapper):
    """Waits before each load and each commit, until ``go``. ``loaded_at``: the lease clock of the last load."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.loaded_at = 0
        self._waiting: asyncio.Future[None] | None = None

    @property
    def is_waiting(self) -> bool:
        return self._waiting is not None

    def go(self) -> None:
        waiting, self._waiting = self._waiting, None
        assert waiting is not None
        waiting.set_result(None)

    async def _wait(self) -> None:
        self._waiting = asyncio.get_running_loop().create_future()
        await self._waiting

    async def load(self, wanted: Mapping[SessionRef, Want]) -> Loaded:
        await self._wait()
        loaded = await self.inner.load(wanted)
        self.loaded_at = loaded.clock.lease_now
        return loaded

    async def commit(self, changes: Sequence[Change]) -> list[Outcome]:
        await self._wait()
        return await self.inner.commit(changes)


class Party:
    """``told``: of each call what it answered or raised, and the lease clock that it was decided on."""

    def __init__(self, inner: Store, clock: SettableClock, calls: Callable[[Stage], Sequence[Call]]) -> None:
        self._store = GatedStore(inner)
        self._calls = calls(Stage(self._store, clock))
        self._steps = 0
        self.told: list[tuple[Any, int]] = []
        self._task = asyncio.ensure_future(self._act())

    async def _act(self) -> None:
        for call in self._calls:
            (answer,) = await asyncio.gather(call(), return_exceptions=True)
            self.told.append((answer, self._store.loaded_at))

    async def step(self) -> None:
        """One load, or one commit with whatever the call needs beyond it."""
        self._steps += 1
        await self._let_go()
        if self._steps % 2 == 0:
            while len(self.told) < self._steps // 2:
                await self._let_go()

    async def _let_go(self) -> None:
        calls = len(self.told)
        await self._until(lambda: self._store.is_waiting)
        self._store.go()
        await self._until(lambda: self._store.is_waiting or len(self.told) > calls)

    async def _until(self, met: Callable[[], bool]) -> None:
        for _ in range(100):
            if met():
                return
            await asyncio.sleep(0)
        raise AssertionError("a call does not come to its next step")

    async def end(self) -> None:
        await self._task


Call = Callable[[], Awaitable[object]]


def schedules(calls: Mapping[str, int], *, clock: bool) -> Iterator[tuple[str, ...]]:
    """Every order of the loads and commits of these parties (so many calls of each), and of the one step of the clock, if there
    is one; those that cannot be told apart count once: loads next to each other, and the clock beside a commit."""
    names = [*calls, CLOCK] if clock else list(calls)
    lengths = [1 if name == CLOCK else 2 * calls[name] for name in names]
    yield from _longer((), [0] * len(names), -1, names, lengths)


def _longer(
    begun: tuple[str, ...], places: list[int], last: int, names: Sequence[str], lengths: Sequence[int]
) -> Iterator[tuple[str, ...]]:
    if places == lengths:
        yield begun
        return
    was_commit = last >= 0 and names[last] != CLOCK and places[last] % 2 == 0
    was_load = last >= 0 and names[last] != CLOCK and not was_commit
    for next_, name in enumerate(names):
        place = places[next_]
        if place == lengths[next_]:
            continue
        is_load = name != CLOCK and place % 2 == 0
        if (is_load and was_load and last > next_) or (name == CLOCK and was_commit):
            continue
        places[next_] += 1
        yield from _longer((*begun, name), places, next_, names, lengths)
        places[next_] -= 1
