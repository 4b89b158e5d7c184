"""What becomes true by itself: an expiry, a lost worker, the end of retention.

Whoever may see a session and first meets it overdue commits this before being answered; the sweeper does it for sessions
that nobody meets. The actor is ``operator``.
"""

from __future__ import annotations

import msgspec

from satchel.domain.decisions.decision import holds
from satchel.domain.decisions.lifecycle import tombstone
from satchel.domain.edit import OPERATOR, Edit, needed_sweep
from satchel.domain.idempotency import Answer
from satchel.domain.record import SessionRecord
from satchel.domain.run import Attempt, RunError
from satchel.domain.state import Clock, Effect, SessionState

_encode = msgspec.json.Encoder().encode


def is_overdue(record: SessionRecord, clock: Clock) -> bool:
    """Whether something became true that nobody has committed yet."""
    if record.hidden:
        return False
    turns = record.turns_at
    if turns is not None and clock.now >= turns:
        return True
    return record.turn is not None and record.lease_is_over(clock.lease_now, clock.lease_clock)


def settle(state: SessionState, clock: Clock, *, writer: Attempt | None = None) -> Effect | None:
    """The next thing that is overdue, or None. The attempt that still has the run is not taken for dead by its own write."""
    record = state.existing
    if not is_overdue(record, clock):
        return None
    turns = record.turns_at
    if turns is not None and clock.now >= turns:
        if record.status == "ACTIVE":
            return _expire(state, clock)
        return tombstone(Edit(state, clock, OPERATOR), reason="retention")
    if writer is not None and holds(record, writer):
        return None
    return _lose_worker(state, clock)


def _expire(state: SessionState, clock: Clock) -> Effect:
    record = state.existing
    lifetime = record.policy.max_lifetime
    reason = "max_lifetime" if lifetime is not None and clock.now >= record.clock_from + lifetime else "idle"
    edit = Edit(state, clock, OPERATOR)
    edit.end_open_work("session_expired")
    edit.event("session_expired", _encode({"reason": reason}))
    edit.move_to("EXPIRED", reason=reason)
    return edit.finish(edit.answer(status="EXPIRED"))


def _lose_worker(state: SessionState, clock: Clock) -> Effect:
    turn = state.existing.turn
    assert turn is not None  # its lease is over
    edit = Edit(state, clock, OPERATOR)
    row = edit.run(turn.run_id)
    assert row is not None, "open work was not loaded"
    if row.attempt < row.max_attempts and not row.cancel_requested:
        for call in edit.get("open_calls"):
            if call.run_id == row.run_id:
                edit.end_call(edit.call(call.seq), "unknown")
        row = edit.run(row.run_id) or row
        edit.put_run(msgspec.structs.replace(row, status="READY"))
        edit.event("run_returned", _encode({"attempt": row.attempt, "reason": "worker_lost"}), run_id=row.run_id)
        edit.fields["turn"] = msgspec.structs.replace(turn, status="READY")
        edit.fields["lease_until"] = None
        edit.fields["lease_clock"] = ""
    elif row.cancel_requested:
        edit.end_run(row, "CANCELLED", stop_reason="cancelled", calls="unknown")
    else:
        error = RunError(code="worker_lost", message="the process that executed this run stopped renewing its lease")
        edit.end_run(row, "FAILED", stop_reason="worker_lost", error=error, calls="unknown")
    return edit.finish(edit.answer())


def move_sweep_on(record: SessionRecord, clock: Clock) -> Effect | None:
    """Nothing was due: the sweeper's entry moves to the next instant at which something will be."""
    if record.sweep_at is None or record.sweep_at > clock.now or record.erasing or record.hidden:
        return None
    moved = msgspec.structs.replace(record, sweep_at=needed_sweep(record))
    return Effect(record=moved, answer=Answer(version=record.version, at=clock.now))
