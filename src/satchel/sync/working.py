"""Written by tools/make_sync.py from satchel/working.py: change that, and run it again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any, Literal

from satchel.context import Context
from satchel.domain.memory import WorkingMemory
from satchel.domain.message import Message
from satchel.domain.page import Page
from satchel.domain.pending import PendingCall
from satchel.domain.question import Approval
from satchel.domain.run import Attempt, Run
from satchel.domain.session import Session
from satchel.domain.tool_call import ToolCall
from satchel.engine import ToolUse
from satchel.questions import EXPIRES_IN
from satchel.sync.background import BackgroundLoop
from satchel.sync.calling import call_tool
from satchel.sync.plain import Held, as_it_is
from satchel.sync.streaming import TextStream
from satchel.working import RunInProgress as AsyncRunContext


class RunContext:
    """One run, as the agent that executes it sees it. Every write carries the run's attempt and is refused with RunFenced
    once another attempt, or nobody, holds the run."""

    def __init__(self, running: AsyncRunContext, loop: BackgroundLoop) -> None:
        self._loop = loop
        self._async = running

    @property
    def session_id(self) -> str:
        return self._async.session_id

    @property
    def run(self) -> Run:
        """The run as it was when it started."""
        return self._async.run

    @property
    def attempt(self) -> Attempt:
        return self._async.attempt

    @property
    def is_cancelled(self) -> bool:
        """Somebody asked the run to stop, or it was lost. Learned with each renewal of the lease (a third of it) and each
        step."""
        return self._async.is_cancelled

    def session(self) -> Session:
        """The session as it is now."""
        return self._loop.call(self._async.session())

    def working_memory(self) -> WorkingMemory:
        """The session's memory, under the run's own layer if it was added with ``memory="run"``."""
        return self._loop.call(self._async.working_memory())

    def update_working_memory(
        self, patch: Mapping[str, Any], *, expected_version: int | None = None, idempotency_key: str | None = None
    ) -> WorkingMemory:
        """See SessionManager.update_working_memory; ``set`` and ``clear`` need no version here, but in a child run. The patch
        of a run with a layer of its own goes into that layer."""
        return self._loop.call(
            self._async.update_working_memory(patch, expected_version=expected_version, idempotency_key=idempotency_key)
        )

    def context(self, *, max_tokens: int = 8000) -> Context:
        return self._loop.call(self._async.context(max_tokens=max_tokens))

    def messages(
        self,
        *,
        after: int = 0,
        before: int | None = None,
        run_id: str | None = None,
        order: Literal["asc", "desc"] = "asc",
        limit: int = 100,
        cursor: str | None = None,
    ) -> Page[Message]:
        """The session's messages, or those of one run. See SessionManager.messages."""
        return self._loop.call(
            self._async.messages(after=after, before=before, run_id=run_id, order=order, limit=limit, cursor=cursor)
        )

    def tool_history(
        self,
        *,
        run_id: str | None = None,
        tool: str | None = None,
        tool_call_id: str | None = None,
        is_open: bool | None = None,
        order: Literal["asc", "desc"] = "asc",
        limit: int = 100,
        cursor: str | None = None,
    ) -> Page[ToolCall]:
        """Tool calls of the session, of all its runs unless ``run_id`` names one: see SessionManager.tool_history."""
        return self._loop.call(
            self._async.tool_history(
                run_id=run_id,
                tool=tool,
                tool_call_id=tool_call_id,
                is_open=is_open,
                order=order,
                limit=limit,
                cursor=cursor,
            )
        )

    def append_message(
        self,
        message: Mapping[str, Any] | str | bytes,
        *,
        metadata: Mapping[str, Any] | None = None,
        interrupted: bool = False,
        idempotency_key: str | None = None,
    ) -> Message:
        return self._loop.call(
            self._async.append_message(
                message, metadata=metadata, interrupted=interrupted, idempotency_key=idempotency_key
            )
        )

    def stream(self, *, metadata: Mapping[str, Any] | None = None) -> AbstractContextManager[TextStream]:
        """``with ctx.stream() as answer: answer.write("…")``

        The text reaches those who follow the session with ``text=True`` while the model speaks. Leaving the block makes it
        an assistant's message, with ``answer.tool_calls`` and ``answer.members``; nothing, if nothing was said. A block that
        raises or is cancelled leaves it marked ``interrupted``, and so does a run that is lost, or ended by somebody else.
        """
        return Held(self._loop, self._async.stream(metadata=metadata), lambda answer: TextStream(answer, self._loop))

    def tool(
        self, tool: str, arguments: object = None, *, tool_call_id: str | None = None, step: str | None = None
    ) -> AbstractContextManager[ToolUse]:
        """``with ctx.tool("run_shell", {"command": …}) as call: call.result = …``

        The call is written before the block runs and finished after it: succeeded; failed, when ``error`` was set or the
        block raised; cancelled, when it was cancelled. ``step`` names it within the run: once a call of that name has
        succeeded or failed, in this attempt or an earlier one, ``call.is_replayed`` is true and the outcome is there. One
        that was cancelled, or that nobody knows the outcome of, is made again. Raises StepOpen while one is open;
        InvalidInput when this attempt used the name for another call.
        """
        return Held(self._loop, self._async.tool(tool, arguments, tool_call_id=tool_call_id, step=step), as_it_is)

    def call(
        self,
        tool: str,
        arguments: object,
        function: Callable[[Any], Any],
        *,
        step: str | None = None,
        tool_call_id: str | None = None,
    ) -> Any:
        """``function(arguments)`` as a tool call; it may be async. With a ``step`` that has an outcome in this run the
        function does not run, and its result, as JSON gives it back, is returned. Raises ToolCallFailed when it raised, now
        or then."""
        return call_tool(self, tool, arguments, function, step=step, tool_call_id=tool_call_id)

    def pending_calls(self) -> tuple[PendingCall, ...]:
        """The tool calls in the newest answer of this run, in order, that have no result yet and are not open.

        Where an agent begins that is called from its start (after a question, or a lost worker): what its model asked for
        stands in the session already. ``may_have_happened`` is true of a call that was begun before and left in the middle. A
        call without a label (``id``) cannot be answered, and is left out.
        """
        return self._loop.call(self._async.pending_calls())

    def ask(
        self, name: str, question: str, *, schema: Mapping[str, Any] | None = None, expires_in: float = EXPIRES_IN
    ) -> Any:
        """Ask a human, and wait. The answer is a JSON value, one that fits ``schema`` (a JSON Schema).

        The first call makes the run WAITING. In a worker the agent is left there, by RunSuspended, and called again from its
        start once somebody answered (``RunManager.answer_run``); in ``sessions.run`` it waits in place, and a run whose wait
        was left (by a timeout of its own) writes nothing more, unless it asks the same again, and is CANCELLED at the end of its
        block. A question that was answered in this run returns at once: the name decides. After ``expires_in`` seconds without
        an answer the run is FAILED with ``question_expired``. Raises ToolCallOpen inside a tool call, CancelRequested once the run was asked to
        stop, InvalidInput, LimitExceeded; RunFenced when the run ended while it waited in place.
        """
        return self._loop.call(self._async.ask(name, question, schema=schema, expires_in=expires_in))

    def approve(
        self, name: str, tool: str, arguments: object, *, question: str | None = None, expires_in: float = EXPIRES_IN
    ) -> Approval:
        """Ask a human whether ``tool`` may run with ``arguments``. The answer is ``{"decision": "approve" | "deny" |
        "edit", "arguments"?, "reason"?}``, with arguments where they were edited. Waits and raises as :meth:`ask`."""
        return self._loop.call(self._async.approve(name, tool, arguments, question=question, expires_in=expires_in))

    def step(
        self,
        name: str,
        *,
        input_tokens: int = 0,
        output_tokens: int = 0,
        total_tokens: int = 0,
        duration_ms: int | None = None,
        error: str | None = None,
    ) -> Run:
        """One model call, with its tokens."""
        return self._loop.call(
            self._async.step(
                name,
                input_tokens=input_tokens,
                output_tokens=output_tokens,
                total_tokens=total_tokens,
                duration_ms=duration_ms,
                error=error,
            )
        )

    def child(
        self, goal: str, *, agent: str = "", metadata: Mapping[str, Any] | None = None
    ) -> AbstractContextManager[RunContext]:
        """``with ctx.child("read the logs") as child: …``: a part of the run, told and counted apart.

        The block has a RunContext of its own; leaving it completes the child run, cancels it if it was asked to stop or the
        block was cancelled, and fails it if the block raises. It lives under its parent's lease and ends with it at the
        latest; it has no child runs. Several may be open at once, at most 32 (LimitExceeded).

        When the child alone is asked to stop, ``child.is_cancelled`` becomes true; in a worker the task that is in the block
        is cancelled as well, and goes on behind the block, which takes that cancellation.
        """
        return Held(
            self._loop,
            self._async.child(goal, agent=agent, metadata=metadata),
            lambda running: RunContext(running, self._loop),
        )

    def stop(self, reason: str) -> None:
        """How the run's ``stop_reason`` will read when it completes; ``end_turn`` unless said."""
        self._async.stop(reason)
