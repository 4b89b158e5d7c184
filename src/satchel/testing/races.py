"""A run's end, when several want it at once: the first terminal commit wins, and the queue goes on."""

from __future__ import annotations

import asyncio
import collections
import random
from collections.abc import Awaitable, Sequence

from satchel.domain.run import Attempt, Run
from satchel.errors import IllegalTransition, RunFenced
from satchel.testing.stage import ADA, Stage
from satchel.testing.suite import StoreSuite

LEASE = 30
AT_ONCE = 50
EVERYBODY = {"COMPLETED", "CANCELLED", "FAILED"}


class RaceSuite(StoreSuite):
    """``races``: how many of them, and more, up to four times as many, until everybody has won some."""

    races = 250

    async def test_completion_cancellation_and_the_leases_end_race_and_the_first_commit_wins(
        self, stage: Stage, second: Stage
    ) -> None:
        luck = random.Random(7)  # noqa: S311  # repeatable, not secret
        won: collections.Counter[str] = collections.Counter()
        while won.total() < self.races or (won.keys() != EVERYBODY and won.total() < 4 * self.races):
            races = await asyncio.gather(*(_begun(stage, second, luck) for _ in range(AT_ONCE)))
            ended = asyncio.gather(*(race.run() for race in races))
            await _turns(luck.randrange(16))
            stage.clock.pass_lease_time(LEASE)
            await ended
            won.update([await race.check() for race in races])
        assert won.keys() == EVERYBODY, "not everybody won a race: this shows little"


async def _turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def _begun(stage: Stage, second: Stage, luck: random.Random) -> _Race:
    doors, late = [stage, second], [luck.randrange(12) for _ in range(3)]
    luck.shuffle(doors)
    sid = await stage.session()
    _, attempt = await stage.started_run(sid, lease=LEASE)
    behind = await stage.runs().add_run(sid, input="next", on_busy="queue")
    return _Race(doors, sid, attempt, behind, late)


class _Race:
    """Its worker completes a run; the owner cancels it, and somebody ends it for that; a reader meets its lease. ``late``: so
    many turns of the loop each of them lets pass before."""

    def __init__(self, doors: list[Stage], sid: str, attempt: Attempt, behind: Run, late: list[int]) -> None:
        self._first, self._second = doors
        self._sid = sid
        self._attempt = attempt
        self._behind = behind
        self._late = late
        self._told: Sequence[Run | BaseException] = ()

    async def run(self) -> None:
        complete, cancel, meet = self._late
        self._told = await asyncio.gather(
            self._after(complete, self._first.runs().complete_run(self._sid, self._attempt)),
            self._after(cancel, self._cancel()),
            self._after(meet, self._meet()),
            return_exceptions=True,
        )

    async def _after(self, turns: int, call: Awaitable[Run]) -> Run:
        await _turns(turns)
        return await call

    async def _cancel(self) -> Run:
        asked = await self._second.runs(ADA).cancel_run(self._sid, self._attempt.run_id)
        if asked.is_terminal:
            return asked
        return await self._second.runs().end_cancelled_run(self._sid, self._attempt)

    async def _meet(self) -> Run:
        """Until the run is over: at the latest its lease ends it."""
        while True:
            run = await self._second.runs(ADA).get_run(self._sid, self._attempt.run_id)
            if run.is_terminal:
                return run
            await asyncio.sleep(0)

    async def check(self) -> str:
        """The status that won."""
        run_id = self._attempt.run_id
        kept = await self._first.runs().get_run(self._sid, run_id)
        log = await self._second.log(self._sid)
        assert [event.kind for event in log if event.run_id == run_id].count("run_ended") == 1
        completed, cancelled, met = self._told
        assert isinstance(met, Run)
        assert met.status == kept.status, "a terminal run was changed"
        if kept.status == "COMPLETED":
            assert isinstance(completed, Run)
            assert isinstance(cancelled, RunFenced | IllegalTransition), cancelled
        elif isinstance(cancelled, Run):
            assert (kept.status, cancelled.status) == ("CANCELLED", "CANCELLED")
            assert isinstance(completed, RunFenced), completed
        else:
            assert isinstance(completed, RunFenced), completed
            assert isinstance(cancelled, RunFenced | IllegalTransition), cancelled
            assert kept.stop_reason == ("cancelled" if kept.status == "CANCELLED" else "worker_lost")
        record = await self._second.record(self._sid)
        assert record.last_seq == len(log)
        assert record.turn is not None
        assert (record.turn.run_id, record.turn.status, record.queue) == (self._behind.run_id, "READY", ())
        return kept.status
