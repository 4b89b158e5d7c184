"""Load, decide, commit: how decisions reach the servers, and what this process remembers of them."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from satchel.domain.ids import SessionRef
from satchel.domain.record import SessionRecord
from satchel.domain.state import Clock, SessionState, Want
from satchel.errors import StoreBusy, StoreError
from satchel.store import Change, Loaded, Outcome
from satchel.stores.redis.applying import NO_BASIS, Basis
from satchel.stores.redis.connection import Command, Reply
from satchel.stores.redis.loading import ReadClock, load
from satchel.stores.redis.names import Keys
from satchel.stores.redis.servers import Servers
from satchel.stores.redis.writing import HELD_FOR, Writer, Written
from satchel.stores.sql.recent import Recent
from satchel.stores.sql.writing import Contention

Decide = Callable[[Loaded], Sequence[Change]]

TRIES = 5  # to answer without a commit about a session that changes meanwhile
HOLD_PAUSE = 0.005  # seconds between two tries to have a session held, at most


class Transactions:
    """``read_clock`` makes the store's clock of a server's; ``own_clock`` is there where it is not the servers'."""

    def __init__(
        self,
        servers: Servers,
        keys: Keys,
        writer: Writer,
        *,
        read_clock: ReadClock,
        own_clock: Callable[[], Clock] | None,
        settled: Callable[[Sequence[Change], Sequence[Outcome]], None],
    ) -> None:
        self._servers = servers
        self._keys = keys
        self._writer = writer
        self._read_clock = read_clock
        self._own_clock = own_clock
        self._settled = settled  # told what became of changes
        self._recent = Recent(read_clock)
        self._contention = Contention()

    async def transact(self, wanted: Mapping[SessionRef, Want], decide: Decide) -> list[Outcome]:
        met = [ref for ref in wanted if self._contention.is_met((ref,))]
        if not met and (recalled := self._recent.recall(wanted)) is not None:
            basis = Basis(_records(recalled), wanted)
            changes = decide(recalled)
            if len(changes) == len(wanted):  # else something was answered that the commit does not bear out
                return await self.write(changes, basis)
        for _ in range(TRIES):
            loaded = await self._load(wanted, met)
            basis = Basis(_records(loaded), {})
            changes = decide(loaded)
            unwritten = wanted.keys() - {change.ref for change in changes}
            await self._let_go([ref for ref in met if ref in unwritten])
            if not unwritten or await self._writer.confirm(loaded, unwritten):
                return await self.write(changes, basis)
        raise StoreBusy

    async def _load(self, wanted: Mapping[SessionRef, Want], met: Sequence[SessionRef]) -> Loaded:
        """Held for this store are those that were ``met`` by others too often, if they can be had in time."""
        patience = time.monotonic() + HELD_FOR
        while True:
            held: list[Reply] = []
            ask = partial(self._ask, met, held)
            loaded = await load(ask, self._keys, self._read_clock, self._own_now(), wanted)
            if all(reply == 1 for reply in held) or time.monotonic() > patience:
                return loaded
            await asyncio.sleep(HOLD_PAUSE * random.random())  # noqa: S311  # spreads the tries

    async def _ask(self, met: Sequence[SessionRef], held: list[Reply], commands: Sequence[Command]) -> list[Reply]:
        """To hold is no round trip more: it is in the pipeline of the first look."""
        if not met or held:
            return await self._servers.run(commands)
        replies = await self._servers.run([*self._writer.hold(met, self._own_now()), *commands])
        held.extend(replies[: len(met)])
        return replies[len(met) :]

    async def _let_go(self, refs: Sequence[SessionRef]) -> None:
        """A commit lets go of what was held for it. Nothing comes for these, and whoever waits would wait out the time; or for
        ever, if each of many refusals held them anew."""
        if refs:
            with contextlib.suppress(StoreError):  # it ends by itself
                await self._servers.run(self._writer.hold(refs, self._own_now(), seconds=0))

    def _own_now(self) -> bytes | int:
        return b"" if self._own_clock is None else self._own_clock().now

    async def write(self, changes: Sequence[Change], basis: Basis = NO_BASIS) -> list[Outcome]:
        if not changes:
            return []
        clock = None if self._own_clock is None else self._own_clock()
        try:
            written: Written = await self._writer.write(changes, clock, basis)
        except BaseException:
            self._recent.forget({change.ref: None for change in changes})
            raise
        self._contention.note(changes, written.outcomes)
        self._recent.note(changes, written.outcomes, written.now)
        self._settled(changes, written.outcomes)
        return written.outcomes


def _records(loaded: Loaded) -> dict[SessionRef, SessionRecord | None]:
    """To be taken before deciding, which lays effects over the states."""
    return {ref: state.record for ref, state in loaded.sessions.items() if isinstance(state, SessionState)}
