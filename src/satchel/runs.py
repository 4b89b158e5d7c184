"""RunManager: the turn, the queue, and what happens to a run between them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import msgspec

from satchel.access import (
    access_to,
    check_user_size,
    checked_attempt,
    checked_choice,
    checked_filters,
    checked_flag,
    checked_limit,
    draft_parts,
    request,
)
from satchel.domain.clock import SECOND
from satchel.domain.decisions.children import AddChildRun
from satchel.domain.decisions.decision import Decision
from satchel.domain.decisions.runs import (
    AddRun,
    AddStep,
    CancelRun,
    EndRun,
    HandBackRun,
    RenewRun,
    RenewWaiting,
    RunDecision,
    StartRun,
)
from satchel.domain.ids import RANDOM_BYTES, checked_id, checked_line, digest, encode_id
from satchel.domain.json_text import kind_of
from satchel.domain.message import admit_message, admit_metadata
from satchel.domain.page import Page, decode_cursor, encode_cursor
from satchel.domain.principal import Principal
from satchel.domain.run import Attempt, MemoryOf, OnBusy, Run, RunError, RunStatus, Usage
from satchel.errors import InvalidInput, RunFenced, RunNotFound
from satchel.opened import OpenStore
from satchel.questions import EXPIRES_IN, Asked, ask, give_answer, is_answered
from satchel.store import RunPage
from satchel.texts import RunTexts

LEASE = 30.0  # seconds; renewed at a third of it
GOAL_BYTES = 8 * 1024
STATUSES = ("READY", "RUNNING", "WAITING", "COMPLETED", "FAILED", "CANCELLED")


class RunManager(RunTexts):
    """Runs of the sessions that its principal may see.

    Every method that writes takes ``idempotency_key`` and, where others could have changed what it builds on,
    ``expected_version``. ``attempt`` names the run that writes: ``Attempt(run_id, attempt)``.
    """

    def __init__(self, store: OpenStore | None = None, principal: Principal | None = None) -> None:
        self._access = access_to(store, principal, None)

    @property
    def principal(self) -> Principal:
        return self._access.principal

    async def add_run(
        self,
        session_id: str,
        *,
        goal: str = "",
        agent: str = "",
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

        ``memory="run"`` gives the run a layer of its own over the session's working memory: what it writes there is seen by
        itself alone, and goes into the session's memory when the run completes (see ``Run``). Every attempt begins with an
        empty layer.

        Raises SessionNotFound, NotAllowed, SessionClosed, SessionExpired, RunActive, QueueFull, InvalidInput.
        """
        checked_choice(on_busy, ("reject", "queue", "cancel"), field="on_busy")
        checked_choice(memory, ("session", "run"), field="memory")
        checked_flag(start, field="start")
        if type(max_attempts) is not int or not 1 <= max_attempts <= 100:
            raise InvalidInput("must be a whole number from 1 to 100", field="max_attempts")
        limits = self._access.limits
        if isinstance(input, str):
            input = {"role": "user", "content": input}
        message = (
            None
            if input is None
            else admit_message(input, limits=limits, field="input", count=self._access.count_tokens)
        )
        if message is not None:
            check_user_size(self._access.principal, message, limits=limits, field="input")
        kept = None if metadata is None else admit_metadata(metadata, limits=limits)
        checked_text(goal, field="goal")
        if agent != "":
            checked_id(agent, field="agent", limits=limits)
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
        return await self._written(decision)

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
        kept = None if metadata is None else admit_metadata(metadata, limits=limits)
        checked_text(goal, field="goal")
        if agent != "":
            checked_id(agent, field="agent", limits=limits)
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
        return await self._written(decision)

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
        return await self._written(decision)

    async def _written(self, decision: Decision[Run]) -> Run:
        done = await self._access.submit(decision)
        if not done.replayed:
            return done.value
        from satchel.sessions.run_then import run_as_answered  # sessions stand on this module

        return await run_as_answered(self._access, decision.ref, done.answer, done.value)

    async def renew_run(self, session_id: str, attempt: Attempt) -> bool:
        """Move the lease on. True: somebody asked the run to stop. Raises RunFenced when it is lost, and for a child run: it
        lives under its parent's lease."""
        checked_attempt(attempt)
        common = self._access.common(session_id, None, None, attempt) | {"key": None}
        return (await self._access.submit(RenewRun(**common))).value

    async def keep_waiting(self, session_id: str, run_id: str) -> Run:
        """Renew the lease of a run that this caller added with ``start=True`` and waits for (its turn, or an answer): without
        it the run ends as ``client_lost``, so that the queue goes on when a client dies. A run that does not wait is left alone."""
        checked_id(run_id, field="run_id", limits=self._access.limits)
        common = self._access.common(session_id, None, None, None) | {"key": None}
        return (await self._access.submit(RenewWaiting(**common, run_id=run_id))).value

    async def add_step(
        self,
        session_id: str,
        attempt: Attempt,
        name: str,
        *,
        input_tokens: int = 0,
        output_tokens: int = 0,
        total_tokens: int = 0,
        duration_ms: int | None = None,
        error: str | None = None,
        expected_version: int | None = None,
        idempotency_key: str | None = None,
    ) -> Run:
        """One model call of a run, with its tokens as the provider counts them; a total of 0 is the sum of the others.
        (A tool call counts itself.)"""
        checked_attempt(attempt)
        checked_text(name, field="name")
        counts = (input_tokens, output_tokens, total_tokens)
        if any(type(count) is not int or not 0 <= count < 1 << 53 for count in counts):
            raise InvalidInput("must be whole numbers from 0", field="tokens")
        usage = Usage(input_tokens, output_tokens, total_tokens or input_tokens + output_tokens)
        step: dict[str, Any] = {"kind": "model", "name": name}
        step |= {name: getattr(usage, name) for name in ("input_tokens", "output_tokens", "total_tokens")}
        if duration_ms is not None:
            step["duration_ms"] = checked_duration(duration_ms)
        if error is not None:
            step["error"] = checked_text(error, field="error")
        body = msgspec.json.encode(step)
        decision = AddStep(
            **self._access.common(session_id, idempotency_key, expected_version, attempt),
            fingerprint=request("add_step", attempt.run_id, body),
            run_id=attempt.run_id,
            body=body,
            usage=usage,
        )
        return await self._written(decision)

    async def complete_run(
        self,
        session_id: str,
        attempt: Attempt,
        *,
        stop_reason: str = "end_turn",
        expected_version: int | None = None,
        idempotency_key: str | None = None,
    ) -> Run:
        """COMPLETED. The first terminal commit wins: RunFenced when the run ended before, or is another attempt's."""
        return await self._end(session_id, attempt, "COMPLETED", stop_reason, None, expected_version, idempotency_key)

    async def fail_run(
        self,
        session_id: str,
        attempt: Attempt,
        *,
        code: str,
        message: str = "",
        stop_reason: str = "error",
        expected_version: int | None = None,
        idempotency_key: str | None = None,
    ) -> Run:
        """FAILED, with a stable ``code`` and a sentence."""
        error = RunError(code=checked_text(code, field="code"), message=checked_text(message, field="message"))
        return await self._end(session_id, attempt, "FAILED", stop_reason, error, expected_version, idempotency_key)

    async def end_cancelled_run(
        self,
        session_id: str,
        attempt: Attempt,
        *,
        stop_reason: str = "cancelled",
        expected_version: int | None = None,
        idempotency_key: str | None = None,
    ) -> Run:
        """CANCELLED, by the attempt that was asked to stop; its open calls are closed as cancelled."""
        return await self._end(session_id, attempt, "CANCELLED", stop_reason, None, expected_version, idempotency_key)

    async def hand_back_run(
        self,
        session_id: str,
        attempt: Attempt,
        *,
        expected_version: int | None = None,
        idempotency_key: str | None = None,
    ) -> Run:
        """By the attempt that holds it and will not finish it: READY again, with its turn, if it has attempts left; else
        FAILED with ``worker_lost`` (CANCELLED, if it was asked to stop). Its open calls are closed as unknown."""
        checked_attempt(attempt)
        decision = HandBackRun(
            **self._access.common(session_id, idempotency_key, expected_version, attempt),
            fingerprint=request("hand_back_run", attempt.run_id, attempt.attempt),
            run_id=attempt.run_id,
        )
        return await self._written(decision)

    async def _end(
        self,
        session_id: str,
        attempt: Attempt,
        status: RunStatus,
        stop_reason: str,
        error: RunError | None,
        expected_version: int | None,
        idempotency_key: str | None,
    ) -> Run:
        checked_attempt(attempt)
        checked_text(stop_reason, field="stop_reason")
        why = None if error is None else msgspec.json.encode(error)
        decision = EndRun(
            **self._access.common(session_id, idempotency_key, expected_version, attempt),
            fingerprint=request("end_run", attempt.run_id, attempt.attempt, status, stop_reason, why),
            run_id=attempt.run_id,
            status=status,
            stop_reason=stop_reason,
            error=error,
            limits=self._access.limits,
        )
        return await self._written(decision)

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
        LimitExceeded, ExtraMissing (a schema needs ``satchel[questions]``).
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
            return await self.start_run(session_id, run_id, lease=lease)
        run = await self.get_run(session_id, run_id)
        reason = f"it is {run.status}" if run.stop_reason is None else f"it is {run.status} ({run.stop_reason})"
        raise RunFenced(run_id=run_id, attempt=run.attempt, reason=reason)

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
        return await self._written(decision)


def _new_run_id(session_id: str, common: Mapping[str, Any]) -> str:
    bits = os.urandom(RANDOM_BYTES)
    if common["caller_key"]:  # the same call makes the same run, whoever decides it
        bits = digest("run", session_id, common["key"].hex())
    return encode_id("run_", bits)


def checked_lease(seconds: float) -> int:
    """Microseconds. Raises InvalidInput."""
    if type(seconds) not in (int, float) or not 0.05 <= seconds <= 86_400:
        raise InvalidInput("must be seconds, from 0.05 to 86400", field="lease")
    return int(seconds * SECOND)


def checked_duration(milliseconds: int) -> int:
    """Raises InvalidInput."""
    if type(milliseconds) is not int or not 0 <= milliseconds < 1 << 53:
        raise InvalidInput("must be a whole number from 0", field="duration_ms")
    return milliseconds


def checked_text(text: str, *, field: str) -> str:
    """Text of several lines, of at most 8 KiB."""
    if type(text) is not str:
        raise InvalidInput(f"must be text, not {kind_of(text)}", field=field)
    checked_line(
        "".join(char for char in text if char not in "\n\t\r"), field=field, limit=GOAL_BYTES, setting="a fixed limit"
    )
    return text
