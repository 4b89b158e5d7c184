"""Written by tools/make_sync.py from satchel/runs/: change that, and run it again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from satchel.domain.limits import Limits
from satchel.domain.message import Message
from satchel.domain.page import Page
from satchel.domain.principal import Principal
from satchel.domain.run import Attempt, MemoryOf, OnBusy, Run, RunStatus
from satchel.questions import EXPIRES_IN, Asked
from satchel.runs import RunManager as AsyncRunManager
from satchel.runs.checks import LEASE
from satchel.sync.opening import OpenStore, async_side, loop_of


class RunManager:
    """Runs of the sessions that its principal may see.

    Every method that writes takes ``idempotency_key`` and, where others could have changed what it builds on,
    ``expected_version``. ``attempt`` names the run that writes: ``Attempt(run_id, attempt)``.
    """

    def __init__(self, store: OpenStore | None = None, principal: Principal | None = None) -> None:
        self._async = AsyncRunManager(async_side(store), principal)
        self._loop = loop_of(store)

    def add_run(
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
        return self._loop.call(
            self._async.add_run(
                session_id,
                goal=goal,
                agent=agent,
                input=input,
                on_busy=on_busy,
                max_attempts=max_attempts,
                memory=memory,
                metadata=metadata,
                start=start,
                lease=lease,
                expected_version=expected_version,
                idempotency_key=idempotency_key,
            )
        )

    def add_child_run(
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
        return self._loop.call(
            self._async.add_child_run(
                session_id,
                parent,
                goal=goal,
                agent=agent,
                metadata=metadata,
                expected_version=expected_version,
                idempotency_key=idempotency_key,
            )
        )

    def start_run(
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
        return self._loop.call(
            self._async.start_run(
                session_id, run_id, lease=lease, expected_version=expected_version, idempotency_key=idempotency_key
            )
        )

    def keep_waiting(self, session_id: str, run_id: str) -> Run:
        """Renew the lease of a run that this caller added with ``start=True`` and waits for (its turn, or an answer): without
        it the run ends as ``client_lost``, so that the queue goes on when a client dies. A run that does not wait is left alone."""
        return self._loop.call(self._async.keep_waiting(session_id, run_id))

    def cancel_run(
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
        return self._loop.call(
            self._async.cancel_run(
                session_id, run_id, reason=reason, expected_version=expected_version, idempotency_key=idempotency_key
            )
        )

    def get_run(self, session_id: str, run_id: str) -> Run:
        """Raises RunNotFound."""
        return self._loop.call(self._async.get_run(session_id, run_id))

    def list_runs(
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
        return self._loop.call(
            self._async.list_runs(
                session_id, run_id=run_id, parent_run_id=parent_run_id, status=status, limit=limit, cursor=cursor
            )
        )

    def ask_question(
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
        return self._loop.call(
            self._async.ask_question(
                session_id,
                attempt,
                name,
                question,
                schema=schema,
                expires_in=expires_in,
                here=here,
                expected_version=expected_version,
                idempotency_key=idempotency_key,
            )
        )

    def answer_run(
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
        return self._loop.call(
            self._async.answer_run(
                session_id,
                run_id,
                answer,
                name=name,
                expected_version=expected_version,
                idempotency_key=idempotency_key,
            )
        )

    def wait_for_answer(self, session_id: str, run_id: str, *, lease: float = LEASE) -> Run:
        """For the caller that asked with ``here``: wait, and start the run again once it was answered. RUNNING, under its
        next attempt. Raises RunFenced when it ended instead."""
        return self._loop.call(self._async.wait_for_answer(session_id, run_id, lease=lease))

    def renew_run(self, session_id: str, attempt: Attempt) -> bool:
        """Move the lease on. True: somebody asked the run to stop. Raises RunFenced when it is lost, and for a child run: it
        lives under its parent's lease."""
        return self._loop.call(self._async.renew_run(session_id, attempt))

    def add_step(
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
        return self._loop.call(
            self._async.add_step(
                session_id,
                attempt,
                name,
                input_tokens=input_tokens,
                output_tokens=output_tokens,
                total_tokens=total_tokens,
                duration_ms=duration_ms,
                error=error,
                expected_version=expected_version,
                idempotency_key=idempotency_key,
            )
        )

    def complete_run(
        self,
        session_id: str,
        attempt: Attempt,
        *,
        stop_reason: str = "end_turn",
        expected_version: int | None = None,
        idempotency_key: str | None = None,
    ) -> Run:
        """COMPLETED. The first terminal commit wins: RunFenced when the run ended before, or is another attempt's."""
        return self._loop.call(
            self._async.complete_run(
                session_id,
                attempt,
                stop_reason=stop_reason,
                expected_version=expected_version,
                idempotency_key=idempotency_key,
            )
        )

    def fail_run(
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
        return self._loop.call(
            self._async.fail_run(
                session_id,
                attempt,
                code=code,
                message=message,
                stop_reason=stop_reason,
                expected_version=expected_version,
                idempotency_key=idempotency_key,
            )
        )

    def end_cancelled_run(
        self,
        session_id: str,
        attempt: Attempt,
        *,
        stop_reason: str = "cancelled",
        expected_version: int | None = None,
        idempotency_key: str | None = None,
    ) -> Run:
        """CANCELLED, by the attempt that was asked to stop; its open calls are closed as cancelled."""
        return self._loop.call(
            self._async.end_cancelled_run(
                session_id,
                attempt,
                stop_reason=stop_reason,
                expected_version=expected_version,
                idempotency_key=idempotency_key,
            )
        )

    def hand_back_run(
        self,
        session_id: str,
        attempt: Attempt,
        *,
        expected_version: int | None = None,
        idempotency_key: str | None = None,
    ) -> Run:
        """By the attempt that holds it and will not finish it: READY again, with its turn, if it has attempts left; else
        FAILED with ``worker_lost`` (CANCELLED, if it was asked to stop). Its open calls are closed as unknown."""
        return self._loop.call(
            self._async.hand_back_run(
                session_id, attempt, expected_version=expected_version, idempotency_key=idempotency_key
            )
        )

    @property
    def limits(self) -> Limits:
        """Those of the store."""
        return self._async.limits

    def add_text(
        self,
        session_id: str,
        attempt: Attempt,
        text: str,
        *,
        message: int,
        offset: int,
        metadata: Mapping[str, Any] | None = None,
    ) -> int:
        """Some of an assistant's message that is being said: shown to followers, and no event. Answers where the next text
        begins.

        ``message`` counts the streamed messages of this attempt from 1; ``offset`` is the number of characters before
        ``text``, of at most 64 KiB. What is stored already is left alone, so a call may be repeated. ``metadata`` comes
        with the first text. If the run ends, or is taken away, what was said becomes an interrupted message.

        Raises StreamGap, LimitExceeded (the message is too long, or too many are said at once), RunFenced.
        """
        return self._loop.call(
            self._async.add_text(session_id, attempt, text, message=message, offset=offset, metadata=metadata)
        )

    def end_text(
        self,
        session_id: str,
        attempt: Attempt,
        answer: Mapping[str, Any] | bytes,
        *,
        message: int,
        metadata: Mapping[str, Any] | None = None,
        interrupted: bool = False,
    ) -> Message:
        """A streamed message is final: ``answer`` is all of it, an assistant's chat message whose content begins with the text
        that was streamed (or nothing was). A repeated call gives the first answer.

        Raises InvalidInput, LimitExceeded, RunFenced, IdempotencyMismatch (it became final with another content).
        """
        return self._loop.call(
            self._async.end_text(
                session_id, attempt, answer, message=message, metadata=metadata, interrupted=interrupted
            )
        )

    @property
    def principal(self) -> Principal:
        return self._async.principal
