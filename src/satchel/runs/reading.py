"""A run, and the runs of a session."""

from __future__ import annotations

from satchel.access import Access, checked_choice, checked_filters, checked_limit
from satchel.domain.ids import checked_id
from satchel.domain.page import Page, decode_cursor, encode_cursor
from satchel.domain.run import STATUSES, Run, RunStatus
from satchel.errors import RunNotFound
from satchel.store import RunPage


class RunReading:
    """Methods that read runs."""

    _access: Access

    async def get_run(self, session_id: str, run_id: str) -> Run:
        """Raises RunNotFound."""
        checked_id(run_id, field="run_id", limits=self._access.limits)
        page = await self.list_runs(session_id, run_id=run_id, limit=1)
        if not page.items:
            raise RunNotFound(run_id)
        return page.items[0]

    async def list_runs(
        self,
        session_id: str,
        *,
        run_id: str | None = None,
        parent_run_id: str | None = None,
        status: RunStatus | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page[Run]:
        """Newest first; with ``parent_run_id`` the child runs of one run."""
        if status is not None:
            checked_choice(status, STATUSES, field="status")
        checked_filters(self._access.limits, run_id=run_id, parent_run_id=parent_run_id)
        checked_limit(limit, most=self._access.limits.page)
        ref = self._access.ref(session_id)
        parts = ("runs", *ref, self._access.principal.side, status or "", run_id or "", parent_run_id or "")
        before = None if cursor is None else int(decode_cursor(cursor, *parts, shape=(int,))[0])

        async def fetch() -> RunPage:
            return await self._access.store.runs(
                ref,
                run_id=run_id,
                parent_run_id=parent_run_id,
                status=status,
                before_number=before,
                limit=limit + 1,
            )

        page, _ = await self._access.read(ref, fetch)
        shown = tuple(Run.from_row(row, session_id=session_id) for row in page.runs[:limit])
        more = encode_cursor((shown[-1].number,), *parts) if len(page.runs) > limit else None
        return Page(shown, more)
