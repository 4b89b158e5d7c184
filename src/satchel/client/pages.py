"""What a page of the log is asked with, and how a seq stands in an address."""

from __future__ import annotations

from typing import Any

from satchel.access import checked_filters, checked_limit, checked_whole
from satchel.client.reading import RemoteReading, checked_cursor
from satchel.sessions.pages import is_newest_first


def page_query(
    manager: RemoteReading,
    after: int,
    before: int | None,
    run_id: str | None,
    order: str,
    limit: int,
    cursor: str | None,
) -> dict[str, Any]:
    """Of a page of the log. Raises InvalidInput."""
    limits = manager._server.limits  # noqa: SLF001  # a part of the same manager
    checked_whole(after, field="after")
    if before is not None:
        checked_whole(before, field="before")
    checked_filters(limits, run_id=run_id)
    is_newest_first(order)
    checked_limit(limit, most=limits.page)
    return {
        "after": after,
        "before": before,
        "run_id": run_id,
        "order": order,
        "limit": limit,
        "cursor": checked_cursor(cursor),
    }


def in_an_address(seq: int) -> int:
    """A seq that no session reaches is as unknown as one beyond the digits that a service reads."""
    return min(seq, 10**18 - 1)
