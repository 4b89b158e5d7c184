"""What the requests to one server process share."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from satchel.commit import Seen
from satchel.domain.clock import SECOND
from satchel.domain.principal import Principal
from satchel.domain.run import TERMINAL
from satchel.http.deadlines import Deadlines
from satchel.http.elsewhere import Elsewhere
from satchel.http.identity import Identity
from satchel.http.limits import OpenRuns
from satchel.http.logs import AccessLog, log_access
from satchel.http.metrics import Metrics
from satchel.http.problems import TooManyStreams
from satchel.http.rates import Rates
from satchel.http.settings import ServerSettings
from satchel.opened import OpenStore
from satchel.runs import RunManager
from satchel.sessions import SessionManager
from satchel.traces import Traces

KEPT_MANAGERS = 4096


class Service:
    """``agents``: the names of those that are served beside this server, the first by default."""

    def __init__(
        self,
        store: OpenStore,
        identity: Identity,
        *,
        settings: ServerSettings,
        agents: Sequence[str] = (),
        access_log: AccessLog = log_access,
        traces: Traces | None = None,
    ) -> None:
        self.traces = traces
        self.access_log = access_log
        self.store = store
        self.identity = identity
        self.settings = settings
        self.agents = tuple(agents)
        self.elsewhere = Elsewhere(agents)
        self.metrics = Metrics()
        self.open_runs = OpenRuns(settings.runs_per_user)
        store.committer.observer = self._committed
        self.body_deadlines = Deadlines(settings.body_seconds)
        self.rates = Rates(settings.requests_per_second, settings.burst)
        self._managers: dict[Principal, tuple[SessionManager, RunManager]] = {}
        self._streams: Counter[tuple[str, str]] = Counter()
        self._draining = asyncio.Event()

    @property
    def default_agent(self) -> str:
        return self.agents[0] if self.agents else ""

    def managers(self, principal: Principal) -> tuple[SessionManager, RunManager]:
        found = self._managers.get(principal)
        if found is None:
            if len(self._managers) >= KEPT_MANAGERS:
                self._managers.clear()
            found = self._managers[principal] = (
                SessionManager(self.store, principal),
                RunManager(self.store, principal),
            )
        return found

    def _committed(self, seen: Seen) -> None:
        self.metrics.committed(seen)
        for run in seen.runs:
            if run.status in TERMINAL:
                self.open_runs.ended(run.run_id)

    async def queue_age(self) -> float:
        """Seconds for which the first ready run has waited."""
        for ref in await self.store.store.due("ready", limit=1):
            page = await self.store.store.runs(ref, status="READY", limit=1, newest_first=False)
            if page.runs:
                return max(0, page.clock.now - page.runs[0].created_at) / SECOND
        return 0.0

    # -- the end

    @property
    def is_draining(self) -> bool:
        return self._draining.is_set()

    def drain(self) -> None:
        """Streams end, so that their clients come back to another server; new ones are not begun."""
        self._draining.set()

    async def drained(self) -> None:
        """Until ``drain``."""
        await self._draining.wait()

    # -- streams

    @contextmanager
    def stream_of(self, principal: Principal) -> Iterator[None]:
        """Counts a stream of this caller while it lasts. Raises TooManyStreams."""
        caller = (principal.tenant_id, principal.side)
        if self._streams[caller] >= self.settings.streams_per_user:
            raise TooManyStreams(f"{self.settings.streams_per_user} streams are open already; close one", retry_after=5)
        self._streams[caller] += 1
        self.metrics.followers.inc()
        try:
            yield
        finally:
            self.metrics.followers.dec()
            self._streams[caller] -= 1
            if not self._streams[caller]:
                del self._streams[caller]
