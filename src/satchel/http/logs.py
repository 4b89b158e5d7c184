"""JSON lines about requests: who, what, how long; never what was said."""

from __future__ import annotations

import asyncio
import logging
import sys
import time
import traceback
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import IO, Any, Protocol

import msgspec

from satchel.errors import StoreError
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
    """One object a line; a traceback is a member of it. Unless ``texts``, of an exception there are its type and where it was
    raised, and not its text: an agent's own may hold what was said."""

    def __init__(self, *, texts: bool = False) -> None:
        super().__init__()
        self._texts = texts

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage() if self._texts else _message_of(record),
        }
        facts = getattr(record, "facts", None)
        if facts is not None:
            line |= facts
        if record.exc_info:
            error = record.exc_info[1]
            if self._texts or error is None:
                line["traceback"] = self.formatException(record.exc_info)
            else:
                line["traceback"] = "\n".join(_places(error, set()))
        return _encode(line).decode()


def _message_of(record: logging.LogRecord) -> str:
    """Without the text of an exception, but for a store's: that is about the store."""
    if isinstance(record.args, tuple):
        shown = tuple(
            type(one).__name__ if isinstance(one, BaseException) and not isinstance(one, StoreError) else one
            for one in record.args
        )
        record = logging.makeLogRecord(record.__dict__ | {"args": shown})
    message = record.getMessage()
    # What others log of an exception (asyncio does) begins with what happened, and shows the exception below.
    return message if record.name.partition(".")[0] == "satchel" else message.partition("\n")[0]


def _places(error: BaseException, seen: set[int]) -> Iterator[str]:
    """As a traceback, less what the exceptions say."""
    seen.add(id(error))
    cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    if cause is not None and id(cause) not in seen:
        yield from _places(cause, seen)
        yield "… and then:"
    for frame in traceback.extract_tb(error.__traceback__):
        yield f'  File "{frame.filename}", line {frame.lineno}, in {frame.name}'
    kind = type(error)
    yield kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield "… of which:"
            yield from _places(inner, seen)


def log_to_stderr(level: int = logging.INFO, *, texts: bool = False) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines(texts=texts))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("satchel").setLevel(level)
