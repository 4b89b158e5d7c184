"""Which messages of a session a model is shown: of the runs that a reader may hear of, and of no child run but itself."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from satchel.domain.event import Event
from satchel.domain.ids import SessionRef
from satchel.domain.record import SessionRecord
from satchel.domain.run import RunRow
from satchel.domain.tool_call import CallRow
from satchel.store import Store

RUNS = 100  # rows of one look


class Shown:
    """``run_number``: nothing of later runs is shown. ``reader``: the run that is shown this; a child run is shown what it said
    itself. ``runs``: the newest ones, which are known already."""

    def __init__(
        self,
        store: Store,
        record: SessionRecord,
        runs: Iterable[RunRow],
        *,
        run_number: int | None = None,
        reader: RunRow | None = None,
    ) -> None:
        self._store = store
        self._ref: SessionRef = record.ref
        self._run_number = run_number
        self._reader = reader
        self._known = {run.run_id: run for run in runs}
        oldest = min((run.number for run in self._known.values()), default=None)
        # Behind this one lie no runs that would be hidden: none is a child, none is later.
        passed = run_number is None or (oldest is not None and oldest <= run_number + 1)
        self._is_all_known = record.child_runs == 0 and (passed or not self._known)
        self._before = oldest
        if reader is not None:
            self._known[reader.run_id] = reader
        self.hidden = 0  # messages that were left out, for what run they are of

    async def runs(self, most: int) -> list[RunRow]:
        """The newest runs that are shown, in order."""
        shown = self._shown_runs()
        if len(shown) < most and not self._is_all_known:
            await self._look()
            shown = self._shown_runs()
        return shown[-most:]

    def _shown_runs(self) -> list[RunRow]:
        return sorted((run for run in self._known.values() if self._is_shown(run)), key=lambda run: run.number)

    async def calls(self, calls: Sequence[CallRow]) -> list[CallRow]:
        await self._learn(call.run_id for call in calls)
        return [call for call in calls if self._shows(call.run_id)]

    async def messages(self, events: Sequence[Event]) -> list[Event]:
        """Without those of hidden runs, and those that nobody is going to answer."""
        await self._learn(event.run_id for event in events)
        shown = [event for event in events if self._shows(event.run_id)]
        self.hidden += len(events) - len(shown)
        return [event for event in shown if event.status != "unanswered"]

    def _shows(self, run_id: str | None) -> bool:
        run = None if run_id is None else self._known.get(run_id)
        return run is None or self._is_shown(run)

    def _is_shown(self, run: RunRow) -> bool:
        if self._reader is not None and run.run_id == self._reader.run_id:
            return True
        if run.parent_run_id is not None:
            return False
        return self._run_number is None or run.number <= self._run_number

    async def _learn(self, run_ids: Iterable[str | None]) -> None:
        """Look at older runs until these are known."""
        wanted = {run_id for run_id in run_ids if run_id is not None} - self._known.keys()
        while wanted and not self._is_all_known:
            await self._look()
            wanted -= self._known.keys()

    async def _look(self) -> None:
        page = await self._store.runs(self._ref, before_number=self._before, limit=RUNS)
        self._known.update((run.run_id, run) for run in page.runs)
        self._is_all_known = len(page.runs) < RUNS
        if page.runs:
            self._before = page.runs[-1].number
