"""What a session holds, as digests: equal where two stores hold the same session, whatever database each is.

Left out is what a store, or a copy, gives anew: the revision, leases, the instants from which expiry counts, idempotency
records, and text that is not a message yet.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Iterator
from typing import Any

import msgspec

from satchel.domain.canonical import canonical
from satchel.domain.json_text import NO_JSON
from satchel.domain.record import SessionRecord
from satchel.domain.run import TERMINAL, RunRow
from satchel.domain.tool_call import CallRow
from satchel.errors import StoreCorrupt
from satchel.store import Snapshot, Store

PAGE = 200

# Of a record, whatever is open in it; and what also holds in a copy where nothing is open.
HEADER = ("tenant_id", "session_id", "user_id", "external_id", "generation", "created_at", "policy", "origin", "title")
STATE = (
    *("version", "last_seq", "updated_at", "status", "closed_at", "lifecycle", "transitions", "changed"),
    *("messages", "tool_calls", "runs", "child_runs", "run_number", "retracted", "context_tokens", "usage", "asked"),
)

_pack = msgspec.msgpack.Encoder().encode
_encode = msgspec.json.Encoder().encode


class Frame(msgspec.Struct, frozen=True):
    """How much of a session is looked at: its log up to ``last``, rows as they were at ``version``. ``is_whole``: nothing was
    open there, so that a copy holds exactly this."""

    last: int
    version: int
    is_whole: bool


class Portrait(msgspec.Struct, frozen=True):
    """``log`` is over the events alone; ``all`` over header, events, memory, metadata and ended rows."""

    log: bytes
    all: bytes
    events: int
    messages: int


def frame_of(record: SessionRecord) -> Frame:
    return Frame(record.last_seq, record.version, not record.has_open_work)


async def portrait(store: Store, snapshot: Snapshot, frame: Frame) -> Portrait:
    """Of the session that ``snapshot`` was taken of, with its memory and metadata. Raises StoreCorrupt at what cannot be
    read."""
    record = snapshot.record
    assert record is not None  # a portrait of nothing is nobody's
    log = hashlib.sha256()
    events = messages = after = 0
    while after < frame.last:
        page = await store.events(record.ref, after=after, before=frame.last + 1, limit=PAGE)
        if not page.events:
            break
        for event in page.events:
            if event.is_corrupt:
                raise StoreCorrupt(f"event {event.seq} of session {record.session_id}")
            log.update(_pack(event))
            messages += event.kind == "message"
        events += len(page.events)
        after = page.events[-1].seq
    every = hashlib.sha256(log.digest())
    for part in _parts(record, snapshot, frame):
        every.update(_pack(part))
    async for row in _rows(store, record, frame):
        every.update(_encode(row))
    return Portrait(log.digest(), every.digest(), events, messages)


def tombstone_portrait(record: SessionRecord) -> Portrait:
    """That the id is used, and whose: when and why it ended may be told otherwise where it was deleted at both sides."""
    digest = hashlib.sha256(_pack(["DELETED", record.tenant_id, record.session_id])).digest()
    return Portrait(digest, digest, 0, 0)


def _parts(record: SessionRecord, snapshot: Snapshot, frame: Frame) -> Iterator[Any]:
    yield [getattr(record, name) for name in HEADER]
    yield snapshot.metadata if snapshot.metadata != b"{}" else b""
    if frame.is_whole:
        yield [getattr(record, name) for name in STATE]
        # An older program may have spelled it otherwise.
        yield canonical(msgspec.Raw(snapshot.working_memory or b"{}"))


async def _rows(store: Store, record: SessionRecord, frame: Frame) -> AsyncIterator[RunRow | CallRow]:
    """Runs and tool calls that were over: what is open ends with the copy."""
    number = 0
    while True:
        runs = (await store.runs(record.ref, after_number=number, newest_first=False, limit=PAGE)).runs
        for run in runs:
            if run.status in TERMINAL and run.version <= frame.version:
                yield _bare(run)
        if len(runs) < PAGE:
            break
        number = runs[-1].number
    seq = 0
    while True:
        calls = (await store.tool_calls(record.ref, after=seq, newest_first=False, limit=PAGE)).tool_calls
        for call in calls:
            if call.status != "started" and call.version <= frame.version:
                # These follow from the arguments, and an older program may have told fewer of them apart.
                yield msgspec.structs.replace(call, arguments_hash=b"", repeat_of=None)
        if len(calls) < PAGE:
            break
        seq = calls[-1].seq


def _bare(run: RunRow) -> RunRow:
    """Without its input, which is a message in the log. A text that is not there is the one object that the JSON leaves out,
    whichever empty one its store gave."""
    absent = {name: NO_JSON for name in ("metadata", "layer", "not_merged") if not getattr(run, name)}
    return msgspec.structs.replace(run, input=NO_JSON, input_weight=None, input_metadata=NO_JSON, **absent)
