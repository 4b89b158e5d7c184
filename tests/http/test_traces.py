"""Spans of requests, runs and tool calls: one trace from the caller to the tool, and nothing of what was said in it."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
from opentelemetry import trace
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

import satchel
from satchel import OpenStore, Principal, RunContext, RunFailed, Worker
from satchel.client.connection import Connection
from satchel.http.app import make_app
from satchel.http.settings import ServerSettings
from satchel.traces import Traces
from tests.client.served import key_of, who_is
from tests.http.plain import NO_CERTIFICATES
from tests.http.server import client_of, developers_key, serving

ADA = Principal.agent("shop", tenant_id="acme", acting_for="ada")
SECRET = "帮我 s3cret"  # of which no span may hold a part


class Spans:
    """What was exported, oldest end first."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.traces = Traces(self.provider)

    def __iter__(self) -> Iterator[ReadableSpan]:
        return iter(self.exporter.get_finished_spans())

    def named(self, name: str) -> ReadableSpan:
        (found,) = [span for span in self if span.name == name]
        return found


def facts(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def parent_id(span: ReadableSpan) -> int | None:
    return None if span.parent is None else span.parent.span_id


def context_of(span: ReadableSpan) -> trace.SpanContext:
    found: trace.SpanContext | None = span.context
    assert found is not None
    return found


async def agent(ctx: RunContext) -> None:
    async with ctx.tool("look", {"at": SECRET}, tool_call_id="call_1") as call:
        assert trace.get_current_span().get_span_context().is_valid  # what the tool calls is a part of it
        call.result = SECRET
    with suppress(ValueError):
        async with ctx.tool("break", {"at": SECRET}):
            raise ValueError(SECRET)
    async with ctx.tool("fail", SECRET) as call:
        call.error = SECRET
    async with ctx.child(SECRET, agent="helper") as child, child.tool("help", None):
        pass
    await ctx.step("model", input_tokens=7, output_tokens=5)
    await ctx.append_message({"role": "assistant", "content": SECRET})


async def fails(ctx: RunContext) -> None:
    raise RunFailed("out_of_credit", SECRET)


@asynccontextmanager
async def traced(store: OpenStore, spans: Spans) -> AsyncIterator[Connection]:
    """A service with a worker beside it, and a connection to it."""
    app = make_app(
        store,
        principal_of=who_is,
        settings=ServerSettings(access_log=False),
        agents=("shop", "fails"),
        traces=spans.traces,
    )
    worker = Worker(store, spans.traces.agents({"shop": agent, "fails": fails}))
    working = asyncio.create_task(worker.run_forever())
    try:
        async with (
            httpx.AsyncClient(verify=NO_CERTIFICATES, transport=httpx.ASGITransport(app=app)) as http,
            satchel.connect("http://service", key_of(ADA), http=http) as connection,
        ):
            yield connection
    finally:
        worker.stop()
        await working


@pytest.fixture
async def store() -> AsyncIterator[OpenStore]:
    async with satchel.open("memory:") as opened:
        yield opened


async def run_of(connection: Connection, name: str) -> satchel.Run:
    session = await connection.sessions.create_session(title=SECRET)
    run = await connection.runs.add_run(session.session_id, agent=name, goal=SECRET, input=SECRET)
    async for _ in connection.sessions.follow(session.session_id, after=0, run_id=run.run_id):
        pass
    return await connection.runs.get_run(session.session_id, run.run_id)


async def test_a_callers_trace_goes_on_through_request_run_and_tool_call(store: OpenStore) -> None:
    spans = Spans()
    async with traced(store, spans) as connection:
        with spans.provider.get_tracer("caller").start_as_current_span("caller") as caller:
            run = await run_of(connection, "shop")
    assert run.status == "COMPLETED"
    asked = spans.named("POST /v1/sessions/{session_id}/runs")
    ran = spans.named("invoke_agent shop")
    assert parent_id(asked) == caller.get_span_context().span_id
    assert parent_id(ran) == context_of(asked).span_id
    assert asked.kind == SpanKind.SERVER
    assert facts(asked) | {"satchel.request.id": "?"} == {
        "http.request.method": "POST",
        "http.route": "/v1/sessions/{session_id}/runs",
        "http.response.status_code": 201,
        "url.scheme": "http",
        "gen_ai.conversation.id": run.session_id,
        "satchel.request.id": "?",
        "satchel.tenant.id": "acme",
    }
    assert facts(ran) == {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": "shop",
        "gen_ai.conversation.id": run.session_id,
        "gen_ai.usage.input_tokens": 7,
        "gen_ai.usage.output_tokens": 5,
        "satchel.run.id": run.run_id,
        "satchel.run.number": 1,
        "satchel.run.attempt": run.attempt,
    }
    looked = spans.named("execute_tool look")
    assert facts(looked) == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "look",
        "gen_ai.tool.call.id": "call_1",
        "gen_ai.conversation.id": run.session_id,
        "satchel.run.id": run.run_id,
        "satchel.tool.seq": facts(looked)["satchel.tool.seq"],
    }
    child = spans.named("invoke_agent helper")
    assert {parent_id(span) for span in (looked, spans.named("execute_tool fail"), child)} == {context_of(ran).span_id}
    assert parent_id(spans.named("execute_tool help")) == context_of(child).span_id
    assert {context_of(span).trace_id for span in spans} == {caller.get_span_context().trace_id}


