"""What strangers' bytes reach first. Each target takes any bytes, and raises nothing but what says that they are wrong."""

from __future__ import annotations

import asyncio
import base64
import json
import os
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec

from satchel import Principal, SatchelError, SessionManager
from satchel.client.frames import frames_of
from satchel.client.refusals import refusal_of
from satchel.client.snapshots import event_from, page_from
from satchel.domain.idempotency import checked_key
from satchel.domain.ids import checked_id
from satchel.domain.limits import DEFAULT_LIMITS
from satchel.domain.memory import admit_memory, admit_patch
from satchel.domain.message import admit_message, admit_metadata, parse_message_id
from satchel.domain.page import decode_cursor
from satchel.http.app import app_of
from satchel.http.identity import Hooked
from satchel.http.parameters import Parameter, read_query
from satchel.http.service import Service
from satchel.http.settings import ServerSettings
from satchel.http.table import ROUTES
from satchel.opened import OpenStore
from satchel.stores.memory import MemoryStore

Target = Callable[[bytes], object]
ADA = Principal.agent("fuzz", tenant_id="acme", acting_for="ada")
HEADERS = (b"last-event-id", b"if-match", b"idempotency-key", b"satchel-attempt", b"accept", b"content-type")


def _text(data: bytes) -> str:
    """Any text, also such as is none in UTF-8."""
    return data.decode("utf-8", "surrogateescape")


def cursor(data: bytes) -> object:
    return decode_cursor(_text(data), "messages", "ada", shape=(int, str))


def a_true_cursor(data: bytes) -> object:
    """What is behind base64: it is not the bytes in front that are looked at first."""
    return decode_cursor(base64.urlsafe_b64encode(data).decode().rstrip("="), "messages", shape=(int,))


def identifier(data: bytes) -> object:
    found = checked_id(_text(data), field="session_id", limits=DEFAULT_LIMITS)
    assert found.encode() == data, "an id is what it was given as"
    return found


def idempotency_key(data: bytes) -> object:
    return checked_key(_text(data), limits=DEFAULT_LIMITS)


def message_id(data: bytes) -> object:
    return parse_message_id(_text(data))


def message(data: bytes) -> object:
    """What is admitted is kept byte for byte, and is JSON of one meaning."""
    draft = admit_message(data, limits=DEFAULT_LIMITS)
    assert draft.body == data.replace(b"\n", b" ").replace(b"\r", b" "), "it was changed"
    json.loads(draft.body)
    msgspec.json.decode(draft.body)
    return draft


def message_of_any_format(data: bytes) -> object:
    return admit_message(data, format="adk.event", limits=DEFAULT_LIMITS)


def _json(data: bytes) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return _text(data)


def metadata(data: bytes) -> object:
    return admit_metadata(_json(data), limits=DEFAULT_LIMITS)


def patch(data: bytes) -> object:
    return admit_patch(_json(data), limits=DEFAULT_LIMITS)


def memory(data: bytes) -> object:
    return admit_memory(_json(data), limits=DEFAULT_LIMITS)


def query(data: bytes) -> object:
    return [read_query(data, _PARAMETERS[number % len(_PARAMETERS)]) for number in data[:1]]


def line_of_an_import(data: bytes) -> object:
    async def imported() -> list[object]:
        await _app()
        return [one async for one in SessionManager(_SERVICE["store"], ADA).import_sessions([data])]

    return _loop().run_until_complete(imported())


def stream_of_a_service(data: bytes) -> object:
    """What a client takes for a stream of events, whoever answers there; cut into pieces anywhere."""

    async def chunks() -> AsyncIterator[bytes]:
        step = 1 + (data[0] if data else 0) % 16
        for start in range(0, len(data), step):
            yield data[start : start + step]

    async def read() -> None:
        async for frame in frames_of(chunks()):
            if frame.data:
                event_from(frame.data)

    return _loop().run_until_complete(read())


def answer_of_a_service(data: bytes) -> object:
    refusal = refusal_of(400 + (data[0] if data else 0), {"content-type": "application/problem+json"}, data[1:])
    return refusal.error({})


def page_of_a_service(data: bytes) -> object:
    return page_from(data, event_from)


def request(data: bytes) -> object:
    """A whole request: a route, a query, headers and a body out of ``data``, each part behind a NUL."""
    _loop().run_until_complete(_app())
    where, *parts = data.split(b"\0")
    route = ROUTES[where[0] % len(ROUTES)] if where else ROUTES[0]
    path = _path(route.path, where[1:])
    headers = [(name, part) for name, part in zip(HEADERS, parts[2:], strict=False) if part]
    if not any(name == b"content-type" for name, _ in headers):
        headers.append((b"content-type", b"application/json"))
    body = parts[1] if len(parts) > 1 else b""
    status, answer = _loop().run_until_complete(_asked(route.method, path, parts[0] if parts else b"", headers, body))
    assert status < 500 or status == 503, (status, answer[:300])
    if status >= 400:
        problem = json.loads(answer)
        assert problem["status"] == status
        assert problem["code"] != "internal_error"
    return status


