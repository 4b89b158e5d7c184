"""Rows as a store keeps them, for tests that speak to a store without a manager."""

from __future__ import annotations

from typing import Any

from satchel.domain.event import Event
from satchel.domain.ids import SessionRef
from satchel.domain.policy import SessionPolicy
from satchel.domain.record import SessionRecord
from satchel.domain.run import RunRow
from satchel.domain.state import SessionState, Want
from satchel.domain.tool_call import CallRow
from satchel.store import Change, Outcome, Store
from satchel.testing.clock import START

REF = SessionRef("acme", "sess_1")
HASH = b"h" * 16


def record(ref: SessionRef = REF, **fields: Any) -> SessionRecord:
    plain: dict[str, Any] = {
        "tenant_id": ref.tenant_id,
        "session_id": ref.session_id,
        "user_id": "ada",
        "revision": 7,
        "created_at": START,
        "updated_at": START,
        "active_at": START,
        "clock_from": START,
        "policy": SessionPolicy(idle=None),
    }
    return SessionRecord(**plain | fields)


def event(seq: int, **fields: Any) -> Event:
    plain: dict[str, Any] = {
        "seq": seq,
        "version": seq,
        "kind": "message",
        "at": START + seq,
        "actor": "user:ada",
        "body": b'{"role":"user","content":"%d"}' % seq,
    }
    return Event(**plain | fields)


def call(seq: int, **fields: Any) -> CallRow:
    plain: dict[str, Any] = {
        "seq": seq,
        "version": seq,
        "tool": "t",
        "arguments_hash": HASH,
        "status": "started",
        "start_time": START,
    }
    return CallRow(**plain | fields)


def run(number: int, **fields: Any) -> RunRow:
    plain: dict[str, Any] = {
        "run_id": f"run_{number}",
        "number": number,
        "status": "READY",
        "created_at": START,
        "version": number,
    }
    return RunRow(**plain | fields)


async def put(store: Store, ref: SessionRef = REF, *, base: int | None = None, **fields: Any) -> Outcome:
    """One change; ``record`` may be left out."""
    fields.setdefault("record", record(ref, revision=7 if base is None else base + 1))
    (outcome,) = await store.commit([Change(ref=ref, base=base, **fields)])
    return outcome


async def state_of(store: Store, ref: SessionRef = REF, **want: Any) -> SessionState:
    state = (await store.load({ref: Want(**want)})).sessions[ref]
    assert isinstance(state, SessionState)
    return state
