"""Sessions as JSON lines, in pieces."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Iterable
from datetime import datetime
from typing import Any, Literal

import msgspec

from satchel.access import Access
from satchel.domain.clock import rfc3339
from satchel.domain.event import Event
from satchel.domain.ids import SessionRef
from satchel.domain.json_text import NO_JSON, raw_json
from satchel.domain.record import SessionRecord
from satchel.errors import NotFound, SessionDeleted, StoreCorrupt
from satchel.listing import List, whole_list
from satchel.store import EventPage, Snapshot
from satchel.transfer.form import FORMAT, ExportedEvent, members_once, stands_in_messages

PAGE = 200
HELD = 8 * 1024 * 1024  # bytes of a line that stay in memory until it is whole; what is more waits in a file
BLOCK = 256 * 1024

_encode = msgspec.json.Encoder().encode


async def export_all(access: Access, listed: List, *, updated_after: datetime | None) -> AsyncIterator[bytes]:
    """Every session that is in the list throughout, once. One that is deleted or given away meanwhile is left out."""
    everything = whole_list(
        access.store, access.principal, listed, lambda session: session.session_id, updated_after=updated_after
    )
    for session_id in await everything:
        try:
            async for piece in export_session(access, session_id):
                yield piece
        except (NotFound, SessionDeleted):
            continue  # nothing of its line was handed out


async def export_session(access: Access, session_id: str) -> AsyncIterator[bytes]:
    """One line, in pieces: all of it or nothing, for none is handed out before the last is there."""
    with tempfile.SpooledTemporaryFile(max_size=HELD) as line:
        first = b""
        async for piece in _line(access, session_id):
            if not first:
                first = piece  # the five keys up to the messages
            else:
                line.write(piece)
        line.seek(0)
        yield first
        while block := line.read(BLOCK):
            yield block


async def _line(access: Access, session_id: str) -> AsyncIterator[bytes]:
    ref = access.ref(session_id)
    store = access.store

    async def fetch() -> Snapshot:
        return await store.snapshot(ref)

    snapshot, record = await access.read(ref, fetch)
    last = record.last_seq
    metadata = members_once(snapshot.metadata or b"{}", field="metadata")
    retracted: set[int] = set()
    async for event in log(access, ref, last, kind="message_retracted"):
        retracted.add(event.refers_to or 0)
    name = record.external_id or record.session_id
    yield (
        b'{"source":'
        + bytes(metadata.get("source", b'"satchel"'))
        + b',"licence":'
        + bytes(metadata.get("licence", b'""'))
        + b',"session_id":'
        + _encode(name)
        + b',"messages":['
    )
    separator = b""
    async for event in log(access, ref, last, kind="message"):
        if stands_in_messages(event, retracted):
            yield separator + event.body
            separator = b","
    yield b'],"meta":' + bytes(metadata.get("meta", b"{}")) + b',"satchel":'
    header = _header(record, snapshot.clock.now)
    header["metadata"] = msgspec.Raw(snapshot.metadata or b"{}")
    header["waiting"] = await waiting_inputs(access, ref, _waiting_runs(record), last)
    yield _encode(header)[:-1] + b',"events":['
    separator = b""
    async for event in log(access, ref, last):
        yield separator + _encode(_exported(event, with_body=not stands_in_messages(event, retracted)))
        separator = b","
    yield b"]}}\n"


def _header(record: SessionRecord, now: int) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "session_id": record.session_id,
        "user_id": record.user_id,
        "external_id": record.external_id,
        "title": record.title,
        "status": record.status_at(now),
        "version": record.version,
        "created_at": rfc3339(record.created_at),
        "updated_at": rfc3339(record.updated_at),
        "policy": record.policy,
    }


def _waiting_runs(record: SessionRecord) -> list[str]:
    waiting = [one.run_id for one in record.queue]
    if record.turn is not None and record.turn.status == "READY":
        waiting.insert(0, record.turn.run_id)
    return waiting


async def waiting_inputs(access: Access, ref: SessionRef, run_ids: Iterable[str], last: int) -> dict[str, msgspec.Raw]:
    """The inputs of these runs that are in no event up to ``last``."""
    inputs: dict[str, msgspec.Raw] = {}
    for run_id in run_ids:
        page = await access.store.runs(ref, run_id=run_id, limit=1)
        for run in page.runs:
            if bytes(run.input) and (run.input_seq is None or run.input_seq > last):
                inputs[run_id] = run.input
    return inputs


async def log(
    access: Access,
    ref: SessionRef,
    last: int,
    *,
    kind: Literal["message", "message_retracted", "title_changed", "metadata_changed"] | None = None,
    whole_to: int | None = None,
) -> AsyncIterator[Event]:
    """The events up to ``last``, page by page; ownership is asked at each. Raises StoreCorrupt at one that cannot be read:
    a copy with a hole in it would be taken for the whole. Behind ``whole_to`` nothing is copied: what cannot be read there
    comes as the placeholder that it is."""
    after = 0
    while after < last:

        async def fetch(after: int = after) -> EventPage:
            return await access.store.events(ref, after=after, before=last + 1, kind=kind, limit=PAGE)

        page, _ = await access.read(ref, fetch)
        for event in page.events:
            if event.is_corrupt and (whole_to is None or event.seq <= whole_to):
                raise StoreCorrupt(f"event {event.seq} of session {ref.session_id}")
            yield event
        if len(page.events) < PAGE:
            return
        after = page.events[-1].seq


def _exported(event: Event, *, with_body: bool) -> ExportedEvent:
    return ExportedEvent(
        seq=event.seq,
        version=event.version,
        kind=event.kind,
        at=rfc3339(event.at),
        actor=event.actor,
        run_id=event.run_id,
        refers_to=event.refers_to,
        status=event.status,
        format=event.format,
        outcome=event.outcome,
        streamed=event.streamed,
        metadata=raw_json(event.metadata),
        body=raw_json(event.body) if with_body else NO_JSON,
    )
