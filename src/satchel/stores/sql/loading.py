"""What decisions see: a session's record, and of its rows only what is wanted. How a server is asked is each store's own."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from satchel.domain.ids import SessionRef
from satchel.domain.state import Clock, SessionState, Want
from satchel.errors import InvalidInput, SatchelError
from satchel.store import Loaded
from satchel.stores import looking
from satchel.stores.sql.rows import call_of, event_of, idempotency_of, piece_of, record_of, run_of, sound

Row = Any
ReadClock = Callable[[int], Clock]  # makes the store's clock of the server's


class Found:
    """One session's parts."""

    __slots__ = ("error", "state")

    def __init__(self) -> None:
        self.state = SessionState(None)
        self.error: SatchelError | None = None


# One snapshot of all that is wanted. Raises InvalidInput if it cannot be asked for.
Ask = Callable[[Mapping[SessionRef, Want]], Awaitable[tuple[Clock, dict[SessionRef, Found]]]]


async def load(ask: Ask, wanted: Mapping[SessionRef, Want]) -> Loaded:
    async def look(at: Mapping[SessionRef, Want]) -> tuple[Clock, looking.Seen]:
        clock, found = await _look(ask, at)
        return clock, {ref: one.state if one.error is None else one.error for ref, one in found.items()}

    return await looking.load(look, wanted)


async def _look(ask: Ask, wanted: Mapping[SessionRef, Want]) -> tuple[Clock, dict[SessionRef, Found]]:
    """One snapshot; if one of the sessions holds what cannot even be asked for, each by itself."""
    try:
        return await ask(wanted)
    except InvalidInput as error:
        if len(wanted) == 1:
            own = Found()
            own.error = error
            clock, _ = await ask({})
            return clock, dict.fromkeys(wanted, own)
    clock, _ = await ask({})
    found: dict[SessionRef, Found] = {}
    for ref, want in wanted.items():
        found.update((await _look(ask, {ref: want}))[1])
    return clock, found


def is_plain(want: Want) -> bool:
    """Nothing but the record and keys."""
    return not (
        want.run_ids
        or want.call_seqs
        or want.arguments_hashes
        or want.event_seqs
        or want.streams
        or want.steps
        or want.working_memory
        or want.metadata
    )


def add_part(ref: SessionRef, found: Found, part: str, row: Row) -> None:
    """``row`` is one of its rows; what cannot be read becomes the session's error."""
    try:
        _add(ref, found.state, part, row)
    except SatchelError as error:
        found.error = error


def _add(ref: SessionRef, state: SessionState, part: str, row: Row) -> None:
    """Raises StoreCorrupt."""
    if part == "record":
        state.record = record_of(ref.session_id, row[0])
    elif part == "key":
        state.keys[row[0]] = idempotency_of(ref, row)
    elif part == "run":
        state.runs[row[0]] = run_of(ref, row)
    elif part == "call":
        state.calls[row[0]] = call_of(ref, row)
    elif part == "equal":
        state.same_calls[row[0]] = row[1]
    elif part == "event":
        state.events[row[0]] = event_of(ref, row)
    elif part == "step":
        call = call_of(ref, row)
        assert call.run_id is not None  # it was asked for by these
        assert call.step is not None
        state.steps[call.run_id, call.step] = call
    elif part == "piece":
        piece = piece_of(row)
        pieces = (*state.partials.get(piece.key, ()), piece)
        state.partials[piece.key] = tuple(sorted(pieces, key=lambda one: one.offset))
    elif part == "working_memory":
        state.working_memory = sound(row[0], "the working memory", ref)
    else:
        state.metadata = sound(row[0], "the metadata", ref)
