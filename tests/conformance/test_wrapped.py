"""The same promises when the store behaves in the worst way that its contract allows.

Yielding: others come between load and commit, and decisions are taken again. Unknown: outcomes are not told, applied or not.
Over the memory store all suites that write through the managers; over SQLite those where two writers meet.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from satchel.store import Store
from satchel.stores.memory import MemoryStore
from satchel.stores.sqlite import SqliteStore
from satchel.testing.answers import AnswerSuite
from satchel.testing.clock import SettableClock
from satchel.testing.expiry import ExpirySuite
from satchel.testing.followed_streams import FollowedStreamSuite
from satchel.testing.forks import ForkSuite
from satchel.testing.idempotency import IdempotencySuite
from satchel.testing.interrupted_imports import InterruptedImportSuite
from satchel.testing.interrupted_streams import InterruptedStreamSuite
from satchel.testing.leases import LeaseSuite
from satchel.testing.lifecycle import LifecycleSuite
from satchel.testing.memory import MemorySuite
from satchel.testing.messages import MessageSuite
from satchel.testing.own_runs import OwnRunSuite
from satchel.testing.question_ends import QuestionEndSuite
from satchel.testing.question_refusals import QuestionRefusalSuite
from satchel.testing.questions import QuestionSuite
from satchel.testing.races import RaceSuite
from satchel.testing.runs import RunSuite
from satchel.testing.steps import StepSuite
from satchel.testing.store_loading import StoreLoadingSuite
from satchel.testing.store_reading import StoreReadingSuite
from satchel.testing.store_writing import StoreWritingSuite
from satchel.testing.streams import StreamSuite
from satchel.testing.suite import StoreFactory
from satchel.testing.suites import SUITES, bound_to
from satchel.testing.tool_calls import ToolCallSuite
from satchel.testing.transfer import TransferSuite
from satchel.testing.versions import VersionSuite
from satchel.testing.waiting_in_place import WaitingInPlaceSuite
from satchel.testing.wrappers import StoreWrapper, UnknownStore, YieldingStore

THROUGH_MANAGERS = [suite for suite in SUITES if suite not in (StoreWritingSuite, StoreLoadingSuite, StoreReadingSuite)]
WHERE_WRITERS_MEET = (
    IdempotencySuite,
    LifecycleSuite,
    ExpirySuite,
    LeaseSuite,
    MemorySuite,
    MessageSuite,
    RaceSuite,
    QuestionSuite,
    AnswerSuite,
    QuestionRefusalSuite,
    QuestionEndSuite,
    WaitingInPlaceSuite,
    RunSuite,
    OwnRunSuite,
    StreamSuite,
    InterruptedStreamSuite,
    FollowedStreamSuite,
    StepSuite,
    ToolCallSuite,
    TransferSuite,
    InterruptedImportSuite,
    ForkSuite,
    VersionSuite,
)


class YieldingMemory(StoreFactory):
    def make_store(self, clock: SettableClock, folder: Path) -> Store:
        return YieldingStore(MemoryStore(clock=clock))


class UnknownMemory(StoreFactory):
    def make_store(self, clock: SettableClock, folder: Path) -> Store:
        return UnknownStore(MemoryStore(clock=clock), seed=len(folder.name))


class YieldingSqlite(StoreFactory):
    def make_store(self, clock: SettableClock, folder: Path) -> Store:
        return YieldingStore(SqliteStore(folder / "conformance.db", clock=clock))

    def make_second_store(self, first: Store, clock: SettableClock, folder: Path) -> Store:
        assert isinstance(first, StoreWrapper)
        return self.make_store(clock, folder)


class UnknownSqlite(StoreFactory):
    def make_store(self, clock: SettableClock, folder: Path) -> Store:
        return UnknownStore(SqliteStore(folder / "conformance.db", clock=clock), seed=len(folder.name))

    def make_second_store(self, first: Store, clock: SettableClock, folder: Path) -> Store:
        return self.make_store(clock, folder)


# What no other writer meets is left to `make test-full`; so is most of what wraps SQLite, where each test has files of its own:
# it is the same over every store.
OVER_SQLITE = (IdempotencySuite, RunSuite, OwnRunSuite, VersionSuite)

for factory, suites in (
    (YieldingMemory, SUITES),
    (UnknownMemory, THROUGH_MANAGERS),
    (YieldingSqlite, WHERE_WRITERS_MEET),
    (UnknownSqlite, WHERE_WRITERS_MEET),
):
    for suite in suites:
        for name, made in bound_to(factory, (suite,)).items():
            over_sqlite = factory in (YieldingSqlite, UnknownSqlite)
            is_long = suite not in (OVER_SQLITE if over_sqlite else WHERE_WRITERS_MEET)
            globals()[f"{name}On{factory.__name__}"] = pytest.mark.full(made) if is_long else made
