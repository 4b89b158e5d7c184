"""``/v1/sessions/{id}/working-memory``: read, replace, patch by field."""

from __future__ import annotations

from typing import Any

import msgspec

from satchel.domain.memory import WorkingMemory
from satchel.errors import InvalidInput
from satchel.http import given, shapes
from satchel.http.answers import Answer, encode, etag, written
from satchel.http.asgi import App
from satchel.http.bodies import admit_envelope, decode_as
from satchel.http.call import Call, decoder_of
from satchel.http.parameters import Parameter
from satchel.http.resources.sessions import ONE, WRITE
from satchel.http.route import Route

PATH = ONE + "/working-memory"
EXPECTED = "expected_version"


def memory_json(memory: WorkingMemory) -> bytes:
    return memory.to_json()[:-1] + b',"version":%d}' % memory.version


async def read(call: Call) -> App:
    memory = await call.sessions.get_working_memory(call.session_id, **call.query)
    return call.unless_known(Answer(memory_json(memory), headers=[etag(memory.version)]))


async def replace(call: Call) -> App:
    fields, options = await _fields(call, "working_memory")
    memory = await call.sessions.replace_working_memory(call.session_id, fields, attempt=call.attempt, **options)
    return written(memory_json(memory), memory.version, replayed=memory.replayed)


async def patch(call: Call) -> App:
    fields, options = await _fields(call, "patch")
    memory = await call.sessions.update_working_memory(call.session_id, fields, attempt=call.attempt, **options)
    return written(memory_json(memory), memory.version, replayed=memory.replayed)


async def _fields(call: Call, field: str) -> tuple[Any, dict[str, Any]]:
    """The body without ``expected_version``, which may stand in it, and so may a ``version`` as it was read. As JSON: numbers
    stay as they are written."""
    body = await call.body()
    members = decode_as(decoder_of(dict[str, msgspec.Raw]), body)
    expected = admit_envelope(body).get(EXPECTED)
    members.pop(EXPECTED, None)
    if field == "working_memory":
        members.pop("version", None)
    if expected is not None and type(expected) is not int:
        raise InvalidInput("must be a whole number from 0", field=EXPECTED)
    call.is_whole("working_memory", "patch")
    return encode(members), call.write(expected)


ROUTES = (
    Route(
        method="GET",
        path=PATH,
        name="get_working_memory",
        about="The working memory. Its ETag is the version at which it last changed.",
        handler=read,
        query=(Parameter(name="run_id", kind="text", about="As this run sees it, under its own layer.", least=1),),
        answers={200: shapes.WorkingMemory, 304: None},
        errors=(404, 410),
    ),
    Route(
        method="PUT",
        path=PATH,
        name="replace_working_memory",
        about="The whole memory anew; fields that are not given are empty. Needs a version.",
        handler=replace,
        body=given.NewWorkingMemory,
        answers={200: shapes.WorkingMemory},
        errors=(403, 404, 410, *WRITE, 428),
        is_write=True,
        attempt="may",
    ),
    Route(
        method="PATCH",
        path=PATH,
        name="update_working_memory",
        about="Patch by field: clear, remove, append, set, in this order. `set` and `clear` need a version.",
        handler=patch,
        body=given.MemoryPatch,
        answers={200: shapes.WorkingMemory},
        errors=(403, 404, 410, *WRITE, 428),
        is_write=True,
        attempt="may",
    ),
)
