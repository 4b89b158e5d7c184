"""Finding runs to execute, and taking them: a claim is a commit, so that no run is taken twice."""

from __future__ import annotations

import asyncio
import os
import random
from collections import deque
from collections.abc import Callable, Collection, Iterable

import msgspec

from satchel.domain.ids import SessionRef
from satchel.domain.principal import Principal
from satchel.domain.run import Run
from satchel.errors import Conflict, OutcomeUnknown
from satchel.opened import OpenStore
from satchel.patience import AWAY, pauses
from satchel.runs import RunManager
from satchel.store import Store

PAGE = 32  # sessions of one look, of which some are taken


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """A run that is this worker's now. ``began``: on the event loop's clock, before the commit."""

    ref: SessionRef
    user_id: str
    agent: str
    run: Run
    began: float


class ReadyRuns:
    """The sessions with a run for one of ``agents``, in turn: each look goes on behind the last one's, and begins with
    another agent, so that nothing is passed over for ever. ``only``: no other session is looked at."""

    def __init__(self, store: Store, agents: Iterable[str], *, only: SessionRef | None = None) -> None:
        self._only = only
        self._store = store
        self._agents = deque(agents)
        self._after: dict[str, SessionRef | None] = dict.fromkeys(self._agents)

    async def find(self, most: int, *, without: Collection[SessionRef]) -> list[tuple[SessionRef, str]]:
        """At most ``most``; none of ``without``. Raises StoreError."""
        if self._only is not None:
            return [] if self._only in without else await self._find_only(self._only)
        found: list[tuple[SessionRef, str]] = []
        self._agents.rotate(-1)
        for agent in self._agents:
            seen = await self._look(agent)
            new = [ref for ref in seen if ref not in without]
            wanted = most - len(found)
            # Workers that look at the same time see the same: each takes others of them.
            found += [(ref, agent) for ref in (new if len(new) <= wanted else random.sample(new, wanted))]
            if len(found) == most:
                break
        return found

    async def _find_only(self, ref: SessionRef) -> list[tuple[SessionRef, str]]:
        snapshot = await self._store.snapshot(ref, working_memory=False, metadata=False)
        record = snapshot.record
        return [(ref, agent) for agent in self._agents if record is not None and record.ready_agent == agent]

    async def _look(self, agent: str) -> list[SessionRef]:
        after = self._after[agent]
        seen = await self._store.due("ready", agent=agent, after=after, limit=PAGE)
        if after is not None and len(seen) < PAGE:  # the end was reached: the beginning comes next
            first = await self._store.due("ready", agent=agent, limit=PAGE - len(seen))
            seen += [ref for ref in first if ref <= after]
            self._after[agent] = None
        else:
            self._after[agent] = seen[-1] if len(seen) == PAGE else None
        return seen


async def claim(
    opened: OpenStore, ref: SessionRef, agent: str, *, lease: float, is_over: Callable[[], bool]
) -> Claim | None:
    """Take the run that has the session's turn; None when there is none for ``agent`` any more.

    Whether an unknown outcome was a claim is asked until it is known, or ``is_over``: nobody else would execute it. Raises
    StoreError, and NotFound for a session that nobody can see.
    """
    snapshot = await opened.store.snapshot(ref, working_memory=False, metadata=False)
    record = snapshot.record
    if record is None or record.turn is None or record.ready_agent != agent:
        return None
    runs = RunManager(opened, Principal.operator(tenant_id=ref.tenant_id))
    key = f"claim-{os.urandom(16).hex()}"
    pause = pauses()
    loop = asyncio.get_running_loop()
    began = loop.time()
    may_be_ours = False
    while True:
        try:
            run = await runs.start_run(ref.session_id, record.turn.run_id, lease=lease, idempotency_key=key)
        except Conflict:  # another worker was quicker, or the session was closed
            return None
        except AWAY as away:
            may_be_ours = may_be_ours or isinstance(away, OutcomeUnknown)
            if not may_be_ours or is_over() or loop.time() > began + lease:
                raise
            await asyncio.sleep(next(pause))
        else:
            return Claim(ref=ref, user_id=record.user_id, agent=agent, run=run, began=began)
