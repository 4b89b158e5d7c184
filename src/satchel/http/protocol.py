"""HTTP/1.1 as uvicorn speaks it, with an end to patience: for headers that are too long, or that do not come."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from satchel.http.ids import new_request_id
from satchel.http.problems import HeadersTooLarge, RequestError, problem_of


class _TooLarge(Exception):
    """Ends the parser in the middle of the headers."""


class PatientProtocol(HttpToolsProtocol):
    """``header_seconds`` and ``header_bytes`` are set by who makes the class its own (see ``protocol_with``)."""

    header_seconds: float = 10.0
    header_bytes: int = 64 * 1024

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._head = 0
        self._unread = 0  # bytes of a head that is not whole, by no callback told yet
        self._head_is_open = True
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)  # type: ignore[arg-type]  # uvicorn narrows the type
        self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._head_is_there()
        super().connection_lost(exc)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._head = 0
        self._unread = -1  # what came with its first byte may be the end of the message before it
        self._head_is_open = True

    def on_url(self, url: bytes) -> None:
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count(len(name) + len(value) + 4)
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._head_is_there()
        super().on_headers_complete()

    def data_received(self, data: bytes) -> None:
        """A header that never ends reaches no callback: what came is counted here, until the head is whole."""
        super().data_received(data)
        if self._head_is_open and not self.transport.is_closing():
            self._unread = 0 if self._unread < 0 else self._unread + len(data)
            if self._unread > self.header_bytes:
                self._head = self._unread
                self.send_400_response("")
                return
        if self._head_is_open and self._deadline is None:  # most heads come whole, and need no deadline
            self._expect_head()

    def send_400_response(self, msg: str) -> None:
        """What is no request, as a problem like all others."""
        refusal: RequestError = RequestError("this is not an HTTP/1.1 request")
        if self._head > self.header_bytes:
            refusal = HeadersTooLarge(f"the headers may have {self.header_bytes} bytes")
        problem = problem_of(refusal)
        request_id = new_request_id()
        answer = problem.answer(request_id)
        lines = [STATUS_LINE[problem.status]]
        headers = [*answer.headers, (b"x-request-id", request_id.encode()), (b"connection", b"close")]
        lines += [name + b": " + value + b"\r\n" for name, value in headers]
        self.transport.write(b"".join([*lines, b"\r\n", answer.body]))
        self.transport.close()

    def _count(self, size: int) -> None:
        self._head += size
        if self._head > self.header_bytes:
            raise _TooLarge

    def _expect_head(self) -> None:
        self._deadline = self.loop.call_later(self.header_seconds, self._give_up)

    def _head_is_there(self) -> None:
        self._head_is_open = False
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _give_up(self) -> None:
        self._deadline = None
        if not self.transport.is_closing():
            self.transport.close()


def protocol_with(*, header_seconds: float, header_bytes: int) -> type[PatientProtocol]:
    return type("ServerProtocol", (PatientProtocol,), {"header_seconds": header_seconds, "header_bytes": header_bytes})
