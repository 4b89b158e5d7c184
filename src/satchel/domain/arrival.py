"""A session that arrives from elsewhere: its record while it comes and when it is there, what is ended because it does not
travel, and whether the end of a log is such an end."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from satchel.domain.bodies import CallFinished, RunEnded, SessionExpired, read_body
from satchel.domain.clock import DAY
from satchel.domain.edit import OPERATOR, Edit, with_entries
from satchel.domain.event import Event
from satchel.domain.json_text import NO_JSON, raw_json
from satchel.domain.record import SessionRecord, decode_record, encode_record
from satchel.domain.replay import Replay
from satchel.domain.replayed_runs import MOVED
from satchel.domain.run import Run, RunError, RunRow
from satchel.domain.session import session_from
from satchel.domain.state import Clock
from satchel.domain.tool_call import CallRow, ToolCall

_encode = msgspec.json.Encoder().encode


def hidden(replay: Replay, clock: Clock) -> SessionRecord:
    return msgspec.structs.replace(
        replay.state.existing, hidden=True, sweep_at=clock.now + DAY, turn=None, queue=(), children=()
    )


def arriving(replay: Replay, clock: Clock, *, title: str, user_id: str) -> SessionRecord:
    """The beginning of what comes: seen, and as it was then. Its runs are nobody's to claim, and nothing ends, expires or is
    erased by itself: a copy that breaks off here is gone on with."""
    begun = msgspec.structs.replace(shown(replay, clock), arriving=True, title=title, user_id=user_id)
    return with_entries(msgspec.structs.replace(begun, sweep_at=None))


def shown(replay: Replay, clock: Clock) -> SessionRecord:
    """The record at the end: seen from now on, its clocks begin anew."""
    return with_entries(
        msgspec.structs.replace(
            replay.state.existing,
            hidden=False,
            active_at=clock.now,
            clock_from=clock.now,
            sweep_at=None,
            lease_until=None,
            lease_clock="",
        )
    )


def check_readable(record: SessionRecord, runs: Iterable[RunRow], calls: Iterable[CallRow]) -> None:
    """What is written can be read back, and shown. Raises ValueError, OverflowError."""
    if decode_record(encode_record(record)) != record:
        raise ValueError("the record would not come back as it is")
    session_from(record, now=record.updated_at).to_dict()
    for run in runs:
        bare = msgspec.structs.replace(run, metadata=NO_JSON, input=NO_JSON, input_metadata=NO_JSON)
        if msgspec.json.decode(_encode(bare), type=RunRow) != bare:
            raise ValueError(f"run {run.run_id} would not come back as it is")
        Run.from_row(run, session_id=record.session_id).to_dict()
    for call in calls:
        ToolCall.from_row(call).to_dict()


def close(replay: Replay, clock: Clock, *, waiting: Mapping[str, bytes], title: str, active: bool) -> tuple[Event, ...]:
    """Leases do not travel: open runs arrive as failed, open calls as unknown; what waited with a run is said, unanswered.
    The events that this takes are replayed by nobody: ``replay`` holds what they make."""
    state = replay.state
    for run_id, text in waiting.items():
        actor = replay.adders.get(run_id, "")
        state.runs[run_id] = msgspec.structs.replace(state.runs[run_id], input=raw_json(text), input_actor=actor)
    edit = Edit(state, clock, OPERATOR)
    error = RunError(code=MOVED, message="the session was copied while this run was open")
    record = state.existing
    run_ids = [child.run_id for child in record.children] + [waiting.run_id for waiting in record.queue]
    if record.turn is not None:
        run_ids.append(record.turn.run_id)
    for run_id in run_ids:
        row = edit.run(run_id)
        if row is not None:
            edit.end_run(row, "FAILED", stop_reason=MOVED, error=error, calls="unknown")
    for call in edit.get("open_calls"):
        edit.end_call(edit.call(call.seq), "unknown")
    if title != record.title:
        edit.event("title_changed", _encode({"title": title, "former": record.title}))
        edit.fields["title"] = title
        edit.touch("title")
    if active and record.status != "ACTIVE":
        edit.event("session_restored", _encode({"reason": "fork"}))
        edit.move_to("ACTIVE", reason="fork")
    if not edit.events:
        return ()
    closed = edit.finish(edit.answer())
    state.record = closed.record
    replay.put_rows(closed.runs, closed.calls)
    return closed.events


def is_expiry(event: Event) -> bool:
    """An expiry at its instant: one by hand has none."""
    if event.kind != "session_expired" or event.actor != "operator":
        return False
    return read_body(event.body, SessionExpired).expired_at is not None


def is_closing(events: Sequence[Event]) -> bool:
    """One call, which did what ``close`` does and no more."""
    if len({event.version for event in events}) != 1:
        return False
    return all(map(_ends, events)) and any(event.kind in ("run_ended", "tool_call_finished") for event in events)


def _ends(event: Event) -> bool:
    if event.kind == "message":
        return event.status == "unanswered"  # what waited with a run: its actor is who added the run
    if event.actor != "operator":
        return False
    if event.kind == "run_ended":
        return read_body(event.body, RunEnded).stop_reason == MOVED
    if event.kind == "tool_call_finished":
        return read_body(event.body, CallFinished).status == "unknown"
    return event.kind == "context_threshold"
