"""A session at both sides: where their logs part, and whether anybody wrote the destination's end."""

from __future__ import annotations

from collections.abc import Sequence

from satchel.domain.bodies import CallFinished, RunEnded, SessionExpired, read_body
from satchel.domain.event import Event
from satchel.domain.ids import SessionRef
from satchel.domain.record import SessionRecord
from satchel.domain.replayed_runs import MOVED
from satchel.store import Store

PAGE = 200
LONGEST = 1_000  # events that a copy may have written to end what was open, at most: runs, their inputs, and calls


async def first_difference(source: Store, target: Store, ref: SessionRef, up_to: int) -> int | None:
    """The first seq at which the logs say something else; None: they are the same up to there."""
    after = 0
    while after < up_to:
        ours = (await source.events(ref, after=after, before=up_to + 1, limit=PAGE)).events
        theirs = (await target.events(ref, after=after, before=up_to + 1, limit=PAGE)).events
        for mine, other in zip(ours, theirs, strict=False):
            if mine != other:
                return min(mine.seq, other.seq)
        if len(ours) != len(theirs) or not ours:
            return after + min(len(ours), len(theirs)) + 1
        after = ours[-1].seq
    return None


async def is_nobodys_end(target: Store, there: SessionRecord, start: int) -> bool:
    """Whether the destination's log from ``start`` on was written by nobody who works there: by a former copy, which ended what
    was open, and by time."""
    if start <= 1 or there.last_seq - start >= LONGEST or there.arriving or there.streams or there.has_open_work:
        return False
    events = (await target.events(there.ref, after=start - 2, limit=LONGEST + 1)).events
    if not events or events[-1].seq != there.last_seq or events[-1].version != there.version:
        return False
    before, end = events[0], list(events[1:])
    if before.version == end[0].version:
        return False  # it parts within one call
    while end and _is_times(end[-1]):
        end.pop()
    return not end or _is_ending(end)


def _is_times(event: Event) -> bool:
    """An expiry at its instant: one by hand has none."""
    if event.kind != "session_expired" or event.actor != "operator":
        return False
    return read_body(event.body, SessionExpired).expired_at is not None


def _is_ending(events: Sequence[Event]) -> bool:
    """One call, which did what ``writing.close`` does and no more."""
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
