"""The proof that a store keeps its promises, for whoever writes one. Needs pytest and pytest-asyncio (mode ``auto``).

A factory says how a store is made, and the suites do the rest::

    class MyStores(StoreFactory):
        def make_store(self, clock, folder):
            return MyStore(folder / "my.db", clock=clock)


    globals().update(bound_to(MyStores))

``YieldingStore``, ``RivalStore`` and ``UnknownStore`` make any store behave in the worst way that its contract allows.
"""

from satchel.testing.clock import SettableClock
from satchel.testing.stage import Stage
from satchel.testing.suite import StoreFactory, StoreSuite
from satchel.testing.suites import SUITES, bound_to
from satchel.testing.wrappers import RivalStore, StoreWrapper, UnknownStore, YieldingStore

__all__ = [
    "SUITES",
    "RivalStore",
    "SettableClock",
    "Stage",
    "StoreFactory",
    "StoreSuite",
    "StoreWrapper",
    "UnknownStore",
    "YieldingStore",
    "bound_to",
]
