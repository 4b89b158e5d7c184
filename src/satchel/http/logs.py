"""JSON lines about requests: who, what, how long; never what was said."""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from datetime import UTC, datetime
from typing import IO, Any, Protocol

import msgspec

from satchel.http.call import Visit

ACCESS = logging.getLogger("satchel.http.access")
FLUSH = 0.05  # seconds for which lines about requests are gathered
_encode = msgspec.json.Encoder().encode


class AccessLog(Protocol):
    """Told of each request once it was answered."""

    def __call__(self, visit: Visit, method: str, status: int, seconds: float) -> None: ...


def facts_of(visit: Visit, method: str, status: int, seconds: float) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "request_id": visit.request_id,
        "method": method,
        "route": visit.template or None,
        "status": status,
        "ms": round(seconds * 1000, 2),
    }
    if visit.principal is not None:
        facts["tenant_id"] = visit.principal.tenant_id
        facts["role"] = visit.principal.role
    if visit.session_id is not None:
        facts["session_id"] = visit.session_id
    if visit.code is not None:
        facts["code"] = visit.code
    if visit.replayed:
        facts["replayed"] = True
    return facts


def log_access(visit: Visit, method: str, status: int, seconds: float) -> None:
    """Through ``logging``, as an application that mounts the service wants it."""
    if ACCESS.isEnabledFor(logging.INFO):
        ACCESS.info("request", extra={"facts": facts_of(visit, method, status, seconds)})


class AccessLines:
    """Straight to a stream, some at once: a write for each request would cost a tenth of it, and the lock of Python."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream
        self._lines: list[bytes] = []
        self._second = 0
        self._prefix = ""

    def __call__(self, visit: Visit, method: str, status: int, seconds: float) -> None:
        now = time.time()
        if int(now) != self._second:
            self._second = int(now)
            self._prefix = datetime.fromtimestamp(self._second, UTC).strftime("%Y-%m-%dT%H:%M:%S")
        line = {
            "at": f"{self._prefix}.{int(now % 1 * 1000):03d}+00:00",
            "level": "info",
            "logger": ACCESS.name,
            "message": "request",
            **facts_of(visit, method, status, seconds),
        }
        if not self._lines:
            asyncio.get_running_loop().call_later(FLUSH, self.flush)
        self._lines.append(_encode(line))

    def flush(self) -> None:
        if self._lines:
            lines, self._lines = self._lines, []
            self._stream.write(b"\n".join(lines).decode() + "\n")
            self._stream.flush()


class JsonLines(logging.Formatter):
    """One object a line; a traceback is a member of it."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        facts = getattr(record, "facts", None)
        if facts is not None:
            line |= facts
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return _encode(line).decode()


def log_to_stderr(level: int = logging.INFO) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("satchel").setLevel(level)
