"""A batch holds many callers: what one of them breaks, no other hears of."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest

from satchel.domain.decisions.decision import Decision
from satchel.domain.decisions.housekeeping import Settle
from satchel.domain.decisions.messages import RetractMessage
from satchel.domain.decisions.runs import CancelRun, StartRun
from satchel.domain.ids import SessionRef
from satchel.domain.message import Message
from satchel.domain.state import Clock, Effect, SessionState, Unchanged, Want
from satchel.errors import InvalidInput, StoreBusy, StoreMisused, StoreUnavailable
from satchel.store import Change, Loaded, Outcome, Store
from satchel.stores.memory import MemoryStore
from satchel.stores.sqlite import SqliteStore
from satchel.testing.clock import SettableClock
from satchel.testing.stage import ADA, ADA_ELSEWHERE, TENANT, Stage, said
from satchel.testing.wrappers import StoreWrapper


class Trap(StoreWrapper):
    """Raises ``error`` from every transaction that ``falls``, before it or after it; counts them all."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.error: BaseException = KeyError("a fault of the store")
        self.falls: Callable[[Mapping[SessionRef, Want]], bool] = lambda _: False
        self.after = False
        self.transactions = 0

    async def transact(
        self, wanted: Mapping[SessionRef, Want], decide: Callable[[Loaded], Sequence[Change]]
    ) -> list[Outcome]:
        self.transactions += 1
        falls = self.falls(wanted)
        if falls and not self.after:
            raise self.error
        outcomes = await self.inner.transact(wanted, decide)
        if falls:
            raise self.error
        return outcomes


@pytest.fixture(params=["memory", "sqlite"])
async def stage(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Stage]:
    clock = SettableClock()
    inner: Store = MemoryStore(clock=clock)
    if request.param == "sqlite":
        inner = SqliteStore(tmp_path / "apart.db", clock=clock)
    made = Stage(Trap(inner), clock)
    async with made.opened:
        yield made


def trap_of(stage: Stage) -> Trap:
    assert isinstance(stage.store, Trap)
    return stage.store


class FaultyWant(Settle, frozen=True, kw_only=True):
    def want(self) -> Want:
        raise ZeroDivisionError("want")


class FaultySize(Settle, frozen=True, kw_only=True):
    @property
    def size(self) -> int:
        raise ZeroDivisionError("size")


class Faulty(Settle, frozen=True, kw_only=True):
    fault: ClassVar[type[Exception]] = ZeroDivisionError

    def effect(self, state: SessionState, clock: Clock) -> Effect | Unchanged:
        raise self.fault("effect")


class Stopping(Faulty, frozen=True, kw_only=True):
    fault: ClassVar[type[Exception]] = StopIteration  # which no future takes


def odd_decisions(session_id: str) -> list[tuple[Decision[Any], type[Exception]]]:
    """Past every door: as if one check had been forgotten there."""
    ref = SessionRef(TENANT, session_id)
    unhashable: Any = []
    no_text: Any = object()
    return [
        (RetractMessage(ref=ref, principal=ADA, seq=2**64), Exception),
        (CancelRun(ref=ref, principal=ADA, run_id=unhashable), InvalidInput),
        (CancelRun(ref=ref, principal=ADA, run_id="\ud800"), Exception),
        (StartRun(ref=ref, principal=ADA, run_id=no_text, lease=1), Exception),
        (FaultyWant(ref=ref, principal=ADA), ZeroDivisionError),
        (FaultySize(ref=ref, principal=ADA), ZeroDivisionError),
        (Faulty(ref=ref, principal=ADA), ZeroDivisionError),
        (Stopping(ref=ref, principal=ADA), Exception),
    ]


async def submitted(stage: Stage, decision: Decision[Any]) -> Any:
    return await stage.opened.committer.submit(decision)


async def test_an_odd_wish_is_heard_by_its_own_caller_alone(stage: Stage) -> None:
    mine, theirs = await stage.session(), await stage.session(ADA_ELSEWHERE)
    for written, (decision, error) in enumerate(odd_decisions(mine), start=1):
        async with asyncio.timeout(5):  # nobody waits for ever either
            answers: tuple[Any, ...] = await asyncio.gather(
                submitted(stage, decision),
                stage.sessions(ADA_ELSEWHERE).append_message(theirs, said("hello")),
                stage.sessions().append_message(mine, said("hello")),
                return_exceptions=True,
            )
        told, beside, same_session = answers
        assert isinstance(told, error), decision
        assert isinstance(beside, Message), f"{decision}: {beside!r}"
        assert isinstance(same_session, Message), f"{decision}: {same_session!r}"
        assert (beside.seq, same_session.seq, same_session.replayed) == (written, written, False)


@pytest.mark.parametrize("after", [False, True], ids=["before the commit", "after the commit"])
async def test_a_fault_of_the_store_over_one_session_harms_no_other(stage: Stage, after: bool) -> None:
    trap = trap_of(stage)
    bad, *good = [await stage.session() for _ in range(4)]
    trap.falls, trap.after = lambda wanted: SessionRef(TENANT, bad) in wanted, after
    told = await asyncio.gather(
        *[stage.sessions().append_message(one, said(f"{n}")) for n in range(3) for one in (bad, *good)],
        return_exceptions=True,
    )
    assert [type(one) for one in told[::4]] == [KeyError] * 3
    for one in good:
        assert [message.content for message in (await stage.sessions().messages(one)).items] == ["0", "1", "2"]
    answers = [one for one in told if isinstance(one, Message)]
    assert len(answers) == 9
    assert not any(message.replayed for message in answers)  # though the first attempt may have landed
    trap.falls = lambda _: False
    assert (await stage.sessions().append_message(bad, said("again"))).seq in (1, 4)
    assert len(await stage.log(bad)) in (1, 4)  # each of the three at most once


