"""A new session that begins as a copy of another, up to a point of its log."""

from __future__ import annotations

import os

from satchel.access import Access, request
from satchel.domain.decisions.decision import replay_of, version_conflict
from satchel.domain.ids import RANDOM_BYTES, SessionRef, derived_session_id, encode_id
from satchel.domain.point import Pairs, Past
from satchel.domain.record import Origin, SessionRecord
from satchel.domain.replay import Replay
from satchel.domain.state import Want
from satchel.errors import SatchelError, StoreCorrupt
from satchel.store import Snapshot
from satchel.transfer.exporting import log, waiting_inputs
from satchel.transfer.writing import Writer


async def fork(
    access: Access,
    session_id: str,
    *,
    up_to: int | None,
    title: str | None,
    expected_version: int | None,
    idempotency_key: str | None,
) -> tuple[str, bool]:
    """The new session's id, and whether this call was answered before. ``expected_version`` is the source's."""
    ref = access.ref(session_id)
    store = access.store
    key = access.key(idempotency_key)
    if key["caller_key"]:
        new_id = derived_session_id("fork", *ref, access.principal.side, key["key"].hex())
    else:
        new_id = encode_id("sess_", os.urandom(RANDOM_BYTES))
    new_ref = SessionRef(ref.tenant_id, new_id)
    wanted = request("fork_session", *ref, up_to, title)
    loaded = await store.load({new_ref: Want(keys=(key["key"],))})
    state = loaded.sessions[new_ref]
    if isinstance(state, SatchelError):
        raise state
    replay = replay_of(state.keys, key["key"], wanted)
    begun = state.record
    if begun is not None and not begun.hidden:  # whatever became of the source since
        return new_id, replay is not None

    async def fetch() -> Snapshot:
        return await store.snapshot(ref)

    snapshot, source = await access.read(ref, fetch)
    if begun is not None and begun.origin is not None:
        last = begun.origin.seq  # goes on where a former call stopped
    else:
        if expected_version is not None and expected_version != source.version:
            raise version_conflict(source, expected_version)
        last = await _point(access, ref, source, up_to)
    past = await _past(access, ref, source, last, snapshot.metadata)
    now = loaded.clock.now
    blank = SessionRecord(
        tenant_id=ref.tenant_id,
        session_id=new_id,
        user_id=source.user_id,
        revision=int.from_bytes(os.urandom(6), "big"),
        created_at=now if begun is None else begun.created_at,
        updated_at=now if begun is None else begun.created_at,
        active_at=now,
        clock_from=now,
        title=past.title if title is None else title,
        policy=source.policy,
        origin=Origin(session_id=session_id, seq=last),
    )
    first = {**key, "fingerprint": wanted}
    made = Replay(blank, metadata=past.metadata)
    writer = Writer(access, made, metadata=past.metadata, written=begun, clock=loaded.clock, first=first)
    try:
        async for event in log(access, ref, last):
            await writer.add(event)
        made.check_end()
        waiting_runs = [
            row.run_id for row in made.state.runs.values() if row.status == "READY" and row.input_seq is None
        ]
        waiting = await waiting_inputs(access, ref, waiting_runs, last)
        texts = {run_id: bytes(text) for run_id, text in waiting.items()}
        record = await writer.finish(waiting=texts, title=blank.title, active=True)
    except ValueError as wrong:  # also InvalidInput: what stands there was admitted once
        raise StoreCorrupt(f"the log of session {session_id}") from wrong
    return record.session_id, writer.replayed


async def _point(access: Access, ref: SessionRef, source: SessionRecord, up_to: int | None) -> int:
    """The greatest seq up to ``up_to`` that parts no pair."""
    if up_to is None or up_to >= source.last_seq:
        return source.last_seq
    pairs = Pairs()
    async for event in log(access, ref, source.last_seq, whole_to=up_to):
        pairs.take(event)
    return pairs.cut(up_to)


async def _past(access: Access, ref: SessionRef, source: SessionRecord, point: int, metadata: bytes) -> Past:
    past = Past(point, title=source.title, metadata=metadata)
    if point < source.last_seq:
        async for event in log(access, ref, source.last_seq, kind="title_changed", whole_to=point):
            past.take(event)
        async for event in log(access, ref, source.last_seq, kind="metadata_changed", whole_to=point):
            past.take(event)
    return past
