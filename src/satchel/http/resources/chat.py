"""``POST /v1/chat``: say something to an agent, and get its answer."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from typing import Any, Literal

import msgspec

from satchel.domain.first_words import GOAL, TITLE, first_words
from satchel.domain.message import Message
from satchel.domain.page import Page
from satchel.domain.run import Run
from satchel.errors import InvalidInput, ResyncRequired, SatchelError, StoreError
from satchel.http import given, shapes
from satchel.http.answers import encode, written
from satchel.http.asgi import App
from satchel.http.call import Call
from satchel.http.elsewhere import LOOK
from satchel.http.resources.events import stream, stream_place
from satchel.http.resources.messages import with_role
from satchel.http.resources.runs import input_of
from satchel.http.route import Route
from satchel.http.settings import LONGEST_WAIT

NEWEST = 8  # events that are looked at for where a run begins: more than one commit has for it, and few to read


class Chat(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    message: msgspec.Raw
    session_id: str | None = None
    external_id: str | None = None
    user_id: str | None = None
    agent: str | None = None
    goal: str | None = None
    stream: bool = False
    on_busy: Literal["reject", "queue", "cancel"] = "queue"
    wait: float | None = None


async def chat(call: Call) -> App:
    given = await call.fields(Chat)
    said = input_of(given.message)
    if said is None:
        raise InvalidInput("must be text, or a chat message", field="message")
    if given.wait is not None and not 0 <= given.wait <= LONGEST_WAIT:
        raise InvalidInput(f"must be seconds, from 0 to {LONGEST_WAIT:g}", field="wait")
    if not (call.service.default_agent if given.agent is None else given.agent):
        reason = (
            "is needed: this server serves no agent that would be the default" if given.agent is None else "is empty"
        )
        raise InvalidInput(reason, field="agent")
    if isinstance(said, bytes):
        said = with_role(said)
    if not given.stream:
        return await _answered(call, given, await _said(call, given, said))
    # The place is taken before anything is said: who is refused one says it again.
    with stream_place(call) as place:
        run = await _said(call, given, said)
        after, first = await _behind(call, run), await _first_frame(call, run)
        return stream(call, run.session_id, place.pop_all(), after=after, run_id=run.run_id, first=first)


async def _said(call: Call, given: Chat, said: str | bytes) -> Run:
    session_id = await _session(call, given, title=first_words(said, TITLE))
    call.visit.session_id = session_id
    return await call.add_run(
        session_id,
        goal=given.goal if given.goal is not None else first_words(said, GOAL),
        agent=given.agent,
        input=said,
        on_busy=given.on_busy,
        idempotency_key=call.key,
    )


async def _behind(call: Call, run: Run) -> int:
    """A seq before the run's first event, as near as one look tells: a long session is not read from its beginning for each
    chat."""
    try:
        newest = await call.sessions.events(run.session_id, order="desc", limit=NEWEST)
    except SatchelError:  # the run is there all the same
        newest = Page(())
    # Every version has an event of its own, so a seq is never below its version.
    return next((event.seq for event in newest.items if event.version < run.version), run.version - 1)


async def _first_frame(call: Call, run: Run) -> bytes:
    elsewhere = call.service.elsewhere
    begun: dict[str, Any] = {"session_id": run.session_id, "run": msgspec.Raw(run.to_json())}
    hint = (elsewhere.hint(run) if elsewhere.is_unknown(run.agent) else None) or await _queue_hint(call, run)
    if hint is not None:
        begun["hint"] = hint
    return b"event: run\ndata: %s\n\n" % encode(begun)


async def _answered(call: Call, given: Chat, run: Run) -> App:
    session_id, elsewhere = run.session_id, call.service.elsewhere
    wait = call.service.settings.chat_seconds if given.wait is None else given.wait
    message: Message | None = None
    try:
        after = await _behind(call, run) if wait else run.version - 1
        look = _wait_if_begun if elsewhere.is_unknown(run.agent) else _wait
        ended = await look(call, run, wait, after)
        if ended.is_terminal:
            message = await _last_word(call, ended, after)
    except StoreError:  # not a word about what was said: that is stored, and the run goes on
        ended = run
    location = call.location(session_id, run.run_id)
    body: dict[str, Any] = {
        "session_id": session_id,
        "run": msgspec.Raw(ended.to_json()),
        "message": None if message is None else msgspec.Raw(message.to_json()),
    }
    if (hint := elsewhere.hint(ended) or await _queue_hint(call, ended)) is not None:
        body["hint"] = hint
    status = 200 if ended.is_terminal else 202
    return written(encode(body), ended.version, replayed=run.replayed, status=status, headers=[location])


async def _session(call: Call, given: Chat, *, title: str) -> str:
    """The one that is named, or a new one. Its key is another than the run's: two writes, each done once."""
    if given.session_id is not None:
        if given.external_id is not None:
            raise InvalidInput("must not stand beside session_id", field="external_id")
        return given.session_id
    key = None if call.key is None else "chat-" + hashlib.sha256(call.key.encode()).hexdigest()
    await call.check_session_count(given.user_id, external_id=given.external_id, key=key)
    session = await call.sessions.create_session(
        user_id=given.user_id, title=title, external_id=given.external_id, idempotency_key=key
    )
    return session.session_id


