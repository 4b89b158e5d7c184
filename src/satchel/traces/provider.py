"""Where a process of ours sends its spans: what `satchel serve` and `satchel worker` make of the setting."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Literal, get_args

from satchel.errors import ExtraMissing
from satchel.traces.spans import Traces

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider

Exporter = Literal["off", "otlp", "console"]
EXPORTERS: tuple[Exporter, ...] = get_args(Exporter)
LAST_WORDS = 5.0  # seconds for the spans that are not sent yet, when the process ends


@asynccontextmanager
async def traces_to(exporter: Exporter) -> AsyncIterator[Traces | None]:
    """None for ``off``. ``otlp`` sends to a collector over HTTP: where and how, the OTEL_* variables of OpenTelemetry say;
    ``console`` writes JSON to stderr. What is not sent yet is sent at the end. Raises ExtraMissing."""
    if exporter == "off":
        yield None
        return
    provider = _provider(exporter)
    try:
        yield Traces(provider)
    finally:
        # Its own thread, which nobody waits for longer: a collector that is away must not keep the process.
        ending = threading.Thread(target=provider.shutdown, daemon=True)
        ending.start()
        await asyncio.to_thread(ending.join, LAST_WORDS)


def _provider(exporter: Exporter) -> TracerProvider:
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter, SimpleSpanProcessor
    except ImportError as missing:
        raise ExtraMissing("otel", action="tracing") from missing
    name = {} if "OTEL_SERVICE_NAME" in os.environ else {"service.name": "satchel"}
    provider = TracerProvider(resource=Resource.create(name), shutdown_on_exit=False)
    if exporter == "otlp":
        provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    else:
        provider.add_span_processor(SimpleSpanProcessor(ConsoleSpanExporter(out=sys.stderr)))
    return provider
