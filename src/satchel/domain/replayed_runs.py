"""Runs, the turn and the queue, replayed from their events. Leases are in no log."""

from __future__ import annotations

import msgspec

from satchel.domain.bodies import Reasoned, RunAdded, RunEnded, RunReturned, RunStarted, RunStep, read_body
from satchel.domain.decisions.runs import asked_to_stop
from satchel.domain.event import Event
from satchel.domain.json_text import raw_json
from satchel.domain.layer import without_layer
from satchel.domain.memory import admit_patch
from satchel.domain.record import OpenChild, Turn, Waiting
from satchel.domain.replayed import Replayed
from satchel.domain.run import LEGAL, RunRow
from satchel.errors import LimitExceeded

_encode = msgspec.json.Encoder().encode

MOVED = "moved"  # why a run ends that was open when its session was copied


class ReplayedRuns(Replayed):
    def said_by_run(self, event: Event) -> None:
        """A message of a run: written while it was RUNNING, or the input that it waited with."""
        row = self.state.runs.get(event.run_id or "")
        waits = row is not None and row.status == "READY" and row.attempt == 0 and row.input_seq is None
        if row is not None and waits:
            self.put_run(event, msgspec.structs.replace(row, input_seq=event.seq))
        elif event.status == "unanswered":
            raise ValueError("is no input of a run that waits")
        else:
            self.run_at_work(event)

    def run_added(self, event: Event) -> None:
        body = read_body(event.body, RunAdded)
        if event.run_id is None or event.run_id in self.state.runs:
            raise ValueError("adds no new run")
        if body.number != self.get("run_number") + 1:
            raise ValueError(f"adds run number {body.number} behind {self.get('run_number')}")
        row = RunRow(
            run_id=event.run_id,
            number=body.number,
            status="READY",
            created_at=event.at,
            version=event.version,
            goal=body.goal,
            agent=body.agent,
            max_attempts=body.max_attempts,
            memory=body.memory,
            metadata=raw_json(bytes(body.metadata)),
        )
        self.adders[row.run_id] = event.actor
        self.fields["run_number"] = body.number
        self.fields["runs"] = self.get("runs") + 1
        if body.parent_run_id is not None:
            self._child_added(event, row, body)
            return
        self.put_run(event, row)
        queue = self.get("queue")
        if self.get("turn") is None:
            self.fields["turn"] = Turn(run_id=row.run_id, status="READY", agent=row.agent)
            return
        if len(queue) >= self.limits.queued_runs:
            raise LimitExceeded(
                field="runs",
                size=len(queue) + 1,
                limit=self.limits.queued_runs,
                setting="limits.queued_runs",
                unit="runs in the queue",
            )
        waiting = Waiting(run_id=row.run_id, agent=row.agent)
        self.fields["queue"] = (waiting, *queue) if body.goes_next else (*queue, waiting)

    def _child_added(self, event: Event, row: RunRow, body: RunAdded) -> None:
        turn: Turn | None = self.get("turn")
        if turn is None or turn.status != "RUNNING" or turn.run_id != body.parent_run_id:
            raise ValueError(f"adds a child of run {body.parent_run_id}, which is not running")
        if body.goes_next or body.max_attempts != 1 or body.memory != "session":
            raise ValueError("gives a child run what it cannot have: a turn, attempts, or a memory of its own")
        children = self.get("children")
        if len(children) >= self.limits.open_children:
            raise LimitExceeded(
                field="runs",
                size=len(children) + 1,
                limit=self.limits.open_children,
                setting="limits.open_children",
                unit="open child runs",
            )
        self.put_run(
            event,
            msgspec.structs.replace(
                row,
                status="RUNNING",
                attempt=1,
                start_time=event.at,
                parent_run_id=turn.run_id,
                added_seq=event.seq,
            ),
        )
        self.fields["children"] = (*children, OpenChild(run_id=row.run_id))
        self.fields["child_runs"] = self.get("child_runs") + 1

    def run_started(self, event: Event) -> None:
        row = self._run(event)
        body = read_body(event.body, RunStarted)
        attempt = body.attempt
        turn: Turn | None = self.get("turn")
        if row.status != "READY" or turn is None or turn.run_id != row.run_id or attempt != row.attempt + 1:
            raise ValueError(f"starts attempt {attempt} of a run that is {row.status}, or has not the turn")
        self.adders.pop(row.run_id, None)
        start_time = event.at if row.start_time is None else row.start_time
        if body.goes_on:
            if not row.answered:
                raise ValueError("goes on with a run that never waited")
        else:
            row = without_layer(row)
        self.put_run(event, msgspec.structs.replace(row, status="RUNNING", attempt=attempt, start_time=start_time))
        self.fields["turn"] = Turn(
            run_id=row.run_id, status="RUNNING", attempt=attempt, agent=row.agent, has_layer=row.memory == "run"
        )

    def run_step(self, event: Event) -> None:
        body = read_body(event.body, RunStep)
        self.run_at_work(event)
        row = self._run(event)
        self.put_run(event, msgspec.structs.replace(row, usage=row.usage.plus(body.usage)))
        self.count_step(event, row.run_id)

    def run_returned(self, event: Event) -> None:
        row = self._run(event)
        attempt = read_body(event.body, RunReturned).attempt
        if row.status != "RUNNING" or row.parent_run_id is not None or attempt != row.attempt:
            raise ValueError("returns a run that is not in this attempt")
        self._no_open_children()
        self.put_run(event, msgspec.structs.replace(row, status="READY"))
        self.fields["turn"] = msgspec.structs.replace(self.get("turn"), status="READY")

    def run_cancel_requested(self, event: Event) -> None:
        read_body(event.body, Reasoned)
        row = self._run(event)
        if row.status != "RUNNING" or row.cancel_requested:
            raise ValueError("asks a run to stop that is not running, or was asked before")
        self.put_run(event, msgspec.structs.replace(row, cancel_requested=True))
        if row.parent_run_id is None:
            self.fields["turn"] = msgspec.structs.replace(self.get("turn"), cancel_requested=True)
        else:
            self.fields["children"] = asked_to_stop(self.get("children"), row.run_id)

    def run_ended(self, event: Event) -> None:
        body = read_body(event.body, RunEnded)
        row = self._run(event)
        if body.status not in LEGAL[row.status] and not (row.status == "READY" and body.stop_reason == MOVED):
            raise ValueError(f"ends a {row.status} run as {body.status}")
        if body.not_merged is not None:
            row = self._kept_by_run(row, body)
        if body.status == "COMPLETED":
            row = without_layer(row)
        if body.steps != row.steps or body.usage.total_tokens != row.usage.total_tokens:
            raise ValueError("counts other steps or tokens than the run had")
        self.put_run(
            event,
            msgspec.structs.replace(
                row,
                status=body.status,
                end_time=event.at,
                stop_reason=body.stop_reason,
                error=body.error,
                question=None,
            ),
        )
        self.fields["usage"] = self.get("usage").plus(row.usage)
        turn: Turn | None = self.get("turn")
        queue: tuple[Waiting, ...] = tuple(one for one in self.get("queue") if one.run_id != row.run_id)
        if row.parent_run_id is not None:
            self.fields["children"] = tuple(one for one in self.get("children") if one.run_id != row.run_id)
        if turn is not None and turn.run_id == row.run_id:
            self._no_open_children()
            turn = Turn(run_id=queue[0].run_id, status="READY", agent=queue[0].agent) if queue else None
            queue = queue[1:]
        self.fields["turn"] = turn
        self.fields["queue"] = queue

    def _kept_by_run(self, row: RunRow, body: RunEnded) -> RunRow:
        assert body.not_merged is not None
        if row.memory != "run" or body.status != "COMPLETED":
            raise ValueError("keeps what a run without a layer, or one that did not complete, cannot have")
        admit_patch(bytes(body.not_merged.patch), limits=self.limits)
        return msgspec.structs.replace(row, not_merged=msgspec.Raw(_encode(body.not_merged)))

    def _no_open_children(self) -> None:
        if self.get("children"):
            raise ValueError("leaves child runs open")

    def _run(self, event: Event) -> RunRow:
        row = self.state.runs.get(event.run_id or "")
        if row is None:
            raise ValueError("is about an unknown run")
        return row
