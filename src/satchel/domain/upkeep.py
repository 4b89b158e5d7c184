"""What becomes true by itself: an expiry, a lost worker, a question that nobody answered, the end of retention.

Whoever may see a session and first meets it overdue commits this before being answered; the sweeper does it for sessions
that nobody meets. The actor is ``operator``.
"""

from __future__ import annotations

import msgspec

from satchel.domain.clock import rfc3339
from satchel.domain.decisions.decision import holds
from satchel.domain.decisions.lifecycle import tombstone
from satchel.domain.decisions.questions import expire_question
from satchel.domain.decisions.runs import let_go
from satchel.domain.edit import OPERATOR, Edit, needed_sweep
from satchel.domain.idempotency import Answer
from satchel.domain.record import SessionRecord
from satchel.domain.run import Attempt
from satchel.domain.state import Clock, Effect, SessionState, Want, merge_wants
from satchel.domain.stream import StreamKey

_encode = msgspec.json.Encoder().encode


def is_overdue(record: SessionRecord, clock: Clock) -> bool:
    """Whether something became true that nobody has committed yet."""
    return not record.hidden and is_past(record, record.due_at, clock)


def is_past(record: SessionRecord, due: int | None, clock: Clock) -> bool:
    """The same of a session that is seen, by who knows what its ``due_at`` says."""
    if due is not None and clock.now >= due:
        return True
    return record.lease_until is not None and record.has_lease_over(clock.lease_now, clock.lease_clock)


def may_settle(record: SessionRecord, clock: Clock) -> bool:
    """Whether a decision may have to end what is open, whatever it is about: something is overdue, or may be at once when somebody
    writes where a copy broke off."""
    return record.arriving or is_overdue(record, clock)


def more_wanted(want: Want, record: SessionRecord, clock: Clock) -> Want | None:
    """``want`` with what it means for this record: open work, which is wanted too when it ``may_settle``, and a layer with the
    memory below it. None when it means nothing more."""
    run_ids: list[str] = []
    call_seqs: list[int] = []
    streams: list[StreamKey] = []
    has_layer = want.layered(record)
    with_turn = has_layer
    if want.open_work or may_settle(record, clock):
        run_ids += [waiting.run_id for waiting in record.queue]
        run_ids += [child.run_id for child in record.children]
        call_seqs += [call.seq for call in record.open_calls]
        streams += [stream.key for stream in record.streams]
        with_turn = True
    if with_turn and record.turn is not None:
        run_ids.append(record.turn.run_id)
    if not (run_ids or call_seqs or streams):
        return None
    opened = Want(run_ids=tuple(run_ids), call_seqs=tuple(call_seqs), streams=tuple(streams), working_memory=has_layer)
    return merge_wants([want, opened])


def settle(state: SessionState, clock: Clock, *, writer: Attempt | None = None) -> Effect | None:
    """The next thing that is overdue, or None. The attempt that still has the run is not taken for dead by its own write."""
    record = state.existing
    if not is_overdue(record, clock):
        return None
    due, turns = record.due_at, record.turns_at
    if due is not None and due != turns and clock.now >= due:
        return expire_question(state, clock)
    if turns is not None and clock.now >= turns:
        if record.status == "ACTIVE":
            return _expire(state, clock)
        return tombstone(Edit(state, clock, OPERATOR), reason="retention")
    turn = record.turn
    if turn is not None and turn.lease is not None and turn.lease.is_over(clock.lease_now, clock.lease_clock):
        if turn.status != "RUNNING":
            return _lose_client(state, clock, turn.run_id)
        if writer is None or not holds(record, writer):
            return _lose_worker(state, clock)
    for waiting in record.queue:
        if waiting.lease is not None and waiting.lease.is_over(clock.lease_now, clock.lease_clock):
            return _lose_client(state, clock, waiting.run_id)
    return None


def _expire(state: SessionState, clock: Clock) -> Effect:
    record = state.existing
    lifetime = record.policy.max_lifetime
    reason = "max_lifetime" if lifetime is not None and clock.now >= record.clock_from + lifetime else "idle"
    edit = Edit(state, clock, OPERATOR)
    edit.end_open_work("session_expired")
    expired_at = record.expires_at
    assert expired_at is not None  # it has come
    edit.event("session_expired", _encode({"reason": reason, "expired_at": rfc3339(expired_at)}))
    edit.move_to("EXPIRED", reason=reason)
    edit.fields["closed_at"] = expired_at  # retention counts from the instant, not from who met it
    return edit.finish(edit.answer(status="EXPIRED"))


def _lose_worker(state: SessionState, clock: Clock) -> Effect:
    turn = state.existing.turn
    assert turn is not None  # its lease is over
    edit = Edit(state, clock, OPERATOR)
    row = edit.run(turn.run_id)
    assert row is not None, "open work was not loaded"
    let_go(
        edit,
        row,
        reason="worker_lost",
        message="the process that executed this run stopped renewing its lease",
    )
    return edit.finish(edit.answer())


def _lose_client(state: SessionState, clock: Clock, run_id: str) -> Effect:
    """A run that its own client was going to start, when its turn came: the client is gone, and nobody else will."""
    edit = Edit(state, clock, OPERATOR)
    row = edit.run(run_id)
    assert row is not None, "open work was not loaded"
    edit.end_run(row, "CANCELLED", stop_reason="client_lost")
    return edit.finish(edit.answer())


def move_sweep_on(record: SessionRecord, clock: Clock) -> Effect | None:
    """Nothing was due: the sweeper's entry moves to the next instant at which something will be."""
    if record.sweep_at is None or record.sweep_at > clock.now or record.erasing or record.hidden:
        return None
    moved = msgspec.structs.replace(record, sweep_at=needed_sweep(record))
    return Effect(record=moved, answer=Answer(version=record.version, at=clock.now))
