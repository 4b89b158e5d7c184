"""Written by tools/make_sync.py from satchel/sweeper.py: change that, and run it again."""

from __future__ import annotations

from satchel.sweeper import Sweeper as AsyncSweeper
from satchel.sweeper import SweepReport
from satchel.sync.opening import OpenStore, async_side, loop_of


class Sweeper:
    """Several may sweep one store at once: each thing is done once."""

    def __init__(self, store: OpenStore) -> None:
        self._async = AsyncSweeper(async_side(store))
        self._loop = loop_of(store)

    def sweep_once(self) -> SweepReport:
        """Visit every session that has something due now; at the end, one scrub for all that was erased.

        A session that cannot be looked after is left, and those behind it are visited. Raises StoreUnavailable when it is
        the store that is away.
        """
        return self._loop.call(self._async.sweep_once())

    def run_forever(self, *, interval: float = 10.0) -> None:
        """Sweep every ``interval`` seconds until cancelled. A store that is away is asked again: the next round finds what
        this one left."""
        self._loop.call(self._async.run_forever(interval=interval))
