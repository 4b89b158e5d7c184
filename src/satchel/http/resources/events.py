"""``/v1/sessions/{id}/events``: the log, as pages or as a stream that is followed."""

from __future__ import annotations

import re
from contextlib import ExitStack

from satchel.domain.event import KINDS
from satchel.errors import InvalidInput
from satchel.http import shapes
from satchel.http.answers import Answer, event_json, page_of
from satchel.http.asgi import App
from satchel.http.call import Call
from satchel.http.parameters import AFTER, BEFORE, CURSOR, LIMIT, ORDER, RUN_ID, Parameter
from satchel.http.problems import Draining
from satchel.http.resources.sessions import ONE
from satchel.http.route import Route
from satchel.http.streams import EventStream

_SEQ = re.compile(r"[0-9]{1,18}")


async def read(call: Call) -> App:
    if "text/event-stream" in (call.header(b"accept") or "") and call.scope["method"] == "GET":
        return await follow(call)
    if "text" in call.query:
        raise InvalidInput("is for streams: the log holds no text that is not final", field="text")
    page = await call.sessions.events(call.session_id, **call.query)
    items = [event_json(event) for event in page.items]
    return page_of(items, page.next, "" if page.next is None else call.url(cursor=page.next))


async def follow(call: Call) -> App:
    """Everything after ``Last-Event-ID`` (or ``after``), then what comes. With ``run_id`` it ends with the run; who comes
    back after that end gets 204, which tells a browser to stay away."""
    for name in call.query:
        if name not in ("after", "run_id", "text"):
            raise InvalidInput("is for pages; a stream takes after, run_id and text", field=name)
    after = last_event_id(call)
    if after is None:
        after = call.query.get("after", 0)
    run_id = call.query.get("run_id")
    if run_id is None:
        await call.sessions.get_session(call.session_id, include=())
    else:
        run = await call.runs.get_run(call.session_id, run_id)
        if run.is_terminal:
            end = await call.sessions.events(call.session_id, after=after, run_id=run_id, kind="run_ended", limit=1)
            if not end.items:  # behind it there may be more of the run, a retraction say
                session = await call.sessions.get_session(call.session_id, include=())
                if after <= session.last_seq:  # else the stream tells that what came is not in the log
                    return Answer(status=204)
    text = call.query.get("text", True)
    return stream(call, call.session_id, stream_place(call), after=after, run_id=run_id, text=text)


def stream_place(call: Call) -> ExitStack:
    """One of the streams that this caller may have, until it is closed. Raises TooManyStreams, and Draining: a stream that
    would end at once is not begun."""
    if call.service.is_draining:
        raise Draining("this server is about to stop; come back in a moment", retry_after=1)
    place = ExitStack()
    place.enter_context(call.service.stream_of(call.principal))
    return place


def stream(
    call: Call,
    session_id: str,
    place: ExitStack,
    *,
    after: int,
    run_id: str | None,
    text: bool = True,
    first: bytes = b"",
) -> App:
    """``place``: what ``stream_place`` gave; it is closed with the stream."""
    events = call.sessions.follow(session_id, after=after, run_id=run_id, text=text)
    return EventStream(call, events, place, ends_with_run=run_id is not None, first=first)


def last_event_id(call: Call) -> int | None:
    text = call.header(b"last-event-id")
    if not text:
        return None
    if not _SEQ.fullmatch(text):
        raise InvalidInput("must be a seq: the id of the last event that came", field="last_event_id")
    return int(text)


ROUTES = (
    Route(
        method="GET",
        path=ONE + "/events",
        name="events",
        about="The session's log. With `Accept: text/event-stream` it is followed: `Last-Event-ID` (or `after`) says from"
        " where, `run_id` until which end.",
        handler=read,
        query=(
            AFTER,
            BEFORE,
            Parameter(name="kind", kind="choice", about="Only events of this kind.", choices=KINDS),
            RUN_ID,
            Parameter(name="text", kind="flag", about="Of a stream: also text that is being said.", default=True),
            ORDER,
            LIMIT,
            CURSOR,
        ),
        answers={200: shapes.EventPage, 204: None},
        errors=(400, 404, 410),
    ),
)
