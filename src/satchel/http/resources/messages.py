"""``/v1/sessions/{id}/messages``: what was said."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from satchel.domain.json_text import NO_JSON
from satchel.errors import InvalidInput
from satchel.http import given, shapes
from satchel.http.answers import page_of, written
from satchel.http.asgi import App
from satchel.http.bodies import admit_envelope, decode_as
from satchel.http.call import Call, decoder_of
from satchel.http.parameters import AFTER, BEFORE, CURSOR, LIMIT, ORDER, RUN_ID, Parameter
from satchel.http.resources.sessions import ONE, WRITE
from satchel.http.route import Route

PATH = ONE + "/messages"


class Peek(msgspec.Struct):
    """Enough of a body to tell a bare message from one in an envelope, and from one that lost its envelope."""

    role: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    message: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    messages: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    metadata: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    format: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    status: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    expected_version: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    idempotency_key: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    attempt: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


# What is no chat message's own. Kept as content, it would do nothing, and nobody would hear of it.
_OUTSIDE: dict[str, str] = {
    "metadata": 'stands beside the message: {"message": {"role": "user", "content": "…"}, "metadata": {"key": "value"}}',
    "format": 'stands beside the message: {"message": …, "format": "…"}',
    "status": 'stands beside the message: {"message": {"role": "user", "content": "…"}, "status": "complete"}',
    "expected_version": 'stands beside the message: {"message": {"role": "user", "content": "…"}, "expected_version": 1};'
    " or send If-Match",
    "idempotency_key": "goes in the header Idempotency-Key; to keep it as a member of the message, send"
    ' {"message": {"role": "user", "content": "…", "idempotency_key": "…"}}',
    "attempt": "goes in the header Satchel-Attempt; to keep it as a member of the message, send"
    ' {"message": {"role": "user", "content": "…", "attempt": "…"}}',
}


class Envelope(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    message: msgspec.Raw = NO_JSON
    messages: list[msgspec.Raw] | msgspec.UnsetType = msgspec.UNSET
    metadata: msgspec.Raw = NO_JSON
    format: str | None = None
    status: Literal["complete", "interrupted"] = "complete"
    expected_version: int | None = None


class Reason(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    reason: str = ""
    expected_version: int | None = None


async def append(call: Call) -> App:
    """A bare chat message reaches the manager as the bytes that came; an envelope's messages do too."""
    body = await call.body()
    peek = decode_as(decoder_of(Peek), body)
    if peek.message is not msgspec.UNSET or peek.messages is not msgspec.UNSET:
        return await _append_envelope(call, body)
    call.is_whole("message")
    for name, reason in _OUTSIDE.items():
        if getattr(peek, name) is not msgspec.UNSET:
            raise InvalidInput(reason, field="message", pointer=f"/{name}")
    message = await call.sessions.append_message(
        call.session_id, with_role(body, peek), attempt=call.attempt, **call.write()
    )
    return written(message.to_json(), message.version, replayed=message.replayed, status=201)


async def _append_envelope(call: Call, body: bytes) -> App:
    given = decode_as(decoder_of(Envelope), body)
    admit_envelope(body)
    call.stands_at({"message.metadata": "/metadata", "message.format": "/format"})
    options: dict[str, Any] = call.write(given.expected_version) | {"attempt": call.attempt, "format": given.format}
    if given.messages is msgspec.UNSET:
        metadata: Any = bytes(given.metadata) or None
        message = await call.sessions.append_message(
            call.session_id, _message(given.message, given.format), metadata=metadata, status=given.status, **options
        )
        return written(message.to_json(), message.version, replayed=message.replayed, status=201)
    if bytes(given.message):
        raise InvalidInput("must not stand beside messages", field="message")
    if bytes(given.metadata) or given.status != "complete":
        raise InvalidInput("is for one message: metadata and status do not go with messages", field="body")
    several = [_message(one, given.format) for one in given.messages]
    appended = await call.sessions.append_messages(call.session_id, several, **options)
    items = b",".join([message.to_json() for message in appended])
    return written(b'{"items":[' + items + b"]}", appended[-1].version, replayed=appended[0].replayed, status=201)


def _message(raw: msgspec.Raw, format: str | None) -> bytes:
    body = bytes(raw)
    return with_role(body) if format is None and body[:1] == b"{" else body


def with_role(body: bytes, peek: Peek | None = None) -> bytes:
    """A chat message without a role is a user's."""
    peek = decode_as(decoder_of(Peek), body) if peek is None else peek
    if peek.role is not msgspec.UNSET:
        return body
    start = body.index(b"{") + 1
    rest = body[start:].lstrip()
    return b'{"role":"user"' + (b"" if rest.startswith(b"}") else b",") + rest


async def read(call: Call) -> App:
    page = await call.sessions.messages(call.session_id, **call.query)
    items = [message.to_json() for message in page.items]
    return page_of(items, page.next, "" if page.next is None else call.url(cursor=page.next))


async def retract(call: Call) -> App:
    given = await call.fields(Reason)
    message = await call.sessions.retract_message(
        call.session_id, call.path["message_id"], reason=given.reason, **call.write(given.expected_version)
    )
    return written(message.to_json(), message.version, replayed=message.replayed)


ROUTES = (
    Route(
        method="GET",
        path=PATH,
        name="messages",
        about="Messages in the order of the session.",
        handler=read,
        query=(
            AFTER,
            BEFORE,
            RUN_ID,
            Parameter(name="include_retracted", kind="flag", about="Also those that were taken back."),
            ORDER,
            LIMIT,
            CURSOR,
        ),
        answers={200: shapes.MessagePage},
        errors=(400, 404, 410),
    ),
    Route(
        method="POST",
        path=PATH,
        name="append_message",
        about="Append a chat message as it is (without a role it is a user's), or one or several in an envelope, beside which"
        " metadata, format, status and expected_version stand.",
        handler=append,
        body=given.MessageBody,
        answers={201: shapes.Appended},
        errors=(403, 404, 410, *WRITE),
        is_write=True,
        attempt="may",
    ),
    Route(
        method="POST",
        path=PATH + "/{message_id}/retract",
        name="retract_message",
        about="Take a message back: reads leave it out, the log does not.",
        handler=retract,
        body=given.Why,
        body_required=False,
        answers={200: shapes.Message},
        errors=(403, 404, 410, *WRITE),
        is_write=True,
    ),
)
