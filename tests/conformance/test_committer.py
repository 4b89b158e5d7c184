"""The committer when its store misbehaves: nobody waits for ever, and nobody is told what is not so."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence

import pytest

from satchel.commit import waiting
from satchel.domain.decisions.imports import OVERTAKEN, GiveUpCopy, WriteChunk
from satchel.domain.decisions.lifecycle import CloseSession
from satchel.domain.idempotency import Answer
from satchel.domain.ids import SessionRef
from satchel.domain.state import Effect, Want
from satchel.errors import (
    OutcomeUnknown,
    SessionDeleted,
    SessionExpired,
    StoreBusy,
    StoreCorrupt,
    StoreMisused,
    StoreUnavailable,
    VersionConflict,
)
from satchel.store import Change, Landing, Loaded, Outcome
from satchel.stores.memory import MemoryStore
from satchel.testing.clock import SettableClock
from satchel.testing.stage import ADA, OPERATOR, TENANT, Stage, lasting, said
from satchel.testing.wrappers import StoreWrapper, YieldingStore


class Troubled(StoreWrapper):
    """``trouble`` is asked before each commit: an outcome for all its changes, an error to raise, or None to go on."""

    trouble: Callable[[Sequence[Change]], Outcome | Exception | None] = staticmethod(lambda _: None)
    corrupt: frozenset[str] = frozenset()

    async def load(self, wanted: Mapping[SessionRef, Want]) -> Loaded:
        loaded = await self.inner.load(wanted)
        sessions = {
            ref: StoreCorrupt(ref.session_id) if ref.session_id in self.corrupt else state
            for ref, state in loaded.sessions.items()
        }
        return Loaded(sessions=sessions, clock=loaded.clock)

    async def commit(self, changes: Sequence[Change]) -> list[Outcome]:
        met = self.trouble(changes)
        if isinstance(met, Exception):
            raise met
        if met is not None:
            return [met for _ in changes]
        return await self.inner.commit(changes)


@pytest.fixture
def clock() -> SettableClock:
    return SettableClock()


@pytest.fixture
def troubled(clock: SettableClock) -> Troubled:
    return Troubled(MemoryStore(clock=clock))


@pytest.fixture
async def stage(troubled: Troubled, clock: SettableClock) -> AsyncIterator[Stage]:
    made = Stage(troubled, clock)
    async with made.opened:
        yield made


async def test_a_write_that_is_always_stale_hears_store_busy_and_stored_nothing(
    stage: Stage, troubled: Troubled, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "PATIENCE", 0.05)
    sid = await stage.session()
    troubled.trouble = lambda _: Outcome.STALE
    with pytest.raises(StoreBusy) as met:
        await asyncio.wait_for(stage.sessions().append_message(sid, said("x")), 10)
    assert met.value.retryable
    assert await stage.log(sid) == ()


async def test_an_unknown_outcome_of_a_store_that_stays_away_is_told_as_unknown(
    stage: Stage, troubled: Troubled
) -> None:
    sid = await stage.session()
    answers: list[Outcome | Exception] = [Outcome.UNKNOWN, StoreUnavailable("gone")]
    troubled.trouble = lambda _: answers.pop(0)
    with pytest.raises(OutcomeUnknown) as met:
        await stage.sessions().append_message(sid, said("x"), idempotency_key="key-1")
    assert met.value.retryable
    troubled.trouble = lambda _: None
    told = await stage.sessions().append_message(sid, said("x"), idempotency_key="key-1")
    assert (told.seq, told.replayed) == (1, False)


async def test_a_store_that_is_away_is_told_as_away(stage: Stage, troubled: Troubled) -> None:
    sid = await stage.session()
    troubled.trouble = lambda _: StoreUnavailable("gone")
    with pytest.raises(StoreUnavailable):
        await stage.sessions().append_message(sid, said("x"))
    troubled.trouble = lambda _: None
    await stage.sessions().append_message(sid, said("x"))


async def test_a_change_that_cannot_be_stored_is_refused_and_not_tried_for_ever(
    stage: Stage, troubled: Troubled
) -> None:
    sid = await stage.session()
    troubled.trouble = lambda _: Outcome.REJECTED
    with pytest.raises(StoreCorrupt):
        await asyncio.wait_for(stage.sessions().append_message(sid, said("x")), 10)


async def test_one_corrupt_session_does_no_harm_to_the_others(stage: Stage, troubled: Troubled) -> None:
    good, bad = await stage.session(), await stage.session()
    troubled.corrupt = frozenset({bad})
    told = await asyncio.gather(
        *(stage.sessions().append_message(sid, said("x")) for sid in (good, bad, good)), return_exceptions=True
    )
    assert [type(one).__name__ for one in told] == ["Message", "StoreCorrupt", "Message"]
    assert await stage.log(bad) == ()


async def test_a_reader_of_a_store_that_takes_no_writes_is_told_expired_all_the_same(
    stage: Stage, troubled: Troubled
) -> None:
    sid = await stage.session(policy=lasting(idle=60))
    stage.clock.pass_time(60)
    troubled.trouble = lambda _: StoreUnavailable("read only")
    assert (await stage.sessions().get_session(sid)).status == "EXPIRED"
    assert (await stage.record(sid)).status == "ACTIVE"
    with pytest.raises(StoreUnavailable):
        await stage.sessions().append_message(sid, said("x"))
    troubled.trouble = lambda _: None
    with pytest.raises(SessionExpired):
        await stage.sessions().append_message(sid, said("x"))


async def test_a_session_past_its_retention_is_gone_also_from_a_store_that_takes_no_writes(
    stage: Stage, troubled: Troubled
) -> None:
    sid = await stage.session(policy=lasting(retention=60))
    await stage.sessions().append_message(sid, said("x"))
    await stage.sessions().close_session(sid)
    stage.clock.pass_time(60)
    troubled.trouble = lambda _: StoreUnavailable("read only")
    with pytest.raises(SessionDeleted):
        await stage.sessions().messages(sid)


async def test_a_refusal_because_of_a_change_that_was_never_committed_is_decided_anew(
    stage: Stage, troubled: Troubled
) -> None:
    """Two in one batch: the second is refused on what the first makes, and nobody hears before that is committed."""
    sid = await stage.session()
    rounds = 0

    def first_time_stale(changes: Sequence[Change]) -> Outcome | None:
        nonlocal rounds
        rounds += 1
        return Outcome.STALE if rounds == 1 and changes else None

    troubled.trouble = first_time_stale
    first, second = await asyncio.gather(
        stage.sessions().append_message(sid, said("first"), expected_version=0),
        stage.sessions().append_message(sid, said("second"), expected_version=0),
        return_exceptions=True,
    )
    assert rounds == 2
    assert not isinstance(first, BaseException)
    assert isinstance(second, VersionConflict)
    assert (first.version, second.current) == (1, (await stage.record(sid)).version)


async def test_a_batch_holds_at_most_256_decisions_and_4_mib(stage: Stage, troubled: Troubled) -> None:
    sids = [await stage.session() for _ in range(3)]
    sizes: list[tuple[int, int]] = []

    def measured(changes: Sequence[Change]) -> None:
        events = [event for change in changes for event in change.events]
        sizes.append((len(events), sum(len(event.body) for event in events)))

    troubled.trouble = measured
    await asyncio.gather(*(stage.sessions().append_message(sids[n % 3], said("x")) for n in range(1_000)))
    assert max(count for count, _ in sizes) <= 256
    assert len(sizes) <= 6, "writes that wait together share a commit"
    sizes.clear()
    await asyncio.gather(*(stage.sessions().append_message(sids[n % 3], said("x" * 900_000)) for n in range(12)))
    assert max(size for _, size in sizes) <= 4 * 1024 * 1024
    for sid, count in zip(sids, (338, 337, 337), strict=True):
        assert [event.seq for event in await stage.log(sid)] == list(range(1, count + 1))


async def test_a_caller_that_goes_away_takes_nobody_with_it() -> None:
    clock = SettableClock()
    stage = Stage(YieldingStore(MemoryStore(clock=clock)), clock)
    sid = await stage.session()
    writing = [asyncio.create_task(stage.sessions().append_message(sid, said(str(n)))) for n in range(20)]
    await asyncio.sleep(0)
    for task in writing[::3]:
        task.cancel()
    told = await asyncio.gather(*writing, return_exceptions=True)
    landed = [one for one in told if not isinstance(one, BaseException)]
    assert len(landed) == 13
    kept = {event.seq: event.data["content"] for event in await stage.log(sid)}
    assert all(kept[message.seq] == message.content for message in landed)
    assert list(kept) == list(range(1, len(kept) + 1))


async def test_closing_finishes_what_waits_and_takes_nothing_more() -> None:
    clock = SettableClock()
    stage = Stage(YieldingStore(MemoryStore(clock=clock)), clock)
    sid = await stage.session()
    writing = [asyncio.create_task(stage.sessions(ADA).append_message(sid, said(str(n)))) for n in range(20)]
    await asyncio.sleep(0)
    await stage.opened.committer.close()
    assert [(await task).seq for task in writing] == list(range(1, 21))
    with pytest.raises(StoreMisused):
        await stage.sessions().append_message(sid, said("late"))


class Prompt(StoreWrapper):
    """Refuses with a landing that is over before anybody could listen."""

    def transact(
        self, wanted: Mapping[SessionRef, Want], decide: Callable[[Loaded], Sequence[Change]]
    ) -> Awaitable[list[Outcome]]:
        landing: Landing[list[Outcome]] = Landing()
        landing.set_exception(StoreUnavailable("gone"))
        return landing


async def test_a_store_that_answers_at_once_is_heard(clock: SettableClock) -> None:
    made = Stage(Prompt(MemoryStore(clock=clock)), clock)
    async with asyncio.timeout(10), made.opened:
        with pytest.raises(StoreUnavailable):
            await made.session()


async def test_an_observer_that_fails_keeps_nobody_from_being_answered(clock: SettableClock) -> None:
    """Also those who came while the batch was in flight that it was told of."""

    def fail(seen: object) -> None:
        raise ValueError(seen)

    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda *_: None)
    made = Stage(YieldingStore(MemoryStore(clock=clock)), clock)
    async with asyncio.timeout(10), made.opened:
        sid = await made.session()
        made.opened.committer.observer = fail
        first = asyncio.create_task(made.sessions().append_message(sid, said("1")))
        for _ in range(3):
            await asyncio.sleep(0)
        second = asyncio.create_task(made.sessions().append_message(sid, said("2")))
        assert [(await first).seq, (await second).seq] == [1, 2]


async def test_a_copy_takes_no_place_of_what_changed_in_the_commit_before_its_own(stage: Stage) -> None:
    """They share one: the revision that the copy saw is not counted on before the commit."""
    sid = await stage.session()
    before = await stage.record(sid)
    committer, ref = stage.opened.committer, SessionRef(TENANT, sid)
    chunk = Effect(record=before, answer=Answer(version=0, at=0))
    done = await asyncio.gather(
        committer.submit(CloseSession(ref=ref, principal=ADA)),
        committer.submit(GiveUpCopy(ref=ref, principal=OPERATOR, revision=before.revision)),
        committer.submit(
            WriteChunk(ref=ref, principal=OPERATOR, over=before.revision, start=0, chunk=chunk, bytes_written=0)
        ),
    )
    assert done[-1].value == OVERTAKEN
    assert (await stage.record(sid)).status == "CLOSED"
    assert await stage.kinds(sid) == ["session_closed"]