def _path(path: str, data: bytes) -> str:
    """The session that is there, or any id."""
    text = data.decode("latin-1").replace("/", "_").replace("?", "_") or "x"
    return "/".join(
        (_SERVICE["session"] if part.startswith("{session_id") and not data else text) if part.startswith("{") else part
        for part in path.split("/")
    )


_PARAMETERS: tuple[tuple[Parameter, ...], ...] = tuple(tuple(route.query) for route in ROUTES if route.query)
_SERVICE: dict[str, Any] = {}


def _loop() -> asyncio.AbstractEventLoop:
    if "loop" not in _SERVICE:
        _SERVICE["loop"] = asyncio.new_event_loop()
        asyncio.set_event_loop(_SERVICE["loop"])
    loop: asyncio.AbstractEventLoop = _SERVICE["loop"]
    return loop


async def _app() -> Any:
    if "app" not in _SERVICE:
        store = _SERVICE["store"] = await OpenStore(MemoryStore()).open()
        settings = ServerSettings(access_log=False, requests_per_second=0.0, heartbeat_seconds=0.05)
        _SERVICE["session"] = (await SessionManager(store, ADA).create_session()).session_id
        _SERVICE["app"] = app_of(Service(store, Hooked(lambda asked: ADA), settings=settings))  # noqa: ARG005  # whoever asks
    return _SERVICE["app"]


async def _asked(
    method: str, path: str, query: bytes, headers: list[tuple[bytes, bytes]], body: bytes
) -> tuple[int, bytes]:
    app = await _app()
    incoming: list[dict[str, Any]] = [
        {"type": "http.request", "body": body, "more_body": False},
        {"type": "http.disconnect"},
    ]
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        part: dict[str, Any] = incoming.pop(0) if len(incoming) > 1 else incoming[0]
        return part

    async def send(part: dict[str, Any]) -> None:
        sent.append(part)

    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "scheme": "http",
        "path": path, "raw_path": path.encode("latin-1", "replace"), "query_string": query, "root_path": "",
        "headers": headers, "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 80), "state": {}, "extensions": {},
    }  # fmt: skip
    async with asyncio.timeout(10):
        await app(scope, receive, send)
    return sent[0]["status"], b"".join(part.get("body", b"") for part in sent[1:])


def without_typed_errors(data: bytes) -> object:
    """Broken on purpose: a cursor that is decoded as if it were ours."""
    return msgspec.json.decode(base64.b64decode(data, altchars=b"-_"))


TARGETS: dict[str, Target] = {
    target.__name__: target
    for target in (
        cursor, a_true_cursor, identifier, idempotency_key, message_id, message, message_of_any_format, metadata, patch,
        memory, query, line_of_an_import, stream_of_a_service, answer_of_a_service, page_of_a_service, request,
    )
}  # fmt: skip
WEAK: dict[str, Target] = {without_typed_errors.__name__: without_typed_errors}

SEEDS: dict[str, tuple[bytes, ...]] = {
    "cursor": (b"WyIwMTIzNDU2Nzg5YWJjZGVmIiwxLCJ4Il0",),
    "a_true_cursor": (b'["0123456789abcdef",1]',),
    "identifier": (b"sess_aaaaaaaaaaaaaaaaaaaaaaaa",),
    "message_id": (b"msg_17",),
    "message": (b'{"role":"user","content":"x"}', b'{"role":"assistant","tool_calls":[{"id":"c","type":"function"}]}'),
    "metadata": (b'{"k":{"a":[1.5,null]}}',),
    "patch": (b'{"clear":["goal"],"remove":{"plan":["x"]},"append":{"errors":["y"]},"set":{"notes":{"k":1}}}',),
    "memory": (b'{"goal":"g","plan":["a"],"notes":{}}',),
    "query": (b"\1limit=3&order=desc&after=1", b"\2metadata.k=1&status=ACTIVE&updated_after=2026-01-31T08:30:00Z"),
    "line_of_an_import": (
        b'{"source":"x","licence":"","session_id":"c","messages":[{"role":"user","content":"a"}],"meta":{}}',
    ),
    "stream_of_a_service": (b'\3event: message\ndata: {"seq":1,"version":1,"kind":"message"}\nid: 1\n\n',),
    "answer_of_a_service": (
        b'\11{"code":"version_conflict","expected":1,"current":2,"changed":["title"],"detail":"d"}',
    ),
    "page_of_a_service": (b'{"items":[],"next":null}',),
    "request": (
        b"\2\0limit=2\0\0\x31\0",
        b'\x07\0\0{"role":"user","content":"x"}\0\0"v1"\0key-1',
        b"\x19\0after=1\0\0" + b"3" + b"\0\0\0\0text/event-stream",
    ),
}


def asked(name: str) -> Target:
    """The target, which keeps quiet about what says that the bytes are wrong."""
    target = {**TARGETS, **WEAK}[name]

    def ask(data: bytes) -> object:
        try:
            return target(data)
        except SatchelError:
            return None

    return ask


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONUNBUFFERED": "1"}
