"""Lines to import, and what comes of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from satchel.domain.ids import SessionRef
from satchel.domain.imported import Imported
from satchel.domain.principal import Principal
from satchel.testing.stage import Stage

RUN = "run_" + "a" * 24
NEXT_RUN = "run_" + "b" * 24
AT = "2026-01-01T00:00:00Z"
AS_ADA = Principal.operator(tenant_id="acme", acting_for="ada")


def line(name: str, *messages: Any, **more: Any) -> bytes:
    """A conversation; with ``satchel`` among its keys, one of ours."""
    return msgspec.json.encode({"session_id": name, "messages": list(messages)} | more)


def event(kind: str, body: Any = None, **more: Any) -> dict[str, Any]:
    """An event without its place in the log."""
    return {"kind": kind, "at": AT, "actor": "operator", "body": {} if body is None else body} | more


def logged(*events: dict[str, Any], messages: Iterable[Any] = (), name: str = "c", **header: Any) -> bytes:
    """A line whose log holds these events, each a version of its own unless it says otherwise."""
    numbered = []
    version = 0
    for seq, one in enumerate(events, start=1):
        version = one.get("version", version + 1)
        numbered.append({"seq": seq, "version": version} | one)
    return line(name, *messages, satchel={"format": 1, "events": numbered} | header)


async def imported(stage: Stage, who: Principal, *lines: bytes | str, **options: Any) -> list[Imported]:
    return [one async for one in stage.sessions(who).import_sessions(lines, **options)]


async def exported(stage: Stage, who: Principal, *session_ids: str) -> bytes:
    return b"".join([piece async for piece in stage.sessions(who).export_sessions(session_ids)])


async def is_empty(stage: Stage, tenant_id: str = "acme") -> bool:
    """Whether the tenant has no session, a hidden one or a tombstone neither: all of them come due one day."""
    now = stage.clock.now
    stage.clock.step_wall(100 * 365 * 86_400)
    due = await stage.store.due("sweep", limit=10)
    stage.clock.now = now
    page = await stage.store.sessions(tenant_id, limit=10)
    return not page.sessions and not [ref for ref in due if ref.tenant_id == tenant_id]


async def bodies(stage: Stage, ref: SessionRef) -> list[bytes]:
    """All messages of a session, whole."""
    found: list[bytes] = []
    after = 0
    while True:
        page = await stage.store.events(ref, after=after, kind="message", limit=1_000)
        found += [one.body for one in page.events]
        if len(page.events) < 1_000:
            return found
        after = page.events[-1].seq
