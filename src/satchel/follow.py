"""Tail a session's log: read after N, wait for a hint or a while, read again. A lost hint costs time, never data."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable

from satchel.domain.event import Event
from satchel.domain.ids import SessionRef
from satchel.store import EventPage, Store

PAGE = 200
PATIENCE = 5.0  # seconds between two looks when no hint comes


async def follow(
    store: Store,
    ref: SessionRef,
    read: Callable[[Callable[[], Awaitable[EventPage]]], Awaitable[EventPage]],
    *,
    after: int,
    run_id: str | None = None,
) -> AsyncIterator[Event]:
    """Every event after ``after``, in order, for ever; with ``run_id`` those of one run, until it has ended.

    ``read`` checks each page as any other read: ownership is asked again while it lasts, and a deleted session ends the
    following with SessionDeleted.
    """
    while True:
        position = after

        async def fetch(position: int = position) -> EventPage:
            return await store.events(ref, after=position, limit=PAGE)

        page = await read(fetch)
        for event in page.events:
            after = event.seq
            if run_id is None or event.run_id == run_id:
                yield event
                if run_id is not None and event.kind == "run_ended":
                    return
        if len(page.events) < PAGE:
            await store.wait(ref, after, PATIENCE)
