"""What is sent back: a status, headers, bytes. Each answer is an ASGI application of its own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from satchel.domain.event import Event
from satchel.domain.json_text import raw_json
from satchel.domain.page import Page
from satchel.http.asgi import Receive, Scope, Send

JSON = b"application/json"
PROBLEM_JSON = b"application/problem+json"

encode = msgspec.json.Encoder().encode
Header = tuple[bytes, bytes]
REPLAYED: Header = (b"idempotent-replayed", b"true")


class Answer:
    """Also the answer to HEAD: the server leaves the body out, and the length stands."""

    __slots__ = ("body", "headers", "status")

    def __init__(
        self, body: bytes = b"", *, status: int = 200, headers: Iterable[Header] = (), media_type: bytes = JSON
    ) -> None:
        self.status = status
        self.body = body
        self.headers: list[Header] = [*headers]
        if body or status not in (204, 304):
            self.headers.append((b"content-type", media_type))
            self.headers.append((b"content-length", b"%d" % len(body)))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status, "headers": self.headers})
        await send({"type": "http.response.body", "body": self.body, "more_body": False})


def etag(version: int) -> Header:
    return b"etag", b'"v%d"' % version


def written(body: bytes, version: int, *, replayed: bool, status: int = 200, headers: Sequence[Header] = ()) -> Answer:
    """The answer to a write: the version it led to, and whether it was answered before."""
    marks = [etag(version), *headers]
    if replayed:
        marks.append(REPLAYED)
    return Answer(body, status=status, headers=marks)


def page_of(items: Iterable[bytes], next_cursor: str | None, url: str) -> Answer:
    """``{items, next}``, and the address of the next page."""
    body = b'{"items":[' + b",".join(items) + b'],"next":' + encode(next_cursor) + b"}"
    if next_cursor is None:
        return Answer(body)
    return Answer(body, headers=[(b"link", f'<{url}>; rel="next"'.encode("latin-1"))])


def texts(page: Page[Any]) -> list[bytes]:
    return [item.to_json() for item in page.items]


def event_json(event: Event) -> bytes:
    """As Event.to_dict, with the body as it is stored."""
    shown = msgspec.structs.replace(event, body=b"null", metadata=None).to_dict()
    shown["body"] = raw_json(event.body)
    if event.kind == "message" and event.metadata is not None:
        shown["metadata"] = raw_json(event.metadata)
    return encode(shown)
