"""A run asks a human, and goes on with the answer."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from typing import Any

from satchel.access import checked_attempt, checked_flag
from satchel.domain.ids import checked_id
from satchel.domain.run import Attempt, Run
from satchel.errors import Conflict
from satchel.questions import EXPIRES_IN, Asked, ask, give_answer, is_answered, when_back
from satchel.runs.adding import RunAdding
from satchel.runs.checks import LEASE, checked_lease, ended_instead
from satchel.runs.reading import RunReading


class RunAsking(RunAdding, RunReading):
    """Methods by which a run waits for a human."""

    async def ask_question(
        self,
        session_id: str,
        attempt: Attempt,
        name: str,
        question: str,
        *,
        schema: Mapping[str, Any] | None = None,
        expires_in: float = EXPIRES_IN,
        here: bool = False,
        expected_version: int | None = None,
        idempotency_key: str | None = None,
    ) -> Asked:
        """By the attempt that holds the run: ask a human under ``name``. The run becomes WAITING, keeps its session's turn,
        and is taken again by whoever is next, once it was answered. What was answered under this name before is given at
        once; what is pending stays so, asked once. ``schema``: a JSON Schema of the answer; ``expires_in``: seconds until
        the run is FAILED with ``question_expired``. ``here``: the caller goes on waiting itself, under its lease
        (``keep_waiting``, ``wait_for_answer``). A context's ``ask`` does all of this.

        Raises RunFenced, CancelRequested, ToolCallOpen (of this run), IllegalTransition (a child run), InvalidInput,
        LimitExceeded, ExtraMissing (a schema needs the extra ``questions``).
        """
        checked_attempt(attempt)
        checked_flag(here, field="here")
        common = self._access.common(session_id, idempotency_key, expected_version, attempt)
        return await ask(self._access, common, attempt, name, question, schema=schema, expires_in=expires_in, here=here)

    async def answer_run(
        self,
        session_id: str,
        run_id: str,
        answer: object,
        *,
        name: str | None = None,
        expected_version: int | None = None,
        idempotency_key: str | None = None,
    ) -> Run:
        """Answer what a WAITING run asked, with a JSON value (a str is text here, not JSON): it becomes READY to go on, with
        its turn. ``name``: of the question that is meant; without it, whichever is pending.

        Raises RunNotFound, IllegalTransition (it waits for nothing), OtherQuestion, InvalidInput (the value does not fit the
        question's schema), LimitExceeded.
        """
        checked_id(run_id, field="run_id", limits=self._access.limits)
        common = self._access.common(session_id, idempotency_key, expected_version, None)
        return await give_answer(self._access, common, run_id, answer, name=name)

    async def wait_for_answer(self, session_id: str, run_id: str, *, lease: float = LEASE) -> Run:
        """For the caller that asked with ``here``: wait, and start the run again once it was answered. RUNNING, under its
        next attempt. Raises RunFenced when it ended instead."""
        checked_id(run_id, field="run_id", limits=self._access.limits)
        checked_lease(lease)
        if await is_answered(self._access, session_id, run_id, lease=lease):
            with contextlib.suppress(Conflict):  # somebody ended it since
                return await self._go_on(session_id, run_id, lease)
        raise ended_instead(await self.get_run(session_id, run_id))

    async def _go_on(self, session_id: str, run_id: str, lease: float) -> Run:
        """While the store is away the answer is not lost with it: only the lease's end ends the wait, once the store is back."""
        key = f"answered-{os.urandom(16).hex()}"  # a start whose outcome is unknown finds itself
        return await when_back(
            lambda: self.start_run(session_id, run_id, lease=lease, idempotency_key=key), lease=lease
        )
