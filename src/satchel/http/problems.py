"""Errors as RFC 9457 problems: the one place that knows a status code of an error.

A problem names what was wrong and where, and never repeats what was sent, nor what the store said: no value, no SQL, no
path, no stack.
"""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec

from satchel.errors import (
    Conflict,
    IdempotencyMismatch,
    InvalidCursor,
    InvalidInput,
    LimitExceeded,
    NotAllowed,
    NotFound,
    OutcomeUnknown,
    QueueFull,
    RunNotFound,
    SatchelError,
    SchemaMismatch,
    SessionDeleted,
    SessionNotFound,
    StoreBusy,
    StoreCorrupt,
    StoreError,
    StoreMisused,
    StoreUnavailable,
    Unauthenticated,
    VersionConflict,
    VersionRequired,
)
from satchel.http.answers import PROBLEM_JSON, Answer, Header, encode

TYPE = "urn:satchel:problem:"
SOON = 1  # seconds after which what was busy may be tried again


class RequestError(SatchelError):
    """What only a request over HTTP can meet. ``headers`` go with the answer."""

    status: ClassVar[int] = 400
    code = "bad_request"

    def __init__(self, detail: str, *, headers: tuple[Header, ...] = (), retry_after: int | None = None) -> None:
        self.headers = headers
        self.retry_after = retry_after
        super().__init__(detail)


class MalformedBody(RequestError):
    code = "malformed_body"


class PathNotFound(RequestError):
    status = 404
    code = "path_not_found"


class MethodNotAllowed(RequestError):
    status = 405
    code = "method_not_allowed"


class BodyTooSlow(RequestError):
    status = 408
    code = "body_too_slow"
    retryable = True


class AddressTooLong(RequestError):
    status = 414
    code = "address_too_long"


class UnsupportedMediaType(RequestError):
    status = 415
    code = "unsupported_media_type"


class HeadersTooLarge(RequestError):
    status = 431
    code = "headers_too_large"


class TooManyRequests(RequestError):
    status = 429
    code = "rate_limited"
    retryable = True


class TooManyStreams(RequestError):
    status = 429
    code = "too_many_streams"
    retryable = True


class TooManyRuns(RequestError):
    status = 429
    code = "too_many_runs"
    retryable = True


class TooManySessions(RequestError):
    status = 409
    code = "too_many_sessions"


class Draining(RequestError):
    status = 503
    code = "draining"
    retryable = True


class WrongParameter(InvalidInput):
    """``field`` is the name of a parameter of the query."""


class Places(msgspec.Struct, frozen=True):
    """Where the fields that errors name stood in the request: in the query, in a header, or in the body. ``pointers``
    says where in the body, for those that are not its member of the same name."""

    query: frozenset[str] = frozenset()
    pointers: dict[str, str] = {}
    conditional: bool = False  # the expected version came by If-Match


NOWHERE = Places()
_HEADERS = {
    "idempotency_key": "Idempotency-Key",
    "if_match": "If-Match",
    "attempt": "Satchel-Attempt",
    "acting_for": "Satchel-Acting-For",
    "last_event_id": "Last-Event-ID",
}

# The first that fits. What is not named here is a fault of ours: 500, and a sentence that says no more.
_STATUS: tuple[tuple[type[SatchelError], int], ...] = (
    (Unauthenticated, 401),
    (InvalidCursor, 400),
    (LimitExceeded, 413),
    (InvalidInput, 422),
    (NotFound, 404),
    (NotAllowed, 403),
    (VersionRequired, 428),
    (IdempotencyMismatch, 422),
    (SessionDeleted, 410),
    (QueueFull, 429),
    (Conflict, 409),
    (StoreBusy, 503),
    (StoreUnavailable, 503),
    (OutcomeUnknown, 503),
)

# Sentences in place of the errors' own, where these repeat what the caller sent or what the store said.
_SENTENCES: tuple[tuple[type[SatchelError], str], ...] = (
    (Unauthenticated, "who is calling? Send `Authorization: Bearer KEY` with a key or a token that is valid here"),
    (SessionNotFound, "there is no such session"),
    (RunNotFound, "there is no such run in this session"),
    (NotFound, "there is no such thing in this session"),
    (SessionDeleted, "this session was deleted; its id is never used again"),
    (StoreBusy, "too many writers at once; nothing was stored"),
    (StoreUnavailable, "the store is not available; nothing was stored"),
    (OutcomeUnknown, "the write may or may not be stored; repeat it with the same Idempotency-Key"),
    (StoreCorrupt, "what is stored of this cannot be read any more"),
)

