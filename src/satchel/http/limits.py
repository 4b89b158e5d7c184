"""Limits on how much one user may have at once. They hold for this process, and are settings."""

from __future__ import annotations

from collections import defaultdict

from satchel.domain.principal import Principal
from satchel.domain.run import TERMINAL, Run
from satchel.errors import NotFound, SessionDeleted
from satchel.http.problems import TooManyRuns, TooManySessions
from satchel.runs import RunManager
from satchel.sessions import SessionManager

Caller = tuple[str, str]


class OpenRuns:
    """The runs that each caller's requests added here and that have not ended, as far as this process saw."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._runs: defaultdict[Caller, dict[str, str]] = defaultdict(dict)  # run_id → session_id
        self._callers: dict[str, Caller] = {}

    async def check(self, principal: Principal, runs: RunManager) -> None:
        """Before a run is added. Raises TooManyRuns; runs that ended elsewhere are found out then."""
        caller = (principal.tenant_id, principal.side)
        mine = self._runs.get(caller)
        if not self._most or mine is None or len(mine) < self._most:
            return
        for run_id, session_id in list(mine.items()):
            try:
                has_ended = (await runs.get_run(session_id, run_id)).is_terminal
            except (NotFound, SessionDeleted):
                has_ended = True
            if has_ended:
                self.ended(run_id)
        if len(mine) >= self._most:
            raise TooManyRuns(
                f"{self._most} runs are open already (setting server.runs_per_user); wait for one to end",
                retry_after=1,
            )

    def added(self, principal: Principal, run: Run) -> None:
        if self._most and run.status not in TERMINAL:
            caller = (principal.tenant_id, principal.side)
            self._runs[caller][run.run_id] = run.session_id
            self._callers[run.run_id] = caller

    def ended(self, run_id: str) -> None:
        """Also of a run that is not known here."""
        caller = self._callers.pop(run_id, None)
        if caller is None:
            return
        mine = self._runs[caller]
        mine.pop(run_id, None)
        if not mine:
            del self._runs[caller]


async def check_session_count(sessions: SessionManager, user_id: str | None, *, most: int) -> None:
    """Before a session is created; 0: no limit. Raises TooManySessions when the user's list is full."""
    owner = sessions.principal.user_id or user_id
    if not most or owner is None:  # without an owner the manager says better what is missing
        return
    seen = 0
    cursor: str | None = None
    while True:
        page = await sessions.list_sessions(user_id=owner, limit=min(1000, most - seen), cursor=cursor)
        seen += len(page.items)
        cursor = page.next
        if seen >= most:
            raise TooManySessions(f"{most} sessions are there already (setting server.sessions_per_user); delete one")
        if cursor is None:
            return
