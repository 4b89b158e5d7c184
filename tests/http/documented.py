"""Every answer that a test gets is held to the OpenAPI document: its status, and the type of its body."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import httpx
import msgspec

from satchel.http.openapi import document_bytes

Responses = dict[str, Any]


def check_documented(answer: httpx.Response) -> None:
    """Raises AssertionError for a status, or a type of body, that the document does not know of this operation."""
    request = answer.request
    method = "GET" if request.method == "HEAD" else request.method
    for pattern, operations in _paths():
        if pattern.fullmatch(request.url.raw_path.partition(b"?")[0].decode("ascii")) and method in operations:
            shown = f"{request.method} {request.url.path}: {answer.status_code}"
            known = operations[method].get(str(answer.status_code))
            assert known is not None, f"{shown} is not documented: {answer.text[:500]}"
            media_type = answer.headers.get("content-type", "").partition(";")[0]
            if request.method != "HEAD" and (answer.content or media_type):
                assert media_type in known, f"{shown} has a body of type {media_type!r}"


@cache
def _paths() -> list[tuple[re.Pattern[str], dict[str, dict[str, frozenset[str]]]]]:
    """For each address, by method and status, the types that a body may have."""
    document = msgspec.json.decode(document_bytes())
    found = []
    for path, operations in document["paths"].items():
        pattern = re.compile(re.sub(r"\\\{\w+\\\}", "[^/]+", re.escape(path)))
        answers = {
            method.upper(): {
                status: frozenset(_resolved(document, response).get("content", {}))
                for status, response in operation["responses"].items()
            }
            for method, operation in operations.items()
        }
        found.append((pattern, answers))
    return found


def _resolved(document: dict[str, Any], response: dict[str, Any]) -> dict[str, Any]:
    if "$ref" not in response:
        return response
    resolved: dict[str, Any] = document["components"]["responses"][response["$ref"].rpartition("/")[2]]
    return resolved
