"""A change as the arguments of its script. Keys come before everything else; see commit.lua for their order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from satchel.domain.ids import SessionRef
from satchel.domain.record import SessionRecord, encode_record
from satchel.domain.state import Clock, Want
from satchel.store import Change
from satchel.stores.redis.names import Keys, Names, step_name, stream_name
from satchel.stores.redis.rows import (
    call_row,
    entries_of,
    event_row,
    has_same_entries,
    idempotency_row,
    piece_row,
    text_row,
)
from satchel.stores.redis.run_rows import run_row

Argument = bytes | str | int


class Basis(NamedTuple):
    """What changes were decided on: the records as they were, and the keys of which nobody has looked whether they exist."""

    records: Mapping[SessionRef, SessionRecord | None]
    unseen: Mapping[SessionRef, Want]


NO_BASIS = Basis({}, {})


class Prepared(NamedTuple):
    """The keys and arguments of a change's script."""

    names: Names
    keys: list[bytes]
    arguments: list[Argument]


def prepare(
    keys: Keys, change: Change, clock: Clock | None, basis: Basis, *, holder: str, is_full: bool, old_user: str | None
) -> Prepared:
    """``clock`` where it is not the server's. ``is_full``: with all keys, needed or not. ``old_user``: in whose list the session
    stands, if that is another user's.

    Raises what a change raises that holds no rows: ValueError (UnicodeError), TypeError, AttributeError, OverflowError.
    """
    names = keys.names(change.ref)
    record = change.record
    session_id = change.ref.session_id.encode()
    entries = entries_of(record)
    used = [
        names.session,
        names.events,
        names.messages,
        names.keys,
        keys.user_list(names.bucket, change.ref.tenant_id, record.user_id),
        names.tenant_list,
    ]
    hint = b"%d %d %d %b" % (record.last_seq, record.revision, record.status == "DELETED", names.entry)
    arguments: list[Argument] = [
        b"" if change.base is None else change.base,
        b"" if change.not_after is None else change.not_after,
        b"" if clock is None else clock.now,
        holder,
        names.hint,
        hint,
        record.revision,
        encode_record(record),
        entries,
        record.updated_at,
        session_id,
        names.entry,
        b"0" if old_user is None else b"1",
        text_row(change.working_memory),
        text_row(change.metadata),
    ]
    own_keys = [kept.key_hash for kept in change.idempotency]
    unseen = own_keys
    if change.ref in basis.unseen:
        unseen = list(dict.fromkeys([*own_keys, *basis.unseen[change.ref].keys]))
    arguments.append(len(unseen))
    arguments += unseen
    arguments.append(len(own_keys))
    for kept in change.idempotency:
        arguments += (kept.key_hash, idempotency_row(kept))
    _add_events(arguments, change)
    if is_full or old_user is not None or not _is_lean(change, basis):
        used += (
            names.calls,
            names.call_order,
            names.newest,
            names.runs,
            names.run_order,
            names.ready,
            names.sweep,
            names.leases,
            names.lease_clocks,
            names.streams,
            names.all,
        )
        _add_rows(keys, used, arguments, change)
        if old_user is not None:
            used.append(keys.user_list(names.bucket, change.ref.tenant_id, old_user))
    return Prepared(names, used, arguments)


def _is_lean(change: Change, basis: Basis) -> bool:
    """Events with their keys, and nothing that queues hold."""
    if change.runs or change.calls or change.partials or change.ended_streams:
        return False
    before = basis.records.get(change.ref)
    if before is None or not has_same_entries(before, change.record):
        return False
    return all(event.kind != "message_retracted" for event in change.events)


def _add_events(arguments: list[Argument], change: Change) -> None:
    events = change.events
    first = events[0].seq if events else 0
    if [event.seq for event in events] != list(range(first, first + len(events))):
        raise ValueError("the seqs of events have no gap")
    arguments += (first, len(events))
    arguments += [event_row(event) for event in events]
    messages = [event.seq for event in events if event.kind == "message"]
    arguments.append(len(messages))
    arguments += messages


def _add_rows(keys: Keys, used: list[bytes], arguments: list[Argument], change: Change) -> None:
    back = [
        (event.refers_to, event.seq)
        for event in change.events
        if event.kind == "message_retracted" and event.refers_to is not None
    ]
    arguments.append(len(back))
    for pair in back:
        arguments += pair
    arguments.append(len(change.calls))
    newest: dict[bytes, int] = {}
    for call in change.calls:
        arguments += (call.seq, call_row(call))
        names = [b"h" + call.arguments_hash]
        if call.run_id is not None and call.step is not None:
            names.append(step_name(call.run_id, call.step))
        for name in names:
            newest[name] = max(call.seq, newest.get(name, 0))
    arguments.append(len(newest))
    for name, seq in newest.items():
        arguments += (name, seq)
    arguments.append(len(change.runs))
    for run in change.runs:
        arguments += (run.run_id.encode(), run.number, run_row(run))
    places: dict[bytes, int] = {}

    def place(stream: bytes) -> int:
        if stream not in places:
            used.append(keys.pieces(change.ref, stream))
            places[stream] = len(used)
        return places[stream]

    ended = [stream_name(key) for key in change.ended_streams]
    arguments.append(len(ended))
    for stream in ended:
        arguments += (place(stream), stream)
    arguments.append(len(change.partials))
    for piece in change.partials:
        stream = stream_name(piece.key)
        arguments += (place(stream), stream, piece_row(piece))
