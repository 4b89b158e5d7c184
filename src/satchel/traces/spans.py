"""What is traced, and under which names."""

from __future__ import annotations

import contextlib
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from satchel.domain.run import Run
from satchel.errors import ExtraMissing

if TYPE_CHECKING:
    from opentelemetry.trace import Span, SpanContext, TracerProvider

    from satchel.worker.agents import Served

KEPT = 10_000  # runs that wait, whose requests are remembered
Attributes = dict[str, str | int | bool]

# Of the GenAI conventions, which are not final: the names of their current text.
CONVERSATION = "gen_ai.conversation.id"
OPERATION = "gen_ai.operation.name"
ERROR = "error.type"


class Traces:
    """Makes the spans of one process with ``provider``, a TracerProvider of OpenTelemetry, which stays its maker's to shut
    down. Raises ExtraMissing."""

    def __init__(self, provider: TracerProvider) -> None:
        try:
            from opentelemetry import context, trace
        except ImportError as missing:
            raise ExtraMissing("otel", action="tracing") from missing
        self.trace = trace
        self.context = context
        self.tracer = provider.get_tracer("satchel")
        self._added: OrderedDict[str, SpanContext] = OrderedDict()

    def agents(self, agents: Mapping[str, Served]) -> dict[str, Served]:
        """``agents`` as a Worker takes them, with a span for each of their runs and tool calls. Raises InvalidInput."""
        from satchel.traces.agents import traced
        from satchel.worker.agents import checked_agents

        return {name: traced(name, agent, self) for name, agent in checked_agents(agents).items()}

    def run_added(self, run: Run) -> None:
        """By the request whose span is the current one: what executes the run here will be a part of its trace."""
        parent = self.trace.get_current_span().get_span_context()
        if parent.is_valid and not run.replayed:
            self._added[run.run_id] = parent
            while len(self._added) > KEPT:
                self._added.popitem(last=False)

    @contextlib.contextmanager
    def run(self, run: Run, agent: str) -> Iterator[Span]:
        """The current span while an agent executes ``run``."""
        attributes: Attributes = {
            OPERATION: "invoke_agent",
            "gen_ai.agent.name": agent,
            CONVERSATION: run.session_id,
            "satchel.run.id": run.run_id,
            "satchel.run.number": run.number,
            "satchel.run.attempt": run.attempt,
        }
        added_by = self._added.pop(run.run_id, None)
        # Of a run without a request here the current span is the parent: its parent run's, or none.
        parent = None if added_by is None else self.trace.set_span_in_context(self.trace.NonRecordingSpan(added_by))
        span = self.tracer.start_span(f"invoke_agent {agent}".rstrip(), context=parent, attributes=attributes)
        with self.current(span):
            yield span

    def tool(self, run: Run, tool: str, tool_call_id: str | None) -> Span:
        """Begun, and not yet the current one."""
        attributes: Attributes = {
            OPERATION: "execute_tool",
            "gen_ai.tool.name": tool,
            CONVERSATION: run.session_id,
            "satchel.run.id": run.run_id,
        }
        if tool_call_id is not None:
            attributes["gen_ai.tool.call.id"] = tool_call_id
        return self.tracer.start_span(f"execute_tool {tool}", attributes=attributes)

    @contextlib.contextmanager
    def current(self, span: Span) -> Iterator[None]:
        """Ended with the block."""
        token = self.context.attach(self.trace.set_span_in_context(span))
        try:
            yield
        finally:
            self.context.detach(token)
            span.end()

    def fail(self, span: Span, kind: str, *, fault: bool = True) -> None:
        """``kind``: a code or the name of an exception, never its text. Not every error is a ``fault``."""
        span.set_attribute(ERROR, kind)
        if fault:
            span.set_status(self.trace.StatusCode.ERROR)

    def kind(self, name: str) -> Any:
        return self.trace.SpanKind[name]