async def test_of_several_decisions_on_one_session_only_the_guilty_one_fails(stage: Stage) -> None:
    trap = trap_of(stage)
    session_id = await stage.session()
    trap.falls = lambda wanted: any(want.event_seqs for want in wanted.values())  # a retraction looks for its event
    written = await stage.sessions().append_message(session_id, said("first"))
    told = await asyncio.gather(
        stage.sessions().append_message(session_id, said("second")),
        stage.sessions().retract_message(session_id, written.seq),
        stage.sessions().append_message(session_id, said("third")),
        return_exceptions=True,
    )
    assert [type(one).__name__ for one in told] == ["Message", "KeyError", "Message"]
    assert [message.content for message in (await stage.sessions().messages(session_id)).items] == [
        "first",
        "second",
        "third",
    ]


@pytest.mark.parametrize("error", [StoreUnavailable("away"), StoreBusy()], ids=lambda error: type(error).__name__)
async def test_a_store_that_is_away_is_not_asked_again_for_each(stage: Stage, error: Exception) -> None:
    trap = trap_of(stage)
    chosen = [await stage.session() for _ in range(5)]
    trap.error, trap.falls, trap.transactions = error, lambda _: True, 0
    told = await asyncio.gather(
        *[stage.sessions().append_message(one, said("x")) for one in chosen], return_exceptions=True
    )
    assert {type(one) for one in told} == {type(error)}
    assert trap.transactions == 1


async def test_many_writers_share_commits_right_after_a_lone_one(stage: Stage) -> None:
    trap = trap_of(stage)
    chosen = [await stage.session() for _ in range(5)]
    for n in range(40):  # by now a write is expected to have no company, and starts at once
        assert (await stage.sessions().append_message(chosen[0], said("x"))).seq == n + 1
    trap.transactions = 0
    for _ in range(3):
        told = await asyncio.gather(*[stage.sessions().append_message(one, said("y")) for one in chosen])
        assert [one.seq - told[1].seq for one in told] == [40, 0, 0, 0, 0]
    assert trap.transactions <= 4


async def test_an_answer_that_is_none_keeps_nobody_waiting(stage: Stage) -> None:
    class Forgetful(Trap):
        async def transact(
            self, wanted: Mapping[SessionRef, Want], decide: Callable[[Loaded], Sequence[Change]]
        ) -> list[Outcome]:
            return (await self.inner.transact(wanted, decide))[1:]

    chosen = [await stage.session() for _ in range(3)]
    forgetful = Stage(Forgetful(trap_of(stage).inner), stage.clock)
    async with asyncio.timeout(5):
        told = await asyncio.gather(
            *[forgetful.sessions().append_message(one, said("x")) for one in chosen], return_exceptions=True
        )
    assert [(one.seq, one.replayed) for one in told if isinstance(one, Message)] == [
        (1, False)
    ] * 3  # they find themselves


async def test_those_that_go_apart_do_not_keep_the_others_waiting(stage: Stage) -> None:
    """What failed together is tried again in order, while new writes come in."""
    trap = trap_of(stage)
    bad, good = await stage.session(), await stage.session()
    trap.falls = lambda wanted: SessionRef(TENANT, bad) in wanted
    sessions = stage.sessions()

    async def writes(session_id: str) -> list[Any]:
        told: list[Any] = []
        for n in range(10):
            told += await asyncio.gather(
                sessions.append_message(session_id, said(f"{n}")), asyncio.sleep(0), return_exceptions=True
            )
        return told[::2]

    async with asyncio.timeout(10):
        refused, taken = await asyncio.gather(writes(bad), writes(good))
    assert {type(one) for one in refused} == {KeyError}
    assert [message.seq for message in taken] == list(range(1, 11))


async def test_an_opened_store_is_opened_again_after_it_was_closed(tmp_path: Path) -> None:
    for store in (MemoryStore(), SqliteStore(tmp_path / "again.db")):
        stage = Stage(store, SettableClock())
        await stage.opened.open()
        session_id = await stage.session()
        await stage.opened.close()
        with pytest.raises(StoreMisused, match=r"not open|closed"):
            await stage.sessions().append_message(session_id, said("hello"))
        await stage.opened.open()
        assert (await stage.sessions().append_message(session_id, said("hello"))).seq == 1
        await stage.opened.close()
        await stage.opened.close()


async def test_a_write_that_landed_is_no_refusal_when_its_session_was_deleted_behind_it(stage: Stage) -> None:
    """Both in one commit of which the store could not tell: each finds itself."""

    class Unsure(Trap):
        async def transact(
            self, wanted: Mapping[SessionRef, Want], decide: Callable[[Loaded], Sequence[Change]]
        ) -> list[Outcome]:
            self.transactions += 1
            outcomes = await self.inner.transact(wanted, decide)
            return [Outcome.UNKNOWN for _ in outcomes] if self.transactions == 1 else outcomes

    session_id = await stage.session()
    unsure = Stage(Unsure(trap_of(stage).inner), stage.clock)
    told = await asyncio.gather(
        unsure.sessions().append_message(session_id, said("hello")), unsure.sessions().delete_session(session_id)
    )
    assert (told[0].seq, told[0].replayed, told[1].status) == (1, False, "DELETED")
