"""A run is added, starts when it has the turn, and is cancelled."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from satchel.access import Access, checked_attempt, draft_parts, request
from satchel.domain.decisions.children import AddChildRun
from satchel.domain.decisions.runs import AddRun, CancelRun, RenewWaiting, RunDecision, StartRun
from satchel.domain.ids import RANDOM_BYTES, checked_id, derived_run_id, encode_id
from satchel.domain.message import admit_message
from satchel.domain.rights import check_user_size
from satchel.domain.run import Attempt, MemoryOf, OnBusy, Run
from satchel.runs.checks import LEASE, admit_task, check_options, checked_lease, checked_text, said_by_user
from satchel.runs.written import run_written


class RunAdding:
    """Methods that bring a run to the point where it is executed, or take it away again."""

    _access: Access

    async def add_run(
        self,
        session_id: str,
        *,
        goal: str = "",
        agent: str | None = None,
        input: Mapping[str, Any] | str | bytes | None = None,
        on_busy: OnBusy = "reject",
        max_attempts: int = 1,
        memory: MemoryOf = "session",
        metadata: Mapping[str, Any] | None = None,
        start: bool = False,
        lease: float = LEASE,
        expected_version: int | None = None,
        idempotency_key: str | None = None,
    ) -> Run:
        """Add a run: READY, with the turn if nobody has it.

        ``input`` is the message that the run answers: a user's text, or a chat message as a mapping (a str is text here,
        not JSON). It becomes a message of the session in the commit that starts the run. ``on_busy`` says what happens
        while another run has the turn: ``reject`` raises RunActive; ``queue`` waits (QueueFull when too many do);
        ``cancel`` asks the holder to stop and goes next. ``start`` takes the turn and starts at once if it is free; the
        caller then executes the run itself, under a lease of ``lease`` seconds that it renews (``renew_run``; while it waits
        for the turn, ``keep_waiting``).

        ``agent`` names whose workers execute the run. Without one no worker takes it: whoever works itself starts it. (A
        service gives a run that its caller does not start to its default agent; ``""`` is none there too.)

        ``memory="run"`` gives the run a layer of its own over the session's working memory: what it writes there is seen by
        itself alone, and goes into the session's memory when the run completes (see ``Run``). Every attempt begins with an
        empty layer.

        Raises SessionNotFound, NotAllowed, SessionClosed, SessionExpired, RunActive, QueueFull, InvalidInput.
        """
        check_options(on_busy=on_busy, memory=memory, start=start, max_attempts=max_attempts)
        limits = self._access.limits
        message = (
            None
            if input is None
            else admit_message(said_by_user(input), limits=limits, field="input", count=self._access.count_tokens)
        )
        if message is not None:
            check_user_size(self._access.principal, message, limits=limits, field="input")
        kept = admit_task(goal, agent, metadata, limits=limits)
        agent = "" if agent is None else agent
        common = self._access.common(session_id, idempotency_key, expected_version, None)
        parts = (None,) if message is None else draft_parts(message)
        layered = () if memory == "session" else (memory,)
        decision = AddRun(
            **common,
            fingerprint=request("add_run", goal, agent, on_busy, max_attempts, kept, int(start), *layered, *parts),
            run_id=_new_run_id(session_id, common),
            goal=goal,
            agent=agent,
            limits=limits,
            on_busy=on_busy,
            input=message,
            metadata=kept,
            max_attempts=max_attempts,
            memory=memory,
            start=start,
            lease=checked_lease(lease),
        )
        return await run_written(self._access, decision)

    async def add_child_run(
        self,
        session_id: str,
        parent: Attempt,
        *,
        goal: str = "",
        agent: str = "",
        metadata: Mapping[str, Any] | None = None,
        expected_version: int | None = None,
        idempotency_key: str | None = None,
    ) -> Run:
        """A part of a run, told and counted apart: RUNNING at once, under the attempt and lease of ``parent``. Its own writes
        carry ``Attempt(child.run_id, 1)``.

        It has no turn, input, question or lease, and no child runs. ``complete_run``, ``fail_run`` or
        ``end_cancelled_run`` ends it; what is still open when the parent's attempt ends is CANCELLED with the stop reason
        ``parent_ended`` (FAILED with ``worker_lost``, when that is how the parent was lost). At most 32 are open.

        Raises RunFenced (``parent`` holds its run no longer), RunNested (``parent`` is a child run), LimitExceeded.
        """
        checked_attempt(parent, field="parent")
        limits = self._access.limits
        kept = admit_task(goal, agent, metadata, limits=limits)
        common = self._access.common(session_id, idempotency_key, expected_version, parent)
        decision = AddChildRun(
            **common,
            fingerprint=request("add_child_run", parent.run_id, parent.attempt, goal, agent, kept),
            run_id=_new_run_id(session_id, common),
            goal=goal,
            agent=agent,
            metadata=kept,
            limits=limits,
        )
        return await run_written(self._access, decision)

    async def start_run(
        self,
        session_id: str,
        run_id: str,
        *,
        lease: float = LEASE,
        expected_version: int | None = None,
        idempotency_key: str | None = None,
    ) -> Run:
        """Claim a READY run that has the turn: RUNNING, under a lease of ``lease`` seconds. Its ``attempt`` counts up.

        Raises RunNotFound, RunActive (another run has the turn), IllegalTransition.
        """
        checked_id(run_id, field="run_id", limits=self._access.limits)
        decision = StartRun(
            **self._access.common(session_id, idempotency_key, expected_version, None),
            fingerprint=request("start_run", run_id),
            run_id=run_id,
            lease=checked_lease(lease),
        )
        return await run_written(self._access, decision)

    async def keep_waiting(self, session_id: str, run_id: str) -> Run:
        """Renew the lease of a run that this caller added with ``start=True`` and waits for (its turn, or an answer): without
        it the run ends as ``client_lost``, so that the queue goes on when a client dies. A run that does not wait is left alone."""
        checked_id(run_id, field="run_id", limits=self._access.limits)
        common = self._access.common(session_id, None, None, None) | {"key": None}
        return (await self._access.submit(RenewWaiting(**common, run_id=run_id))).value

    async def cancel_run(
        self,
        session_id: str,
        run_id: str,
        *,
        reason: str = "cancelled",
        expected_version: int | None = None,
        idempotency_key: str | None = None,
    ) -> Run:
        """End a run that waits, at once; ask a RUNNING one to stop. Cancelling twice is fine.

        Raises RunNotFound, IllegalTransition (it has completed or failed).
        """
        checked_id(run_id, field="run_id", limits=self._access.limits)
        checked_text(reason, field="reason")
        decision: RunDecision = CancelRun(
            **self._access.common(session_id, idempotency_key, expected_version, None),
            fingerprint=request("cancel_run", run_id, reason),
            run_id=run_id,
            reason=reason,
        )
        return await run_written(self._access, decision)


def _new_run_id(session_id: str, common: Mapping[str, Any]) -> str:
    if common["caller_key"]:
        return derived_run_id(session_id, common["key"])
    return encode_id("run_", os.urandom(RANDOM_BYTES))
