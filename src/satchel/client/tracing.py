"""The trace that a request is a part of, if the process has one."""

from __future__ import annotations

import sys


def trace_headers() -> dict[str, str]:
    """``traceparent`` (and ``tracestate``) of the current span. Empty without one: OpenTelemetry is looked for only where
    somebody has imported it."""
    if "opentelemetry.trace" not in sys.modules:
        return {}
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    headers: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(headers)
    return headers
