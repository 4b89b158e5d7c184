"""The outermost layer: every request passes it, whatever becomes of it inside.

It gives the request an id, asks who is calling, counts, measures and logs, and has the last word on errors.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Iterable

from satchel.errors import Conflict, SatchelError
from satchel.http.answers import Header
from satchel.http.asgi import App, Message, Receive, Scope, Send
from satchel.http.call import VISIT, Visit
from satchel.http.ids import new_request_id
from satchel.http.problems import (
    INTERNAL,
    AddressTooLong,
    PathNotFound,
    Problem,
    RequestError,
    problem_of,
)
from satchel.http.service import Service

LONGEST_ADDRESS = 8 * 1024
# What is answered is for the caller alone, to be asked for again each time, and nothing but what its type says.
ALWAYS: tuple[Header, ...] = (
    (b"cache-control", b"private, no-cache, no-transform"),
    (b"x-content-type-options", b"nosniff"),
)
_REQUEST_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")
_log = logging.getLogger("satchel.http")


class Gate:
    """``open_paths`` are served to who has no identity, too."""

    def __init__(self, app: App, service: Service, *, open_paths: Iterable[str]) -> None:
        self._app = app
        self._service = service
        self._open_paths = frozenset(open_paths)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await self._http(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1000, "reason": "there are no web sockets here"})
        else:
            await self._app(scope, receive, send)

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        began = time.perf_counter()
        visit = Visit(self._service, _request_id(scope["headers"]))
        scope[VISIT] = visit
        extra: list[Header] = [(b"x-request-id", visit.request_id.encode()), *ALWAYS]
        status = 0

        async def answer(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message["headers"], *extra]
            await send(message)

        problem: Problem | None = None
        try:
            _check_head(scope)
            if _path(scope) not in self._open_paths:
                visit.principal = principal = await self._service.identity(scope)
                left = self._service.rates.take((principal.tenant_id, principal.side))
                if left is not None:
                    extra.append(left)
            _check_slashes(scope)
            await self._app(scope, receive, answer)
        except SatchelError as error:
            problem = self.refuse(error, visit)
        except Exception:
            if status:
                _log.exception("request %s broke off in the middle of its answer", visit.request_id)
                raise
            _log.exception("request %s failed", visit.request_id)
            visit.code = INTERNAL.code
            problem = INTERNAL
        finally:
            if problem is not None and not status:
                await problem.answer(visit.request_id)(scope, receive, answer)
            seconds = time.perf_counter() - began
            method = scope["method"] if scope["method"] in _METHODS else "OTHER"
            self._service.metrics.requests.answered(
                method, visit.template or "-", status, None if visit.is_stream else seconds
            )
            if visit.replayed:
                self._service.metrics.replays.inc()
            if self._service.settings.access_log:
                self._service.access_log(visit, method, status, seconds)

    def refuse(self, error: SatchelError, visit: Visit) -> Problem:
        problem = problem_of(error)
        note_refusal(self._service, visit, error, problem)
        return problem


_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


def note_refusal(service: Service, visit: Visit, error: Exception, problem: Problem) -> None:
    """A refusal is a figure, not a traceback; a fault of ours or of the store is in the log."""
    visit.code = problem.code
    service.metrics.refusals.labels(problem.code).inc()
    if isinstance(error, Conflict):
        service.metrics.conflicts.labels(problem.code).inc()
    if problem.status >= 500 and not isinstance(error, RequestError):
        _log.error("request %s: %s", visit.request_id, problem.code, exc_info=error if problem.status == 500 else None)


def _request_id(headers: Iterable[tuple[bytes, bytes]]) -> str:
    for name, value in headers:
        if name == b"x-request-id" and _REQUEST_ID.fullmatch(value):
            return value.decode()
    return new_request_id()


def _path(scope: Scope) -> str:
    """Without the mount that it may be under."""
    root = scope.get("root_path") or ""
    path: str = scope["path"]
    return path.removeprefix(root) if root else path


def _check_head(scope: Scope) -> None:
    if len(scope["path"]) + len(scope["query_string"]) > LONGEST_ADDRESS:
        raise AddressTooLong(f"an address may have {LONGEST_ADDRESS} bytes")


def _check_slashes(scope: Scope) -> None:
    """An encoded slash is no slash, and no part of an id: what looks like one id to a proxy must not be two parts here."""
    written: bytes = scope.get("raw_path") or b""
    if b"%2f" in written.lower():
        raise PathNotFound("nothing is served at an address with an encoded slash")
