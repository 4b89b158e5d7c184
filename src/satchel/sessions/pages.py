"""Pages of a session's log, for the parts that read it."""

from __future__ import annotations

from satchel.access import Access, checked_choice, checked_filters, checked_limit, checked_whole
from satchel.domain.event import KINDS, EventKind
from satchel.domain.page import decode_cursor, encode_cursor
from satchel.store import EventPage


async def read_events(
    access: Access,
    session_id: str,
    *,
    list_name: str,
    kind: EventKind | None,
    after: int,
    before: int | None,
    run_id: str | None,
    with_retracted: bool,
    order: str,
    limit: int,
    cursor: str | None,
) -> tuple[EventPage, str | None]:
    ref = access.ref(session_id)
    checked_limit(limit, most=access.limits.page)
    checked_filters(access.limits, run_id=run_id)
    if kind is not None:
        checked_choice(kind, KINDS, field="kind")
    checked_whole(after, field="after")
    if before is not None:
        checked_whole(before, field="before")
    newest_first = is_newest_first(order)
    parts: tuple[str, ...] = (
        list_name,
        *ref,
        access.principal.side,
        kind or "",
        run_id or "",
        str(with_retracted),
        order,
    )
    parts += (str(after), str(before))
    if cursor is not None:
        position = int(decode_cursor(cursor, *parts, shape=(int,))[0])
        after, before = (after, position) if newest_first else (position, before)

    async def fetch() -> EventPage:
        return await access.store.events(
            ref,
            after=after,
            before=before,
            newest_first=newest_first,
            kind=kind,
            run_id=run_id,
            with_retracted=with_retracted,
            limit=limit + 1,
        )

    page, _ = await access.read(ref, fetch)
    more = encode_cursor((page.events[limit - 1].seq,), *parts) if len(page.events) > limit else None
    return page, more


def is_newest_first(order: str) -> bool:
    checked_choice(order, ("asc", "desc"), field="order")
    return order == "desc"
