"""What an agent engine is, and what it is given. Satchel keeps state; it does not think."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol, runtime_checkable

from satchel.domain.memory import WorkingMemory
from satchel.domain.message import Message
from satchel.domain.run import Attempt, Run
from satchel.domain.session import Session


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

    async def working_memory(self) -> WorkingMemory: ...

    async def update_working_memory(
        self, patch: Mapping[str, Any], *, idempotency_key: str | None = None
    ) -> WorkingMemory:
        """See SessionManager.update_working_memory; ``set`` and ``clear`` need no version here."""
        ...

    async def context(self, *, max_tokens: int = 8000) -> ModelContext: ...

    async def append_message(
        self,
        message: Mapping[str, Any] | str | bytes,
        *,
        metadata: Mapping[str, Any] | None = None,
        interrupted: bool = False,
        idempotency_key: str | None = None,
    ) -> Message: ...

    def tool(
        self, tool: str, arguments: object = None, *, tool_call_id: str | None = None
    ) -> AbstractAsyncContextManager[ToolUse]:
        """``async with ctx.tool("run_shell", {"command": …}) as call: call.result = …``

        The call is written before the block runs and finished after it: succeeded; failed, when ``error`` was set or the
        block raised; cancelled, when it was cancelled.
        """
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