async def _wait_if_begun(call: Call, run: Run, seconds: float, after: int) -> Run:
    """Of an agent that is served nowhere, as far as is known: a moment, and the rest of the time only for a run that somebody
    has begun by then."""
    run = await _wait(call, run, min(seconds, LOOK), after)
    if run.status == "READY":
        return run
    call.service.elsewhere.begun(run)
    return run if run.status == "WAITING" else await _wait(call, run, max(0.0, seconds - LOOK), after)


async def _wait(call: Call, run: Run, seconds: float, after: int) -> Run:
    """The run when it ended, when it waits for an answer, or as it is after that time. It goes on without us."""
    if run.is_terminal or seconds == 0:
        return run

    async def follow() -> Run | None:
        seen = after
        while True:
            try:
                async for event in call.sessions.follow(run.session_id, after=seen, run_id=run.run_id):
                    if event.kind == "question_asked":  # since a request that is repeated, maybe answered by now
                        asking = await call.runs.get_run(run.session_id, run.run_id)
                        if asking.status == "WAITING":
                            return asking
            except ResyncRequired:
                seen = 0  # the run itself was acknowledged, and its end is still to come
                continue
            return None

    following = asyncio.create_task(follow())
    draining = asyncio.create_task(call.service.drained())
    try:
        await asyncio.wait({following, draining}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        if following.done() and (asking := following.result()) is not None:
            return asking
    finally:
        for task in (following, draining):
            task.cancel()
        await asyncio.gather(following, draining, return_exceptions=True)
    return await call.runs.get_run(run.session_id, run.run_id)


async def _queue_hint(call: Call, run: Run) -> str | None:
    """Of a run in the queue: that nothing comes before somebody answers the run that has the turn."""
    if run.status != "READY":
        return None
    with contextlib.suppress(SatchelError):  # the run is there all the same
        active = (await call.sessions.get_session(run.session_id, include=())).active_run_id
        if active is not None and active != run.run_id:
            holder = await call.runs.get_run(run.session_id, active)
            if holder.status == "WAITING":
                return f"the run waits for its turn: {active} waits for an answer"
    return None


async def _last_word(call: Call, run: Run, after: int) -> Message | None:
    """The assistant's newest message of the run."""
    page = await call.sessions.messages(run.session_id, after=after, run_id=run.run_id, order="desc", limit=100)
    return next((message for message in page.items if message.role == "assistant"), None)


ROUTES = (
    Route(
        method="POST",
        path="/v1/chat",
        name="chat",
        about="Say something to an agent: the answer when its run has ended; 202 at once when the run asks something (`question`"
        " in `run`), and when it takes longer; or a stream of the run's events, which goes on over a question. The run goes on"
        " whatever becomes of this request.",
        handler=chat,
        body=given.Chat,
        answers={200: shapes.ChatAnswer, 202: shapes.ChatAnswer},
        errors=(403, 404, 409, 410),
        is_write=True,
    ),
)
