"""What decisions see: a session's record, and of its rows only what is wanted. A script for each session, all in one pipeline."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence

from satchel.domain.ids import SessionRef
from satchel.domain.state import NOTHING, Clock, SessionState, Want
from satchel.errors import InvalidInput, SatchelError, StoreCorrupt
from satchel.store import Loaded
from satchel.stores import looking
from satchel.stores.redis.connection import Command, Reply, call, is_of_one_command, meaning_of
from satchel.stores.redis.names import Keys, step_name, stream_name
from satchel.stores.redis.rows import (
    call_of,
    event_of,
    idempotency_of,
    piece_of,
    record_of,
    sound,
)
from satchel.stores.redis.run_rows import run_of

ReadClock = Callable[[int], Clock]
Ask = Callable[[Sequence[Command]], Awaitable[list[Reply]]]


async def load(
    ask: Ask, keys: Keys, read_clock: ReadClock, own_now: bytes | int, wanted: Mapping[SessionRef, Want]
) -> Loaded:
    """``ask`` runs reads; ``read_clock`` makes the store's clock of a server's; ``own_now``: b"" for the server's.

    Of several servers' clocks the one furthest back is taken."""

    async def look(at: Mapping[SessionRef, Want]) -> tuple[Clock, looking.Seen]:
        return await _look(ask, keys, read_clock, own_now, at)

    return await looking.load(look, wanted)


async def _look(
    ask: Ask, keys: Keys, read_clock: ReadClock, own_now: bytes | int, wanted: Mapping[SessionRef, Want]
) -> tuple[Clock, dict[SessionRef, SessionState | SatchelError]]:
    sessions: dict[SessionRef, SessionState | SatchelError] = {}
    commands: list[Command] = []
    asked: list[SessionRef] = []
    for ref, want in wanted.items():
        try:
            commands.append(_command(keys, own_now, ref, want))
        except (ValueError, TypeError, AttributeError) as error:
            own: SatchelError = InvalidInput(
                f"holds a value that this store cannot look for ({type(error).__name__})", field="request"
            )
            own.__cause__ = error
            sessions[ref] = own
        else:
            asked.append(ref)
    if not commands:
        (time,) = await ask([Command(keys.slots[0], ("TIME",))])
        if isinstance(time, Exception):
            raise meaning_of(time)
        return read_clock(int(time[0]) * 1_000_000 + int(time[1])), sessions
    now: int | None = None
    for ref, reply in zip(asked, await ask(commands), strict=True):
        if isinstance(reply, Exception):
            if not is_of_one_command(reply):
                raise reply if isinstance(reply, SatchelError) else meaning_of(reply)
            sessions[ref] = StoreCorrupt(f"session {ref.session_id}")
            continue
        now = reply[0] if now is None else min(now, reply[0])
        try:
            sessions[ref] = _state(ref, wanted[ref], reply)
        except SatchelError as error:
            sessions[ref] = error
    if now is None:
        return (await _look(ask, keys, read_clock, own_now, {}))[0], sessions
    return read_clock(now), sessions


def is_plain(want: Want) -> bool:
    """Nothing but the record, keys, memory and metadata."""
    return not (
        want.run_ids or want.call_seqs or want.arguments_hashes or want.event_seqs or want.streams or want.steps
    )


def _command(keys: Keys, own_now: bytes | int, ref: SessionRef, want: Want) -> Command:
    """Raises UnicodeEncodeError, and what a value raises that is none."""
    names = keys.names(ref)
    slot = keys.slots[names.bucket]
    arguments: list[bytes | str | int] = [
        own_now,
        int(want.working_memory),
        int(want.metadata),
        len(want.keys),
        *want.keys,
    ]
    if want is NOTHING or is_plain(want):
        return call(slot, "load", (names.session, names.keys), arguments)
    for found in (
        [run_id.encode() for run_id in want.run_ids],
        want.call_seqs,
        [b"h" + arguments_hash for arguments_hash in want.arguments_hashes],
        [step_name(*step) for step in want.steps],
        want.event_seqs,
    ):
        arguments.append(len(found))
        arguments += found
    streams = [keys.pieces(ref, stream_name(key)) for key in want.streams]
    used = (names.session, names.keys, names.calls, names.newest, names.runs, names.events, *streams)
    return call(slot, "load", used, arguments)


def _state(ref: SessionRef, want: Want, reply: Reply) -> SessionState:
    """Raises StoreCorrupt."""
    if reply[1] is None:
        return SessionState(None)
    state = SessionState(record_of(ref.session_id, reply[1]))
    for key, row in zip(want.keys, reply[2], strict=True):
        if row is not None:
            state.keys[key] = idempotency_of(ref, key, row)
    state.working_memory = sound(reply[3], "the working memory", ref)
    state.metadata = sound(reply[4], "the metadata", ref)
    if len(reply) > 5:
        _add_rows(state, ref, want, reply[5:])
    return state


def _add_rows(state: SessionState, ref: SessionRef, want: Want, lists: Sequence[Reply]) -> None:
    runs, calls, equal, steps, events, pieces = lists
    for run_id, found in zip(want.run_ids, runs, strict=True):
        if found is not None:
            state.runs[run_id] = run_of(ref, run_id, found)
    for seq, found in zip(want.call_seqs, calls, strict=True):
        if found is not None:
            state.calls[seq] = call_of(ref, seq, found)
    for arguments_hash, newest in zip(want.arguments_hashes, equal, strict=True):
        if newest is not None:
            state.same_calls[arguments_hash] = int(newest)
    for step, found in zip(want.steps, steps, strict=True):
        if found is not None:
            state.steps[step] = call_of(ref, 0, found)
    for seq, row in events:
        state.events[seq] = event_of(ref, seq, row)
    for stream, rows in zip(want.streams, pieces, strict=True):
        if rows:
            state.partials[stream] = tuple(piece_of(stream, row) for row in rows)
