"""Loading from a server whose statement cannot ask for what stands in the record it reads."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from satchel.domain.ids import SessionRef
from satchel.domain.state import Clock, SessionState, Want
from satchel.domain.upkeep import more_wanted
from satchel.errors import SatchelError, StoreBusy
from satchel.store import Loaded

LOOKS = 20  # at a session whose record changes between two looks

Seen = dict[SessionRef, SessionState | SatchelError]
Look = Callable[[Mapping[SessionRef, Want]], Awaitable[tuple[Clock, Seen]]]  # one snapshot of each session


async def load(look: Look, wanted: Mapping[SessionRef, Want]) -> Loaded:
    clock, sessions = await look(wanted)
    again = _with_more(wanted, sessions, clock)
    # What is open stands in the record. A second look sees another snapshot: it counts if it finds the same record.
    for _ in range(LOOKS):
        if not again:
            return Loaded(sessions=sessions, clock=clock)
        _, found = await look(again)
        moved: Seen = {}
        for ref, state in found.items():
            before = sessions[ref]
            assert isinstance(before, SessionState)
            sessions[ref] = state
            if isinstance(state, SessionState) and state.record is not None and state.record != before.record:
                moved[ref] = state
        again = _with_more(wanted, moved, clock)
    for ref in again:
        sessions[ref] = StoreBusy()
    return Loaded(sessions=sessions, clock=clock)


def _with_more(wanted: Mapping[SessionRef, Want], sessions: Seen, clock: Clock) -> dict[SessionRef, Want]:
    found: dict[SessionRef, Want] = {}
    for ref, state in sessions.items():
        if not isinstance(state, SessionState) or state.record is None:
            continue
        more = more_wanted(wanted[ref], state.record, clock)
        if more is not None:
            found[ref] = more
    return found
