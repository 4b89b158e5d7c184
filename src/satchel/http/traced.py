"""A span for each request, as a layer around the whole service."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from satchel.http.asgi import App, Message, Receive, Scope, Send
from satchel.http.call import VISIT, Visit
from satchel.traces.spans import CONVERSATION, Traces

if TYPE_CHECKING:
    from opentelemetry.context import Context

_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


class TracedApp:
    """The caller's ``traceparent`` is heeded. ``quiet_paths`` have no spans: who looks every second whether a server lives
    is no story."""

    def __init__(self, app: App, traces: Traces, *, quiet_paths: Iterable[str]) -> None:
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        self._app = app
        self._traces = traces
        self._quiet_paths = frozenset(quiet_paths)
        self._extract = TraceContextTextMapPropagator().extract

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or _path(scope) in self._quiet_paths:
            await self._app(scope, receive, send)
            return
        method = scope["method"] if scope["method"] in _METHODS else "_OTHER"
        span = self._traces.tracer.start_span(
            method,
            context=self._parent(scope),
            kind=self._traces.kind("SERVER"),
            attributes={"http.request.method": method, "url.scheme": scope.get("scheme", "http")},
        )
        status = 0

        async def answer(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        with self._traces.current(span):
            try:
                await self._app(scope, receive, answer)
            finally:
                visit: Visit | None = scope.get(VISIT)
                if visit is not None:
                    if visit.template:
                        span.update_name(f"{method} {visit.template}")
                        span.set_attribute("http.route", visit.template)
                    span.set_attribute("satchel.request.id", visit.request_id)
                    if visit.principal is not None:
                        span.set_attribute("satchel.tenant.id", visit.principal.tenant_id)
                    if visit.session_id is not None:
                        span.set_attribute(CONVERSATION, visit.session_id)
                    if visit.replayed:
                        span.set_attribute("satchel.replayed", True)
                if status:
                    span.set_attribute("http.response.status_code", status)
                if status >= 400 or not status:
                    code = visit.code if visit is not None and visit.code is not None else str(status or "broken_off")
                    self._traces.fail(span, code, fault=status >= 500 or not status)

    def _parent(self, scope: Scope) -> Context:
        carrier: dict[str, str] = {}
        for name, value in scope["headers"]:
            if name in (b"traceparent", b"tracestate"):
                carrier.setdefault(name.decode(), value.decode("latin-1"))
        return self._extract(carrier)


def _path(scope: Scope) -> str:
    root = scope.get("root_path") or ""
    path: str = scope["path"]
    return path.removeprefix(root) if root else path
