"""Runs for agents that this server does not serve: a worker elsewhere may, and what is known of that. And runs that name no
agent, which no worker takes."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from satchel.domain.run import Run

LOOK = 1.0  # seconds in which a worker elsewhere that is free would have begun
KNOWN = 600.0  # seconds for which who began a run elsewhere is taken to be there still
MOST = 1000  # names of agents that are remembered
NO_AGENT = "the run names no agent, and no worker takes such runs: say `agent`"


class Elsewhere:
    """``served``: the agents beside this server. Nothing is refused by what is known here: it is only told."""

    def __init__(self, served: Sequence[str], *, clock: Callable[[], float] = time.monotonic) -> None:
        self._served = tuple(served)
        self._clock = clock
        self._begun: dict[str, float] = {}

    def begun(self, run: Run) -> None:
        """Somebody executes it: who does so for one run of its agent does so for others."""
        if run.agent and run.agent not in self._served:
            if len(self._begun) >= MOST:
                self._begun.clear()
            self._begun[run.agent] = self._clock()

    def is_unknown(self, agent: str) -> bool:
        """Whether this server executes runs, and none for this agent, and no worker elsewhere was seen to. Of no agent it is
        known that nobody does."""
        if not agent:
            return True
        if not self._served or agent in self._served:
            return False
        last = self._begun.get(agent)
        return last is None or self._clock() > last + KNOWN

    def hint(self, run: Run) -> str | None:
        """Why a run may wait for long; None where it need not."""
        if run.status != "READY" or run.agent in self._served:
            return None
        if not run.agent:
            return NO_AGENT
        here = f"this server serves {', '.join(self._served)}" if self._served else "this server executes no runs"
        return f"the run waits for a worker that serves agent {run.agent!r}: {here}"
