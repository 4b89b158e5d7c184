"""``/v1/sessions``: create, list, read, rename, erase, and the lifecycle."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Literal

import msgspec

from satchel.domain.json_text import NO_JSON
from satchel.domain.record import LISTED, NOT_LISTED
from satchel.domain.session import Session
from satchel.errors import InvalidInput
from satchel.http import given, shapes
from satchel.http.answers import Answer, etag, page_of, texts, written
from satchel.http.asgi import App
from satchel.http.call import Call
from satchel.http.parameters import CURSOR, LIMIT, Parameter
from satchel.http.route import Route
from satchel.http.settings import policy_from
from satchel.sessions.reading import INCLUDES


class NewSession(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    title: str = ""
    user_id: str | None = None
    external_id: str | None = None
    if_exists: Literal["return", "raise"] = "return"
    metadata: msgspec.Raw = NO_JSON
    policy: dict[str, Any] | None = None


class SessionChange(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    title: str | msgspec.UnsetType = msgspec.UNSET
    metadata: msgspec.Raw = NO_JSON
    expected_version: int | None = None


class Why(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    reason: str = ""
    expected_version: int | None = None


class Fork(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    up_to: int | None = None
    title: str | None = None
    expected_version: int | None = None


class Transfer(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    user_id: str
    expected_version: int | None = None


async def create(call: Call) -> App:
    given = await call.fields(NewSession)
    metadata: Any = bytes(given.metadata) or None  # JSON text: it is kept as received
    options: dict[str, Any] = {
        "title": given.title,
        "user_id": given.user_id,
        "external_id": given.external_id,
        "metadata": metadata,
        "policy": None if given.policy is None else policy_from(given.policy),
        "if_exists": given.if_exists,
        "idempotency_key": call.key,
    }
    await call.check_session_count(given.user_id, external_id=given.external_id, key=call.key)
    session = await call.sessions.create_session(**options)
    status = 200 if session.existed else 201
    location = call.location(session.session_id)
    return written(session.to_json(), session.version, replayed=session.replayed, status=status, headers=[location])


async def list_all(call: Call) -> App:
    page = await call.sessions.list_sessions(**call.query)
    return page_of(texts(page), page.next, "" if page.next is None else call.url(cursor=page.next))


async def read(call: Call) -> App:
    session = await call.sessions.get_session(call.session_id, **call.query)
    return call.unless_known(Answer(session.to_json(), headers=[etag(session.version)]))


async def change(call: Call) -> App:
    given = await call.fields(SessionChange)
    if given.title is msgspec.UNSET and not bytes(given.metadata):
        raise InvalidInput("must hold a title, metadata, or both", field="body")
    metadata: Any = bytes(given.metadata) or None
    session = await call.sessions.update_session(
        call.session_id,
        title=None if given.title is msgspec.UNSET else given.title,
        metadata=metadata,
        **call.write(given.expected_version),
    )
    return _session(session)


async def delete(call: Call) -> App:
    return _session(await call.sessions.delete_session(call.session_id, **call.query, **call.write()))


def _mover(verb: Literal["close", "restore", "expire"]) -> Callable[[Call], Awaitable[App]]:
    async def move(call: Call) -> App:
        given = await call.fields(Why)
        method = getattr(call.sessions, f"{verb}_session")
        return _session(await method(call.session_id, reason=given.reason, **call.write(given.expected_version)))

    return move


async def fork(call: Call) -> App:
    given = await call.fields(Fork)
    session = await call.sessions.fork_session(
        call.session_id, up_to=given.up_to, title=given.title, **call.write(given.expected_version)
    )
    location = call.location(session.session_id)
    return written(session.to_json(), session.version, replayed=session.replayed, status=201, headers=[location])


async def transfer(call: Call) -> App:
    given = await call.fields(Transfer)
    return _session(
        await call.sessions.transfer_session(call.session_id, given.user_id, **call.write(given.expected_version))
    )


def _session(session: Session) -> Answer:
    return written(session.to_json(), session.version, replayed=session.replayed)


PATH = "/v1/sessions"
ONE = PATH + "/{session_id}"
WRITE = (409, 412)

_MOVES: tuple[tuple[Literal["close", "restore", "expire"], str, tuple[int, ...]], ...] = (
    ("close", "CLOSED: readable, no writes. Open runs are cancelled.", (404, 410, *WRITE)),
    ("restore", "ACTIVE again, with everything.", (404, 410, *WRITE)),
    ("expire", "EXPIRED before its time; for admins.", (403, 404, 410, *WRITE)),
)

ROUTES = (
    Route(
        method="POST",
        path=PATH,
        name="create_session",
        about="Create a session, or find the one of this external_id.",
        handler=create,
        body=given.NewSession,
        body_required=False,
        answers={201: shapes.Session, 200: shapes.Session},
        errors=(404, 409, 410),
        is_write=True,
    ),
    Route(
        method="GET",
        path=PATH,
        name="list_sessions",
        about="Own sessions, newest change first; a page may be short, or empty, and still have a next.",
        handler=list_all,
        query=(
            Parameter(
                name="status", kind="choice", about="The status that holds now.", choices=LISTED, note=NOT_LISTED
            ),
            Parameter(name="updated_after", kind="time", about="Changed at this time or later."),
            Parameter(name="updated_before", kind="time", about="Changed before this time."),
            Parameter(name="metadata", kind="members", about="`metadata.KEY=VALUE`: all these members are equal."),
            Parameter(name="title", kind="text", about="The title contains this text, whatever its case."),
            Parameter(
                name="user_id", kind="text", about="For those who see all of a tenant: only this user's.", least=1
            ),
            msgspec.structs.replace(LIMIT, default=50),
            CURSOR,
        ),
        answers={200: shapes.SessionPage},
        errors=(400,),
    ),
    Route(
        method="GET",
        path=ONE,
        name="get_session",
        about="The session as it is now, with the newest 50 of each kind.",
        handler=read,
        query=(Parameter(name="include", kind="choices", about="What comes with it.", choices=INCLUDES),),
        answers={200: shapes.Session, 304: None},
        errors=(404, 410),
    ),
    Route(
        method="PATCH",
        path=ONE,
        name="update_session",
        about="A new title, a merge patch of the metadata (null removes a member), or both.",
        handler=change,
        body=given.SessionChange,
        answers={200: shapes.Session},
        errors=(404, 410, *WRITE),
        is_write=True,
        media_types=("application/merge-patch+json", "application/json"),
    ),
    Route(
        method="DELETE",
        path=ONE,
        name="delete_session",
        about="Erase it. What is left is a tombstone, and the id is never used again.",
        handler=delete,
        query=(Parameter(name="reason", kind="text", about="Why, for the lifecycle history."),),
        answers={200: shapes.Session},
        errors=(404, *WRITE),
        is_write=True,
    ),
    *(
        Route(
            method="POST",
            path=f"{ONE}/{verb}",
            name=f"{verb}_session",
            about=about,
            handler=_mover(verb),
            body=given.Why,
            body_required=False,
            answers={200: shapes.Session},
            errors=errors,
            is_write=True,
        )
        for verb, about, errors in _MOVES
    ),
    Route(
        method="POST",
        path=f"{ONE}/fork",
        name="fork_session",
        about="A new session that begins as a copy of this one, up to an event.",
        handler=fork,
        body=given.Fork,
        body_required=False,
        answers={201: shapes.Session},
        errors=(404, 410, *WRITE),
        is_write=True,
    ),
    Route(
        method="POST",
        path=f"{ONE}/transfer",
        name="transfer_session",
        about="To another user of the tenant; for admins.",
        handler=transfer,
        body=given.Transfer,
        answers={200: shapes.Session},
        errors=(403, 404, 410, *WRITE),
        is_write=True,
    ),
)
