"""Agents whose runs and tool calls are traced. Their spans are current on the agent's own thread, so that what it calls there
(a model, an HTTP service), when that is traced too, becomes a part of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from types import TracebackType
from typing import TYPE_CHECKING, Any, cast

from satchel.calling import call_tool
from satchel.domain.run import Run
from satchel.engine import Agent, RunContext, RunSuspended, ToolUse, execute
from satchel.failing import failure_of
from satchel.worker.agents import Served, make

if TYPE_CHECKING:
    from opentelemetry.trace import Span

    from satchel.traces.spans import Traces


def traced(name: str, served: Served, traces: Traces) -> Callable[[], Agent]:
    """A factory, as a worker takes it."""
    return lambda: TracedAgent(name, make(served), traces)


class TracedAgent:
    def __init__(self, name: str, agent: Agent, traces: Traces) -> None:
        self.name = name
        self._agent = agent
        self._traces = traces

    async def run(self, ctx: RunContext) -> None:
        with self._traces.run(ctx.run, self.name) as span:
            watched = TracedContext(ctx, self._traces, span)
            try:
                await execute(self._agent, cast(RunContext, watched))
            except BaseException as raised:
                watched.tell(raised)
                raise
            finally:
                watched.tell_tokens()


class TracedContext:
    """A run's context, with a span for each tool call and child run. All else is as it was."""

    def __init__(self, ctx: RunContext, traces: Traces, span: Span) -> None:
        self._ctx = ctx
        self._traces = traces
        self._span = span
        self._tokens = {"input_tokens": 0, "output_tokens": 0}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ctx, name)

    def tool(
        self, tool: str, arguments: object = None, *, tool_call_id: str | None = None, step: str | None = None
    ) -> AbstractAsyncContextManager[ToolUse]:
        block = self._ctx.tool(tool, arguments, tool_call_id=tool_call_id, step=step)
        return _TracedTool(block, self._traces, self._ctx.run, tool, tool_call_id)

    async def call(
        self,
        tool: str,
        arguments: object,
        function: Callable[[Any], Any],
        *,
        step: str | None = None,
        tool_call_id: str | None = None,
    ) -> Any:
        return await call_tool(self.tool, tool, arguments, function, step=step, tool_call_id=tool_call_id)

    def child(
        self, goal: str, *, agent: str = "", metadata: Mapping[str, Any] | None = None
    ) -> AbstractAsyncContextManager[RunContext]:
        return _TracedChild(self._ctx.child(goal, agent=agent, metadata=metadata), self._traces)

    async def step(self, name: str, **facts: Any) -> Run:
        for tokens in self._tokens:
            count = facts.get(tokens, 0)
            self._tokens[tokens] += count if type(count) is int else 0
        return await self._ctx.step(name, **facts)

    def tell_tokens(self) -> None:
        """What the steps of this run said."""
        for tokens, count in self._tokens.items():
            if count:
                self._span.set_attribute(f"gen_ai.usage.{tokens}", count)

    def tell(self, raised: BaseException) -> None:
        """How it left."""
        if isinstance(raised, RunSuspended):
            self._span.set_attribute("satchel.run.waits", True)
        elif isinstance(raised, asyncio.CancelledError):
            self._traces.fail(self._span, "cancelled", fault=False)
        else:
            self._traces.fail(self._span, _name_of(raised))


class _TracedTool(AbstractAsyncContextManager[ToolUse]):
    """A call that has its result from an attempt before is not executed, and has no span."""

    def __init__(
        self,
        block: AbstractAsyncContextManager[ToolUse],
        traces: Traces,
        run: Run,
        tool: str,
        tool_call_id: str | None,
    ) -> None:
        self._block = block
        self._traces = traces
        self._run = run
        self._tool = tool
        self._tool_call_id = tool_call_id
        self._call: ToolUse | None = None
        self._span: Span | None = None
        self._current: AbstractContextManager[None] | None = None

    async def __aenter__(self) -> ToolUse:
        call = self._call = await self._block.__aenter__()
        if not call.is_replayed:
            self._span = self._traces.tool(self._run, self._tool, self._tool_call_id)
            self._span.set_attribute("satchel.tool.seq", call.seq)
            self._current = self._traces.current(self._span)
            self._current.__enter__()
        return call

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        try:
            suppressed = await self._block.__aexit__(kind, error, trace)
        except BaseException as raised:
            self._leave(raised)
            raise
        self._leave(error)
        return suppressed

    def _leave(self, raised: BaseException | None) -> None:
        if self._span is None or self._current is None or self._call is None:
            return
        if isinstance(raised, asyncio.CancelledError):
            self._traces.fail(self._span, "cancelled", fault=False)
        elif raised is not None:
            self._traces.fail(self._span, _name_of(raised))
        elif self._call.error is not None:
            self._traces.fail(self._span, "tool_error")
        self._current.__exit__(None, None, None)


class _TracedChild(AbstractAsyncContextManager[RunContext]):
    def __init__(self, block: AbstractAsyncContextManager[RunContext], traces: Traces) -> None:
        self._block = block
        self._traces = traces
        self._child: TracedContext | None = None
        self._current: AbstractContextManager[Span] | None = None

    async def __aenter__(self) -> RunContext:
        ctx = await self._block.__aenter__()
        self._current = self._traces.run(ctx.run, ctx.run.agent)
        self._child = TracedContext(ctx, self._traces, self._current.__enter__())
        return cast(RunContext, self._child)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        try:
            return await self._block.__aexit__(kind, error, trace)
        finally:
            if self._child is not None and self._current is not None:
                if error is not None:
                    self._child.tell(error)
                self._child.tell_tokens()
                self._current.__exit__(None, None, None)


def _name_of(raised: BaseException) -> str:
    """The code of a run's error, or the name of the exception: its text may say anything."""
    code = failure_of(raised).code if isinstance(raised, Exception) else "agent_error"
    return type(raised).__qualname__ if code == "agent_error" else code
