"""What generated requests to a server of the tests should reach: sessions that are there, and answers that come at once."""

from __future__ import annotations

import json
import os
from typing import Any

import schemathesis

KNOWN: dict[str, str] = json.loads(os.environ.get("SATCHEL_TEST_IDS", "{}"))  # parameter of a path → one that is there
ENDINGS = ("/close", "/expire", "/transfer", "/complete", "/fail", "/end-cancelled", "/hand-back")
# Made up, each of these hides all else: a cursor is of no list, text is for streams, a user acts for nobody else.
HIDING_QUERY = ("cursor", "text", "run_id", "parent_run_id", "user_id")
HIDING_HEADERS = ("satchel-acting-for", "if-match", "satchel-attempt")


@schemathesis.hook
def before_call(context: Any, case: Any, kwargs: Any) -> None:
    """Requests that fit the document are led to where something is; those that do not are left as they are."""
    operation = case.operation
    if operation.path == "/v1/chat" and isinstance(case.body, dict):  # it may be asked to wait for ten minutes
        quick = {"wait": 0, "stream": False}
        case.body = case.body | {name: quick[name] for name in quick if isinstance(case.body.get(name), (int, float))}
    if case.meta is None or not case.meta.generation.mode.is_positive:
        return
    for name in [name for name in case.query or () if name in HIDING_QUERY]:
        del case.query[name]
    for name in [name for name in case.headers or () if name.lower() in HIDING_HEADERS]:
        del case.headers[name]
        if name.lower() == "satchel-attempt":
            case.headers[name] = f"{KNOWN['run_id']}/1"
    if operation.method.lower() == "delete" or operation.path.endswith(ENDINGS):
        return  # what is there would not be there any more
    for name, value in (case.path_parameters or {}).items():
        if isinstance(value, str) and value.isalnum():
            case.path_parameters[name] = KNOWN.get(name, value)