# Facts of an error that a program may need. Each is ours, or a number.
_FACTS = ("size", "limit", "setting", "unit", "role", "action")
_VERSIONS = {"expected": "expected_version", "current": "current_version"}
_CLASHING = {"status": "current_status"}  # a problem has a status of its own


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    status: int
    code: str
    detail: str
    retryable: bool = False
    headers: tuple[Header, ...] = ()
    more: dict[str, Any] = {}

    def answer(self, request_id: str) -> Answer:
        shown = {
            "type": TYPE + self.code,
            "title": self.code.replace("_", " ").capitalize(),
            "status": self.status,
            "detail": self.detail,
            "code": self.code,
            "retryable": self.retryable,
            "request_id": request_id,
        } | self.more
        return Answer(encode(shown), status=self.status, headers=self.headers, media_type=PROBLEM_JSON)


INTERNAL = Problem(
    status=500,
    code="internal_error",
    detail="a fault of this service; its log knows more under this request_id",
)


def problem_of(error: Exception, places: Places = NOWHERE) -> Problem:
    """What the caller is told of ``error``."""
    if isinstance(error, RequestError):
        return _problem_of_request(error)
    if not isinstance(error, SatchelError) or isinstance(error, (StoreMisused, SchemaMismatch)):
        return INTERNAL
    status = _status_of(error)
    if status is None:
        if not isinstance(error, StoreError):
            return INTERNAL
        status = 500
    if places.conditional and isinstance(error, VersionConflict):
        status = 412
    if isinstance(error, LimitExceeded) and error.field in _HEADERS:
        status = 422  # it is not the content that is too large
    headers: tuple[Header, ...] = getattr(error, "headers", ())
    if status in (429, 503):
        headers = (*headers, _retry_after(SOON))
    elif status == 401:
        headers = (*headers, (b"www-authenticate", b'Bearer realm="satchel"'))
    return Problem(
        status=status,
        code=error.code,
        detail=_sentence_of(error),
        retryable=error.retryable,
        headers=headers,
        more=_facts_of(error, places),
    )


def _problem_of_request(error: RequestError) -> Problem:
    headers = error.headers if error.retry_after is None else (*error.headers, _retry_after(error.retry_after))
    return Problem(status=error.status, code=error.code, detail=str(error), retryable=error.retryable, headers=headers)


def _status_of(error: SatchelError) -> int | None:
    return next((status for kind, status in _STATUS if isinstance(error, kind)), None)


def _sentence_of(error: SatchelError) -> str:
    for kind, sentence in _SENTENCES:
        if isinstance(error, kind):
            return sentence
    return error.reason if isinstance(error, InvalidInput) and not isinstance(error, LimitExceeded) else str(error)


def _facts_of(error: SatchelError, places: Places) -> dict[str, Any]:
    facts: dict[str, Any] = {}
    if isinstance(error, Conflict):  # of a session that is the caller's own
        renamed = _VERSIONS if isinstance(error, VersionConflict) else _CLASHING
        facts = {renamed.get(name, name): value for name, value in vars(error).items()}
    elif not isinstance(error, NotFound):
        for name in _FACTS:
            value = getattr(error, name, None)
            if value is not None:
                facts[name] = value
    if isinstance(error, InvalidInput):
        facts["errors"] = [_place_of(error, places) | {"detail": _sentence_of(error), "field": error.field}]
    return facts


def _place_of(error: InvalidInput, places: Places) -> dict[str, str]:
    """A JSON Pointer into the body, or the name of a parameter or header."""
    field = error.field
    if isinstance(error, WrongParameter) or field in places.query:
        return {"parameter": field}
    if field in _HEADERS:
        return {"header": _HEADERS[field]}
    if field in places.pointers:
        return {"pointer": places.pointers[field] + error.pointer}
    return {"pointer": "/" + field.replace("[", "/").replace("]", "").replace(".", "/") + error.pointer}


def _retry_after(seconds: int) -> Header:
    return b"retry-after", b"%d" % seconds
