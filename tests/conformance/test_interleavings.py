"""Two renewals, an append, a sweep and a claim, in every order of their loads and commits, while the lease clock goes on at
every place: nobody takes a run whose worker lives, and no renewal and no append is lost.

Renewals, sweeps that find nothing, and leases do not move a session's version: only the revision tells these apart.
"""

from __future__ import annotations

import collections
from collections.abc import Sequence

import pytest

from satchel.domain.clock import SECOND
from satchel.domain.decisions.housekeeping import Sweep
from satchel.domain.ids import SessionRef
from satchel.domain.run import Run
from satchel.errors import IllegalTransition, RunFenced
from satchel.store import Store
from satchel.stores.memory import MemoryStore
from satchel.testing.clock import SettableClock
from satchel.testing.stage import ADA, ADAS_AGENT, OPERATOR, TENANT, Stage, said
from tests.conformance.interleavings import CLOCK, Call, Party, schedules

LEASE = 30
CALLS = {"worker": 2, "append": 1, "sweep": 1, "claim": 1}


class Race:
    """One session with a run whose worker lives, and everybody who has to do with it."""

    def __init__(self, store: Store, clock: SettableClock) -> None:
        self._store = store
        self._clock = clock
        self._door = Stage(store, clock)

    async def begin(self, names: Sequence[str]) -> None:
        self._sid = await self._door.session()
        _, self._attempt = await self._door.started_run(self._sid, lease=LEASE, max_attempts=2)
        self._parties = {name: Party(self._store, self._clock, getattr(self, f"_{name}")) for name in names}

    def _worker(self, stage: Stage) -> list[Call]:
        return [lambda: stage.runs(ADAS_AGENT).renew_run(self._sid, self._attempt)] * 2

    def _append(self, stage: Stage) -> list[Call]:
        return [lambda: stage.sessions(ADA).append_message(self._sid, said("x"))]

    def _sweep(self, stage: Stage) -> list[Call]:
        visit = Sweep(ref=SessionRef(TENANT, self._sid), principal=OPERATOR)
        return [lambda: stage.opened.committer.submit(visit)]

    def _claim(self, stage: Stage) -> list[Call]:
        return [lambda: stage.runs(OPERATOR).start_run(self._sid, self._attempt.run_id, lease=LEASE)]

    async def play(self, schedule: Sequence[str]) -> None:
        for name in schedule:
            if name == CLOCK:
                self._clock.pass_lease_time(LEASE + 1)
            else:
                await self._parties[name].step()
        for party in self._parties.values():
            await party.end()

    async def check(self) -> str:
        """What became of the run: ``kept``, ``returned`` or ``claimed``."""
        record = await self._door.record(self._sid)
        log = await self._door.log(self._sid)
        kinds = [event.kind for event in log]
        assert [event.seq for event in log] == list(range(1, len(log) + 1))
        assert record.last_seq == len(log)
        assert record.version == log[-1].version
        assert kinds.count("message") == record.messages == ("append" in self._parties), "the append was lost"
        if "append" in self._parties:
            ((message, _),) = self._parties["append"].told
            assert [event.seq for event in log if event.kind == "message"] == [message.seq]

        turn = record.turn
        assert turn is not None
        taken = kinds.count("run_returned")
        renewals = self._parties["worker"].told
        held = [at for answer, at in renewals if answer is False]
        assert all(isinstance(answer, RunFenced) for answer, _ in renewals[len(held) :]), renewals
        living = bool(held) and held[-1] + LEASE * SECOND > self._clock.lease_now
        if taken == 0:
            assert len(held) == 2, "a renewal was refused although nobody had taken the run"
            assert (turn.attempt, turn.status) == (1, "RUNNING")
            assert turn.lease is not None
            assert turn.lease.until == held[-1] + LEASE * SECOND, "a renewal was lost"
        else:
            assert taken == 1
            assert not living, "a run was taken whose worker was told that it has it"
        if "claim" in self._parties:
            ((claimed, _),) = self._parties["claim"].told
            assert isinstance(claimed, Run | IllegalTransition), claimed
            assert isinstance(claimed, Run) == (taken == 1 and turn.attempt == 2) == (kinds.count("run_started") == 2)
        return "claimed" if turn.attempt == 2 else "returned" if taken else "kept"


async def play_all(names: Sequence[str]) -> collections.Counter[str]:
    """All schedules of these parties, with the clock; what became of their runs."""
    became: collections.Counter[str] = collections.Counter()
    clock = SettableClock()
    store = MemoryStore(clock=clock)
    for schedule in schedules({name: CALLS[name] for name in names}, clock=True):
        race = Race(store, clock)
        await race.begin(names)
        try:
            await race.play(schedule)
            became[await race.check()] += 1
        except AssertionError as broken:
            raise AssertionError(f"{' '.join(schedule)}: {broken}") from broken
    return became


@pytest.mark.parametrize("taker", ["sweep", "claim"])
async def test_no_order_of_renewals_an_append_and_a_taker_takes_a_living_run(taker: str) -> None:
    became = await play_all(["worker", "append", taker])
    assert min(became["kept"], became["claimed" if taker == "claim" else "returned"]) > 10


@pytest.mark.full
@pytest.mark.timeout(600)
async def test_no_order_of_renewals_an_append_a_sweep_and_a_claim_takes_a_living_run() -> None:
    became = await play_all(["worker", "append", "sweep", "claim"])
    assert became.keys() == {"kept", "returned", "claimed"}


def test_schedules_hold_every_order_once() -> None:
    """Of the six orders of two calls four can be told apart: which of two loads next to each other comes first is one thing."""
    found = list(schedules({"a": 1, "b": 1}, clock=False))
    assert sorted(found) == [tuple("aabb"), tuple("abab"), tuple("abba"), tuple("bbaa")]
    assert len(list(schedules(CALLS, clock=True))) == 31_464