async def test_what_failed_is_named_and_its_words_are_not(store: OpenStore) -> None:
    spans = Spans()
    async with traced(store, spans) as connection:
        await run_of(connection, "shop")
        assert (await run_of(connection, "fails")).status == "FAILED"
        with pytest.raises(satchel.SessionNotFound):
            await connection.sessions.get_session("sess_" + "a" * 24)
    kinds = {span.name: (facts(span).get("error.type"), span.status.status_code) for span in spans}
    assert kinds["execute_tool look"] == (None, StatusCode.UNSET)
    assert kinds["execute_tool break"] == ("ValueError", StatusCode.ERROR)
    assert kinds["execute_tool fail"] == ("tool_error", StatusCode.ERROR)
    assert kinds["invoke_agent fails"] == ("out_of_credit", StatusCode.ERROR)
    assert kinds["GET /v1/sessions/{session_id}"] == ("session_not_found", StatusCode.UNSET)  # no fault of the server's
    written = "".join(span.to_json() for span in spans)
    assert not any(word in written for word in (*SECRET.split(), json.dumps("帮我")))


async def test_a_step_that_is_replayed_and_a_look_whether_the_server_lives_have_no_span(store: OpenStore) -> None:
    spans = Spans()

    async def asks(ctx: RunContext) -> None:
        await ctx.call("once", 1, lambda _: "done", step="first")
        await ctx.ask("colour", "Which?")

    worker = Worker(store, spans.traces.agents({"asks": asks}))
    working = asyncio.create_task(worker.run_forever())
    sessions, runs = satchel.SessionManager(store, ADA), satchel.RunManager(store, ADA)
    session_id = (await sessions.create_session()).session_id
    run = await runs.add_run(session_id, agent="asks")
    async with asyncio.timeout(20):
        while (await runs.get_run(session_id, run.run_id)).status != "WAITING":  # noqa: ASYNC110  # of what a worker wrote
            await asyncio.sleep(0.01)
        await runs.answer_run(session_id, run.run_id, "red")
        async for _ in sessions.follow(session_id, after=0, run_id=run.run_id):
            pass
    worker.stop()
    await working
    assert [span.name for span in spans] == ["execute_tool once", "invoke_agent asks", "invoke_agent asks"]
    first, second = [span for span in spans if span.name == "invoke_agent asks"]
    assert facts(first)["satchel.run.waits"] is True
    assert first.status.status_code == StatusCode.UNSET
    assert "satchel.run.waits" not in facts(second)

    app = make_app(store, principal_of=who_is, traces=spans.traces)
    async with httpx.AsyncClient(
        verify=NO_CERTIFICATES, transport=httpx.ASGITransport(app=app), base_url="http://service"
    ) as http:
        assert (await http.get("/livez")).status_code == 200
        assert (await http.get("/v1/sessions", headers={"traceparent": "no trace"})).status_code == 401
    assert [span.name for span in spans][3:] == ["GET"]
    assert facts(next(span for span in spans if span.name == "GET"))["error.type"] == "unauthenticated"


# -- `satchel serve`


@contextmanager
def collector() -> Iterator[tuple[str, list[str]]]:
    """A place to send spans to, and the names of those that came."""
    names: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:  # as http.server calls it
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") is None:
                sent = ExportTraceServiceRequest.FromString(body)
                names.extend(
                    span.name for one in sent.resource_spans for scope in one.scope_spans for span in scope.spans
                )
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", names
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.slow
def test_a_server_sends_its_spans_to_a_collector_if_it_is_asked_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with collector() as (address, names):
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", address)
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        with serving(tmp_path, "--traces", "otlp", agents=("--agent", "tests.http.agents:echo")) as server:
            with client_of(server, developers_key(tmp_path)) as client:
                assert client.post("/v1/chat", json={"message": "hi"}).status_code == 200
            assert server.stop() == 0  # what was not sent yet is sent now
        assert sorted(names) == ["POST /v1/chat", "execute_tool look", "invoke_agent echo"]


@pytest.mark.slow
def test_nothing_of_opentelemetry_is_loaded_where_nobody_asked_for_traces() -> None:
    """The framework itself may look at a list of names."""
    program = (
        "import sys, asyncio, satchel\n"
        "from satchel.http.app import make_app\n"
        "async def main():\n"
        "    async with satchel.open('memory:') as store: make_app(store)\n"
        "asyncio.run(main())\n"
        "print([name for name in ('opentelemetry.trace', 'opentelemetry.sdk', 'satchel.traces.agents') if name in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"
