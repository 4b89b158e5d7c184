"""All suites, and how they are bound to a store."""

from __future__ import annotations

from collections.abc import Iterable

from satchel.testing.lifecycle import LifecycleSuite
from satchel.testing.memory import MemorySuite
from satchel.testing.messages import LabelSuite, LimitSuite, MessageSuite
from satchel.testing.runs import RunSuite
from satchel.testing.suite import StoreFactory, StoreSuite
from satchel.testing.tool_calls import ToolCallSuite
from satchel.testing.versions import VersionSuite

SUITES: tuple[type[StoreSuite], ...] = (
    LifecycleSuite,
    MessageSuite,
    LimitSuite,
    LabelSuite,
    VersionSuite,
    MemorySuite,
    ToolCallSuite,
    RunSuite,
)


def bound_to(factory: type[StoreFactory], suites: Iterable[type[StoreSuite]] = SUITES) -> dict[str, type[StoreSuite]]:
    """Test classes that run ``suites`` on the stores of ``factory``: ``globals().update(bound_to(MyStores))`` in a test
    module puts them where pytest finds them."""
    return {
        f"Test{suite.__name__.removesuffix('Suite')}": type(
            f"Test{suite.__name__.removesuffix('Suite')}", (factory, suite), {"__doc__": suite.__doc__}
        )
        for suite in suites
    }
