"""What decisions see: a session's record, and of its rows only what is wanted. All sessions of a load in one statement."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from satchel.domain.ids import SessionRef
from satchel.domain.record import SessionRecord
from satchel.domain.state import NOTHING, Clock, SessionState, Want, merge_wants
from satchel.domain.stream import StreamKey
from satchel.domain.upkeep import is_overdue
from satchel.errors import InvalidInput, SatchelError, StoreBusy
from satchel.store import Loaded
from satchel.stores.postgres.connection import Fetch, Row
from satchel.stores.postgres.queries import SQL
from satchel.stores.postgres.rows import call_of, event_of, idempotency_of, piece_of, record_of, run_of, sound

ReadClock = Callable[[int], Clock]

LOOKS = 20  # at a session whose record changes between two looks

_LOAD = SQL["load"]
_LOAD_ALL = SQL["load_all"]
# Of a Want the keys are in both statements; in the one for everything these follow, each with its values.
_LISTS = ("run_ids", "call_seqs", "arguments_hashes", "event_seqs")
_TEXTS = ("working_memory", "metadata")


class _Found:
    """One session's parts."""

    __slots__ = ("error", "state")

    def __init__(self) -> None:
        self.state = SessionState(None)
        self.error: SatchelError | None = None


async def load(fetch: Fetch, read_clock: ReadClock, wanted: Mapping[SessionRef, Want]) -> Loaded:
    """``fetch`` runs one statement; ``read_clock`` makes the store's clock of the server's."""
    clock, found = await _look(fetch, read_clock, wanted)
    sessions: dict[SessionRef, SessionState | SatchelError] = {}
    again: dict[SessionRef, Want] = {}
    for ref, one in found.items():
        sessions[ref] = one.state if one.error is None else one.error
        if one.error is None and (more := _more(wanted[ref], one.state.record, clock)) is not None:
            again[ref] = more
    # What is open stands in the record. A second look sees another snapshot: it counts if it finds the same record.
    for _ in range(LOOKS):
        if not again:
            return Loaded(sessions=sessions, clock=clock)
        _, found = await _look(fetch, read_clock, again)
        left: dict[SessionRef, Want] = {}
        for ref, one in found.items():
            before = sessions[ref]
            assert isinstance(before, SessionState)
            if one.error is not None or one.state.record is None or one.state.record == before.record:
                sessions[ref] = one.state if one.error is None else one.error
                continue
            sessions[ref] = one.state
            more = _more(wanted[ref], one.state.record, clock)
            if more is not None:
                left[ref] = more
        again = left
    for ref in again:
        sessions[ref] = StoreBusy()
    return Loaded(sessions=sessions, clock=clock)


def _more(want: Want, record: SessionRecord | None, clock: Clock) -> Want | None:
    """``want`` with what it means for this record: open work, a layer; None when it means nothing more."""
    if record is None:
        return None
    run_ids: list[str] = []
    call_seqs: list[int] = []
    streams: list[StreamKey] = []
    has_layer = want.layered(record)
    with_turn = has_layer
    if want.open_work or is_overdue(record, clock):
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


async def _look(
    fetch: Fetch, read_clock: ReadClock, wanted: Mapping[SessionRef, Want]
) -> tuple[Clock, dict[SessionRef, _Found]]:
    """One statement; if one of the sessions holds what cannot even be asked for, each by itself."""
    try:
        return await _ask(fetch, read_clock, wanted)
    except InvalidInput as error:
        if len(wanted) == 1:
            own = _Found()
            own.error = error
            clock, _ = await _ask(fetch, read_clock, {})
            return clock, dict.fromkeys(wanted, own)
    clock, _ = await _ask(fetch, read_clock, {})
    found: dict[SessionRef, _Found] = {}
    for ref, want in wanted.items():
        found.update((await _look(fetch, read_clock, {ref: want}))[1])
    return clock, found


async def _ask(
    fetch: Fetch, read_clock: ReadClock, wanted: Mapping[SessionRef, Want]
) -> tuple[Clock, dict[SessionRef, _Found]]:
    refs = list(wanted)
    values: list[Any] = [[ref.tenant_id for ref in refs], [ref.session_id for ref in refs]]
    values += _lists(refs, [want.keys for want in wanted.values()])
    if all(want is NOTHING or is_plain(want) for want in wanted.values()):
        rows = await fetch(_LOAD, *values)
    else:
        for name in _LISTS:
            values += _lists(refs, [getattr(want, name) for want in wanted.values()])
        for name in _TEXTS:
            values += _lists(refs, [(None,) if getattr(want, name) else () for want in wanted.values()])[:3]
        values += _apart(_lists(refs, [want.streams for want in wanted.values()]), 3)
        values += _apart(_lists(refs, [want.steps for want in wanted.values()]), 2)
        rows = await fetch(_LOAD_ALL, *values)
    found = {ref: _Found() for ref in refs}
    clock = read_clock(rows[0][2][0])
    for part, position, row in rows[1:]:
        ref = refs[position - 1]
        one = found[ref]
        try:
            _add(ref, one.state, part, row)
        except SatchelError as error:
            one.error = error
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


def _lists(refs: Sequence[SessionRef], values: Sequence[Sequence[object]]) -> list[list[Any]]:
    """As columns: position, tenant, session, value."""
    columns: list[list[Any]] = [[], [], [], []]
    positions, tenants, sessions, asked = columns
    for index, ref in enumerate(refs):
        for value in values[index]:
            positions.append(index + 1)
            tenants.append(ref.tenant_id)
            sessions.append(ref.session_id)
            asked.append(value)
    return columns


def _apart(columns: list[list[Any]], width: int) -> list[list[Any]]:
    """The values, which are tuples, as columns of their own."""
    *places, values = columns
    return [*places, *(list(column) for column in zip(*values, strict=True))] if values else [[]] * (3 + width)


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
