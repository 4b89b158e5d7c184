"""Limits on how much one user may have at once. They hold for this process, and are settings."""

from __future__ import annotations

from collections import defaultdict

from satchel.access import access_to
from satchel.domain.decisions.housekeeping import KnownKey
from satchel.domain.ids import derived_run_id, derived_session_id
from satchel.domain.principal import Principal
from satchel.domain.run import TERMINAL, Run
from satchel.errors import NotFound, SessionDeleted
from satchel.http.problems import TooManyRuns, TooManySessions
from satchel.opened import OpenStore
from satchel.runs import RunManager
from satchel.sessions import SessionManager
from satchel.sessions.generations import generation_behind, is_over, ref_of
from satchel.store import Store

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


async def was_answered(store: OpenStore, principal: Principal, session_id: str, key: str | None) -> bool:
    """Whether this request was, under its key: who repeats it adds nothing. Raises SessionNotFound."""
    if key is None:
        return False
    access = access_to(store, principal, None)
    decision = KnownKey(ref=access.ref(session_id), principal=principal, asked_key=access.key(key)["key"])
    return (await access.submit(decision)).value


async def former_agent(store: OpenStore, runs: RunManager, session_id: str, key: str | None) -> str | None:
    """Whose the run is that was added under this key, if one was."""
    if key is None:
        return None
    hashed = access_to(store, runs.principal, None).key(key)["key"]
    try:
        return (await runs.get_run(session_id, derived_run_id(session_id, hashed))).agent
    except (NotFound, SessionDeleted):
        return None


async def is_there(
    store: OpenStore, sessions: SessionManager, owner: str, external_id: str | None, key: str | None
) -> bool:
    """Whether a creation under this name, or this key, finds a session."""
    principal = sessions.principal
    if external_id is not None:
        return await _is_named(store.store, principal.tenant_id, owner, external_id)
    if key is None:
        return False
    hashed = access_to(store, principal, None).key(key)["key"]
    session_id = derived_session_id("key", principal.tenant_id, owner, principal.side, hashed.hex())
    try:
        await sessions.get_session(session_id, include=())
    except SessionDeleted:
        return True  # the manager says what became of it
    except NotFound:
        return False
    return True


async def _is_named(store: Store, tenant_id: str, owner: str, external_id: str) -> bool:
    generation = 0
    while True:
        ref = ref_of(tenant_id, owner, external_id, generation)
        record = (await store.snapshot(ref, working_memory=False, metadata=False)).record
        if not is_over(record, owner):
            return record is not None and not record.hidden
        generation = await generation_behind(store, tenant_id, owner, external_id, generation)


async def check_session_count(
    store: OpenStore,
    sessions: SessionManager,
    user_id: str | None,
    *,
    most: int,
    external_id: str | None = None,
    key: str | None = None,
) -> None:
    """Before a session is created; 0: no limit. Raises TooManySessions when the user's list is full, but not to who finds a
    session that is there."""
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
            if await is_there(store, sessions, owner, external_id, key):
                return
            raise TooManySessions(f"{most} sessions are there already (setting server.sessions_per_user); delete one")
        if cursor is None:
            return
