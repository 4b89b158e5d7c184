"""The OpenAPI document, made from the table of routes and the shapes: what is not there is not served."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any

import msgspec

from satchel.http import shapes
from satchel.http.route import Route

VERSION = "1"
REF = "#/components/schemas/{name}"

SUMMARY = (
    "Sessions of AI agents: conversation, working memory, tool history and runs. Errors are RFC 9457 problems. ETag and"
    " If-Match carry the version, Idempotency-Key the key of a write, Last-Event-ID the seq of a stream."
)

REASONS = {
    200: "Done.",
    201: "Done; it is there now.",
    202: "Accepted: the run goes on.",
    204: "Nothing more will come.",
    304: "Not changed.",
    400: "Not understood: no JSON, or a cursor of another list.",
    401: "No identity.",
    403: "Yours, and not for your role.",
    404: "Unknown, or somebody else's.",
    405: "Not this method; Allow names those that are taken.",
    408: "The body did not come in time.",
    409: "Refused by the state that it met; nothing was stored.",
    410: "Deleted.",
    412: "The version of If-Match is not the current one.",
    413: "Larger than a limit.",
    414: "The address is too long.",
    415: "Not JSON in UTF-8.",
    422: "Wrong by itself, or its Idempotency-Key was used for another request.",
    428: "This write needs a version.",
    429: "Too many at once; Retry-After says when to come back.",
    500: "A fault of this service.",
    503: "The store is away or busy; Retry-After says when to come back.",
}

PROBLEMS = {status: f"Problem{status}" for status in REASONS if status >= 400}

ALWAYS = (401, 414, 422, 429, 500, 503)
WITH_BODY = (400, 408, 413, 415)


@cache
def document_bytes() -> bytes:
    from satchel.http.table import ROUTES

    return msgspec.json.format(msgspec.json.encode(document(ROUTES)), indent=1) + b"\n"


def document(routes: Iterable[Route]) -> dict[str, Any]:
    routes = tuple(routes)
    wanted: list[Any] = [shapes.Problem]
    for route in routes:
        for shape in (route.body, *route.answers.values()):
            wanted += [one for one in _each(shape) if _is_shape(one)]
    unique = list(dict.fromkeys(wanted))
    schemas, components = msgspec.json.schema_components(unique, ref_template=REF)
    known = dict(zip(unique, schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, known)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Satchel", "version": VERSION, "description": SUMMARY},
        "paths": paths,
        "components": {
            "schemas": components,
            "responses": {
                name: {
                    "description": REASONS[status],
                    "content": {"application/problem+json": {"schema": known[shapes.Problem]}},
                }
                for status, name in PROBLEMS.items()
            },
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"bearer": []}],
    }


def _each(shape: Any) -> tuple[Any, ...]:
    return shape if isinstance(shape, tuple) else (shape,)


def _is_shape(shape: Any) -> bool:
    return isinstance(shape, type) and issubclass(shape, msgspec.Struct)


def _schema(shape: Any, known: dict[Any, Any]) -> dict[str, Any]:
    if isinstance(shape, tuple):
        return {"anyOf": [_schema(one, known) for one in shape]}
    if _is_shape(shape):
        found: dict[str, Any] = known[shape]
        return found
    return {"type": "object"} if shape is dict else {"type": "string"}


def _operation(route: Route, known: dict[Any, Any]) -> dict[str, Any]:
    operation: dict[str, Any] = {"operationId": route.name, "summary": route.about}
    parameters = [*_path_parameters(route), *_query_parameters(route), *_header_parameters(route)]
    if parameters:
        operation["parameters"] = parameters
    if route.body is not None:
        operation["requestBody"] = {
            "required": route.body_required,
            "content": {media_type: {"schema": _schema(route.body, known)} for media_type in route.media_types},
        }
    operation["responses"] = _responses(route, known)
    if route.is_open:
        operation["security"] = [{}]
    return operation


def _path_parameters(route: Route) -> list[dict[str, Any]]:
    return [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in route.path_parameters
    ]


def _query_parameters(route: Route) -> list[dict[str, Any]]:
    shown: list[dict[str, Any]] = []
    for parameter in route.query:
        if parameter.kind == "members":
            continue  # OpenAPI has no way to say `metadata.KEY=VALUE`; the description of the route does
        one: dict[str, Any] = {
            "name": parameter.name,
            "in": "query",
            "description": parameter.about,
            "schema": parameter.schema(),
        }
        if parameter.kind == "choices":
            one |= {"style": "form", "explode": False}
        shown.append(one)
    return shown


def _header_parameters(route: Route) -> list[dict[str, Any]]:
    shown: list[dict[str, Any]] = []
    if route.is_write:
        shown.append(
            _header("Idempotency-Key", "The same key and request get the first answer again.", "^[!-~]{1,255}$")
        )
    if route.takes_condition:
        about = "The version that is expected, as ETag gives it."
        shown.append(_header("If-Match", about, '^"v(0|[1-9][0-9]{0,17})"$'))
    if route.attempt is not None:
        about = "The run that writes: RUN_ID/ATTEMPT."
        attempt = _header("Satchel-Attempt", about, "^[!-~]{1,128}/[1-9][0-9]{0,9}$")
        shown.append(attempt | {"required": True} if route.attempt == "must" else attempt)
    if 304 in route.answers:
        shown.append(_header("If-None-Match", "What the caller has already: 304 in place of the same again.", None))
    if not route.is_open:
        shown.append(_header("Satchel-Acting-For", "The one user for whom an agent makes this request.", None))
    return shown


def _header(name: str, about: str, pattern: str | None) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    if pattern is not None:
        schema["pattern"] = pattern
    return {"name": name, "in": "header", "description": about, "schema": schema}


def _responses(route: Route, known: dict[Any, Any]) -> dict[str, Any]:
    responses: dict[str, Any] = {}
    for status, shape in route.answers.items():
        responses[str(status)] = {"description": REASONS[status]}
        if shape is not None:
            media_type = "text/plain" if shape is str else "application/json"
            responses[str(status)]["content"] = {media_type: {"schema": _schema(shape, known)}}
        if route.name == "events" and status == 200:
            responses["200"]["content"]["text/event-stream"] = {"schema": {"type": "string"}}
    statuses = {*route.errors, *(() if route.is_open else ALWAYS), *(() if route.body is None else WITH_BODY)}
    if not route.is_open:
        statuses.add(403)  # an agent's key that is bound to one user, and another user's name
    if any(parameter.kind in ("text", "members") for parameter in route.query):
        statuses.add(413)  # names, titles and metadata have limits in an address too
    if route.is_open:
        statuses |= {414, 422, 500}
    for status in sorted(statuses):
        if str(status) not in responses:
            responses[str(status)] = {"$ref": f"#/components/responses/{PROBLEMS[status]}"}
    return dict(sorted(responses.items()))
