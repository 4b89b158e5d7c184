"""All suites, and how they are bound to a store."""

from __future__ import annotations

from collections.abc import Iterable

from satchel.testing.answers import AnswerSuite
from satchel.testing.broken_copies import BrokenCopySuite
from satchel.testing.child_ends import ChildEndSuite
from satchel.testing.child_labels import ChildLabelSuite
from satchel.testing.children import ChildSuite
from satchel.testing.context import ContextSuite
from satchel.testing.copying import CopySuite
from satchel.testing.expiry import ExpirySuite
from satchel.testing.follow import FollowSuite
from satchel.testing.followed_streams import FollowedStreamSuite
from satchel.testing.forks import ForkSuite
from satchel.testing.idempotency import IdempotencySuite
from satchel.testing.interrupted_imports import InterruptedImportSuite
from satchel.testing.interrupted_streams import InterruptedStreamSuite
from satchel.testing.isolation import IsolationSuite
from satchel.testing.layers import LayerSuite
from satchel.testing.leases import LeaseSuite
from satchel.testing.lifecycle import LifecycleSuite
from satchel.testing.listing import ListingSuite
from satchel.testing.loop_end import LoopEndSuite
from satchel.testing.memory import MemorySuite
from satchel.testing.messages import LabelSuite, LimitSuite, MessageSuite
from satchel.testing.names import NameSuite
from satchel.testing.own_runs import OwnRunSuite
from satchel.testing.ownership import OwnershipSuite
from satchel.testing.question_ends import QuestionEndSuite
from satchel.testing.question_refusals import QuestionRefusalSuite
from satchel.testing.questions import QuestionSuite
from satchel.testing.races import RaceSuite
from satchel.testing.replays import ReplaySuite
from satchel.testing.runs import RunSuite
from satchel.testing.spelling import SpellingSuite
from satchel.testing.steps import StepSuite
from satchel.testing.store_loading import StoreLoadingSuite
from satchel.testing.store_reading import StoreReadingSuite
from satchel.testing.store_writing import StoreWritingSuite
from satchel.testing.streams import StreamLimitSuite, StreamSuite
from satchel.testing.suite import StoreFactory, StoreSuite
from satchel.testing.tokens import TokenSuite
from satchel.testing.tool_calls import ToolCallSuite
from satchel.testing.transfer import TransferSuite
from satchel.testing.transitions import TransitionSuite
from satchel.testing.versions import VersionSuite
from satchel.testing.waiting_in_place import WaitingInPlaceSuite

SUITES: tuple[type[StoreSuite], ...] = (
    LifecycleSuite,
    NameSuite,
    ExpirySuite,
    MessageSuite,
    LimitSuite,
    LabelSuite,
    VersionSuite,
    MemorySuite,
    ToolCallSuite,
    RunSuite,
    OwnRunSuite,
    LeaseSuite,
    RaceSuite,
    TransitionSuite,
    QuestionSuite,
    AnswerSuite,
    QuestionRefusalSuite,
    QuestionEndSuite,
    WaitingInPlaceSuite,
    StepSuite,
    LayerSuite,
    ChildSuite,
    ChildLabelSuite,
    ChildEndSuite,
    SpellingSuite,
    IdempotencySuite,
    ReplaySuite,
    OwnershipSuite,
    ListingSuite,
    FollowSuite,
    StreamSuite,
    InterruptedStreamSuite,
    FollowedStreamSuite,
    StreamLimitSuite,
    TransferSuite,
    InterruptedImportSuite,
    ForkSuite,
    CopySuite,
    BrokenCopySuite,
    ContextSuite,
    TokenSuite,
    IsolationSuite,
    LoopEndSuite,
    StoreWritingSuite,
    StoreLoadingSuite,
    StoreReadingSuite,
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
