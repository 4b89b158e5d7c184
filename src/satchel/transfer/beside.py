"""A session at both sides: where their logs part, and whether anybody wrote the destination's end."""

from __future__ import annotations

from satchel.domain.arrival import is_closing, is_expiry
from satchel.domain.ids import SessionRef
from satchel.domain.record import SessionRecord
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
    if there.last_seq - start >= LONGEST or there.arriving or there.streams or there.has_open_work:
        return False
    end = list((await target.events(there.ref, after=max(0, start - 2), limit=LONGEST + 1)).events)
    if not end or end[-1].seq != there.last_seq or end[-1].version != there.version:
        return False
    before = 0 if start == 1 else end.pop(0).version  # a session begins at version 0, without an event
    if not end or before == end[0].version:
        return False  # it parts within one call
    while end and is_expiry(end[-1]):
        end.pop()
    return not end or is_closing(end)
