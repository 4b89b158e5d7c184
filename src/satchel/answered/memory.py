"""The working memory as a first answer showed it. It is in no idempotency record: the log tells it again."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TypeVar

import msgspec

from satchel.access import Access
from satchel.commit import Committed
from satchel.domain.bodies import RunStarted, read_body
from satchel.domain.event import Event, EventKind
from satchel.domain.ids import SessionRef
from satchel.domain.json_text import decode
from satchel.domain.layer import then
from satchel.domain.limits import WRITTEN_HERE
from satchel.domain.memory import MemoryPatch, WorkingMemory, admit_memory, admit_patch, memory_from, stored_memory
from satchel.domain.run import Attempt, RunRow
from satchel.domain.spelling import member
from satchel.errors import InvalidInput, SessionDeleted, StoreCorrupt
from satchel.store import CallPage, EventPage, RunPage

PAGE = 500  # events of one look

P = TypeVar("P", EventPage, CallPage, RunPage)


async def memory_as_answered(
    access: Access, ref: SessionRef, done: Committed[WorkingMemory], attempt: Attempt | None
) -> WorkingMemory:
    """The memory as it was after the commit, for a run with a layer under that; also when the commit was found again later:
    then the value is the memory of today, with the version at which it last changed. Raises StoreCorrupt, SessionDeleted."""
    now, answer = done.value, done.answer
    if not done.found:
        return now
    if attempt is None and now.version <= answer.version:
        return msgspec.structs.replace(now, version=answer.version)
    memory, changed_at = WorkingMemory(), 0
    async for event in events_until(access, ref, "working_memory_changed", answer.version):
        memory, changed_at = _changed(memory, event, ref), event.version
    holder = None if attempt is None else await _holder(access, ref, attempt)
    if holder is None or holder.memory != "run":
        return _shown(memory, answer.version, replayed=done.replayed)
    layer, layer_at = await layer_until(access, ref, holder, answer.version)
    return _shown(layer.apply(memory), max(changed_at, layer_at), replayed=done.replayed)


async def layer_until(access: Access, ref: SessionRef, holder: RunRow, version: int) -> tuple[MemoryPatch, int]:
    """The layer as it was, and the version of its newest change: all patches since the run began, or began anew. Nobody but
    the run and its children wrote to a layer meanwhile, for it had the turn."""
    began = 0
    async for event in events_until(access, ref, "run_started", version, run_id=holder.run_id):
        if not read_body(event.body, RunStarted).goes_on:
            began = event.seq
    layer, layer_at = MemoryPatch(), 0
    if not began:  # it waited for its turn: what was written is of those that had it before
        return layer, layer_at
    async for event in events_until(access, ref, "run_memory_changed", version, after=began):
        layer, layer_at = then(layer, _patch(event, ref)), event.version
    return layer, layer_at


async def events_until(
    access: Access, ref: SessionRef, kind: EventKind, version: int, *, after: int = 0, run_id: str | None = None
) -> AsyncIterator[Event]:
    """Those of this kind up to the version, in order."""
    while True:
        page = whole(await access.store.events(ref, after=after, kind=kind, run_id=run_id, limit=PAGE), ref)
        for event in page.events:
            if event.version > version:
                return
            if event.is_corrupt:
                raise _corrupt(event, ref)
            yield event
        if len(page.events) < PAGE:
            return
        after = page.events[-1].seq


def whole(page: P, ref: SessionRef) -> P:
    """The page, if nothing of the session may be erased yet. Raises SessionDeleted: it was deleted since the retry was decided."""
    if page.record is None or page.record.status == "DELETED":
        raise SessionDeleted(ref.session_id)
    return page


async def _holder(access: Access, ref: SessionRef, attempt: Attempt) -> RunRow | None:
    """The run whose layer this attempt's run writes to: itself, or its parent."""
    page = whole(await access.store.runs(ref, run_id=attempt.run_id, limit=1), ref)
    row = page.runs[0] if page.runs else None
    if row is None or row.parent_run_id is None:
        return row
    page = whole(await access.store.runs(ref, run_id=row.parent_run_id, limit=1), ref)
    return page.runs[0] if page.runs else None


def _changed(memory: WorkingMemory, event: Event, ref: SessionRef) -> WorkingMemory:
    try:
        body = decode(event.body)
        if isinstance(body, dict) and "replace" in body:
            return admit_memory(member(event.body, "replace"), limits=WRITTEN_HERE)
    except (ValueError, InvalidInput) as wrong:
        raise _corrupt(event, ref) from wrong
    return _patch(event, ref).apply(memory)


def _patch(event: Event, ref: SessionRef) -> MemoryPatch:
    try:
        return admit_patch(event.body, limits=WRITTEN_HERE)
    except InvalidInput as wrong:
        raise _corrupt(event, ref) from wrong


def _corrupt(event: Event, ref: SessionRef) -> StoreCorrupt:
    return StoreCorrupt(f"event {event.seq} of session {ref.session_id}")


def _shown(memory: WorkingMemory, version: int, *, replayed: bool) -> WorkingMemory:
    return memory_from(stored_memory(memory, limits=WRITTEN_HERE), version=version, replayed=replayed)
