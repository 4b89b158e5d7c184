"""Spans for OpenTelemetry (extra ``otel``): of requests, of runs, of tool calls. Off unless somebody asks for them.

No span holds what was said, written or answered: names, numbers and ids alone.
"""

from satchel.traces.provider import EXPORTERS, Exporter, traces_to
from satchel.traces.spans import Traces

__all__ = ["EXPORTERS", "Exporter", "Traces", "traces_to"]
