"""``/v1/sessions/{id}/runs/{run_id}``: what a run that is executed elsewhere asks, and says while it says it."""

from __future__ import annotations

from typing import Any

import msgspec

from satchel.domain.json_text import NO_JSON
from satchel.http import given, shapes
from satchel.http.answers import Answer, encode, written
from satchel.http.asgi import App
from satchel.http.call import Call
from satchel.http.resources.runs import attempt_of, work_route
from satchel.questions import EXPIRES_IN


class NewQuestion(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    name: str
    question: str
    schema: msgspec.Raw = NO_JSON
    expires_in: float = EXPIRES_IN
    here: bool = False
    expected_version: int | None = None


class Text(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    message: int
    offset: int
    text: str
    metadata: msgspec.Raw = NO_JSON


class End(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    message: int
    answer: msgspec.Raw
    metadata: msgspec.Raw = NO_JSON
    interrupted: bool = False


async def ask(call: Call) -> App:
    given = await call.fields(NewQuestion)
    schema: Any = given.schema  # JSON text: it is kept as received
    asked = await call.runs.ask_question(
        call.session_id,
        attempt_of(call),
        given.name,
        given.question,
        schema=None if bytes(schema) in (b"", b"null") else schema,
        expires_in=given.expires_in,
        here=given.here,
        **call.write(given.expected_version),
    )
    body = {
        "run": msgspec.Raw(asked.run.to_json()),
        "is_answered": asked.is_answered,
        "answer": asked.answer,
    } | asked.spelt
    return written(encode(body), asked.run.version, replayed=asked.run.replayed)


async def add_text(call: Call) -> App:
    given = await call.fields(Text)
    metadata: Any = bytes(given.metadata) or None
    offset = await call.runs.add_text(
        call.session_id,
        attempt_of(call),
        given.text,
        message=given.message,
        offset=given.offset,
        metadata=metadata,
    )
    return Answer(encode({"offset": offset}))


async def end_text(call: Call) -> App:
    given = await call.fields(End)
    metadata: Any = bytes(given.metadata) or None
    message = await call.runs.end_text(
        call.session_id,
        attempt_of(call),
        bytes(given.answer),
        message=given.message,
        metadata=metadata,
        interrupted=given.interrupted,
    )
    return written(message.to_json(), message.version, replayed=message.replayed)


ROUTES = (
    work_route(
        "ask",
        "ask_question",
        "Ask a human under a name: the run waits; or what was answered under this name before.",
        ask,
        given.Ask,
        required=True,
        answer=shapes.Asked,
    ),
    work_route(
        "text",
        "add_text",
        "Some of a message that is being said: shown to who follows, and no event. May be repeated.",
        add_text,
        given.NewText,
        required=True,
        answer=shapes.TextAdded,
    ),
    work_route(
        "text/end",
        "end_text",
        "A message that was streamed is final. A repeated call gives the first answer.",
        end_text,
        given.EndOfText,
        required=True,
        answer=shapes.Message,
    ),
)
