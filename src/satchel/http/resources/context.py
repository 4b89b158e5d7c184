"""``/v1/sessions/{id}/context``: what a model would see."""

from __future__ import annotations

from satchel.http import shapes
from satchel.http.answers import Answer
from satchel.http.asgi import App
from satchel.http.call import Call
from satchel.http.parameters import Parameter
from satchel.http.resources.sessions import ONE
from satchel.http.route import Route


async def read(call: Call) -> App:
    context = await call.sessions.context(call.session_id, **call.query)
    return Answer(context.to_json())


ROUTES = (
    Route(
        method="GET",
        path=ONE + "/context",
        name="context",
        about="What a model should see, in at most `max_tokens`: `messages` go straight into a chat API.",
        handler=read,
        query=(
            Parameter(name="max_tokens", kind="whole", about="Estimated tokens.", default=8000, least=1),
            Parameter(name="run_number", kind="whole", about="Nothing of runs after this one."),
            Parameter(name="run_id", kind="text", about="As this run sees it.", least=1),
        ),
        answers={200: shapes.Context},
        errors=(404, 410),
    ),
)
