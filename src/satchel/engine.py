"""What an agent engine is, and what it is given. Satchel keeps state; it does not think."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Literal, Protocol, runtime_checkable

from satchel.domain.memory import WorkingMemory
from satchel.domain.message import Message
from satchel.domain.page import Page
from satchel.domain.pending import PendingCall
from satchel.domain.question import Approval
from satchel.domain.run import Attempt, Run
from satchel.domain.session import Session
from satchel.domain.tool_call import ToolCall


class RunSuspended(asyncio.CancelledError):
    """The run waits for an answer: its agent is left here, and called again from its start once there is one. What an agent
    that goes on all the same writes is refused with RunFenced."""


class ToolUse(Protocol):
    """One tool call that is open. Set ``result``, or ``error``; leaving the block finishes the call."""

    result: Any
    error: Any

    @property
    def seq(self) -> int:
        """Names the call in the session."""
        ...

    @property
    def repeat_of(self) -> int | None:
        """The seq of the newest earlier call of the same tool with equal arguments."""
        ...

    @property
    def is_replayed(self) -> bool:
        """The step has an outcome in this run: ``result``, or ``error``. Do not run the tool; nothing new is written."""
        ...


class TextStream(Protocol):
    """An assistant's message that is being said. Before the block is left, ``tool_calls`` may be set, a list as a chat API
    gives it, and in ``members`` whatever else the message has."""

    tool_calls: list[Mapping[str, Any]] | None
    members: dict[str, Any]

    async def write(self, text: str) -> None:
        """Say ``text``. Followers see it once it is stored, moments later; this waits only while more than 64 KiB are
        still to be stored. Raises LimitExceeded when the message becomes too long, RunFenced when the run is lost."""
        ...

    @property
    def text(self) -> str:
        """All that was said."""
        ...

    @property
    def message(self) -> Message | None:
        """What it became, once the block is left; None if nothing was said."""
        ...


class ModelContext(Protocol):
    """What a model should see: OpenAI chat messages, and what they weigh."""

    @property
    def messages(self) -> list[dict[str, Any]]: ...

    @property
    def tokens(self) -> int: ...

    @property
    def dropped(self) -> int: ...

    @property
    def window_share(self) -> float: ...


class RunContext(Protocol):
    """One run, as the agent that executes it sees it. Every write carries the run's attempt and is refused with RunFenced
    once another attempt, or nobody, holds the run."""

    @property
    def session_id(self) -> str: ...

    @property
    def run(self) -> Run:
        """The run as it was when it started."""
        ...

    @property
    def attempt(self) -> Attempt: ...

    @property
    def is_cancelled(self) -> bool:
        """Somebody asked the run to stop, or it was lost. Learned with each renewal of the lease (a third of it) and each
        step."""
        ...

    async def session(self) -> Session:
        """The session as it is now."""
        ...

    async def working_memory(self) -> WorkingMemory:
        """The session's memory, under the run's own layer if it was added with ``memory="run"``."""
        ...

    async def update_working_memory(
        self, patch: Mapping[str, Any], *, expected_version: int | None = None, idempotency_key: str | None = None
    ) -> WorkingMemory:
        """See SessionManager.update_working_memory; ``set`` and ``clear`` need no version here, but in a child run. The patch
        of a run with a layer of its own goes into that layer."""
        ...

    async def context(self, *, max_tokens: int = 8000) -> ModelContext: ...

    async def messages(
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
        ...

    async def tool_history(
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
        ...

    async def append_message(
        self,
        message: Mapping[str, Any] | str | bytes,
        *,
        metadata: Mapping[str, Any] | None = None,
        interrupted: bool = False,
        idempotency_key: str | None = None,
    ) -> Message: ...

    def stream(self, *, metadata: Mapping[str, Any] | None = None) -> AbstractAsyncContextManager[TextStream]:
        """``async with ctx.stream() as answer: await answer.write("…")``

        The text reaches those who follow the session with ``text=True`` while the model speaks. Leaving the block makes it
        an assistant's message, with ``answer.tool_calls`` and ``answer.members``; nothing, if nothing was said. A block that
        raises or is cancelled leaves it marked ``interrupted``, and so does a run that is lost, or ended by somebody else.
        """
        ...

    def tool(
        self, tool: str, arguments: object = None, *, tool_call_id: str | None = None, step: str | None = None
    ) -> AbstractAsyncContextManager[ToolUse]:
        """``async with ctx.tool("run_shell", {"command": …}) as call: call.result = …``

        The call is written before the block runs and finished after it: succeeded; failed, when ``error`` was set or the
        block raised; cancelled, when it was cancelled. ``step`` names it within the run: once a call of that name has
        succeeded or failed, in this attempt or an earlier one, ``call.is_replayed`` is true and the outcome is there. One
        that was cancelled, or that nobody knows the outcome of, is made again. Raises StepOpen while one is open;
        InvalidInput when this attempt used the name for another call.
        """
        ...

    async def call(
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
        ...

    async def pending_calls(self) -> tuple[PendingCall, ...]:
        """The tool calls in the newest answer of this run, in order, that have no result yet and are not open.

        Where an agent begins that is called from its start (after a question, or a lost worker): what its model asked for
        stands in the session already. ``may_have_happened`` is true of a call that was begun before and left in the middle. A
        call without a label (``id``) cannot be answered, and is left out.
        """
        ...

    async def ask(
        self, name: str, question: str, *, schema: Mapping[str, Any] | None = None, expires_in: float = 604_800.0
    ) -> Any:
        """Ask a human, and wait. The answer is a JSON value, one that fits ``schema`` (a JSON Schema).

        The first call makes the run WAITING. In a worker the agent is left there, by RunSuspended, and called again from its
        start once somebody answered (``RunManager.answer_run``); in ``sessions.run`` it waits in place, and a run whose wait
        was left (by a timeout of its own) writes nothing more, unless it asks the same again, and is CANCELLED at the end of its
        block. A question that was answered in this run returns at once: the name decides. After ``expires_in`` seconds without
        an answer the run is FAILED with ``question_expired``. Raises ToolCallOpen inside a tool call, CancelRequested once the run was asked to
        stop, InvalidInput, LimitExceeded; RunFenced when the run ended while it waited in place.
        """
        ...

    async def approve(
        self,
        name: str,
        tool: str,
        arguments: object,
        *,
        question: str | None = None,
        expires_in: float = 604_800.0,
    ) -> Approval:
        """Ask a human whether ``tool`` may run with ``arguments``. The answer is ``{"decision": "approve" | "deny" |
        "edit", "arguments"?, "reason"?}``, with arguments where they were edited. Waits and raises as :meth:`ask`."""
        ...

    async def step(
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
        ...

    def child(
        self, goal: str, *, agent: str = "", metadata: Mapping[str, Any] | None = None
    ) -> AbstractAsyncContextManager[RunContext]:
        """``async with ctx.child("read the logs") as child: …``: a part of the run, told and counted apart.

        The block has a RunContext of its own; leaving it completes the child run, cancels it if it was asked to stop or the
        block was cancelled, and fails it if the block raises. It lives under its parent's lease and ends with it at the
        latest; it has no child runs. Several may be open at once, at most 32 (LimitExceeded).

        When the child alone is asked to stop, ``child.is_cancelled`` becomes true; in a worker the task that is in the block
        is cancelled as well, and goes on behind the block, which takes that cancellation.
        """
        ...

    def stop(self, reason: str) -> None:
        """How the run's ``stop_reason`` will read when it completes; ``end_turn`` unless said."""
        ...


@runtime_checkable
class Engine(Protocol):
    """Executes runs. A plain ``async def agent(ctx)`` will do as well."""

    async def run(self, ctx: RunContext) -> None: ...


Agent = Engine | Callable[[RunContext], Awaitable[None]]


async def execute(agent: Agent, ctx: RunContext) -> None:
    """Let ``agent`` execute the run of ``ctx``."""
    if isinstance(agent, Engine):
        await agent.run(ctx)
    else:
        await agent(ctx)
