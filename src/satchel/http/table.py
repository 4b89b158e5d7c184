"""All routes of the service, in the order in which the OpenAPI document shows them."""

from __future__ import annotations

from satchel.http import health
from satchel.http.resources import (
    chat,
    context,
    events,
    messages,
    runs,
    sessions,
    speaking,
    tool_history,
    working_memory,
)
from satchel.http.route import Route

ROUTES: tuple[Route, ...] = (
    *sessions.ROUTES,
    *messages.ROUTES,
    *working_memory.ROUTES,
    *tool_history.ROUTES,
    *runs.ROUTES,
    *speaking.ROUTES,
    *events.ROUTES,
    *context.ROUTES,
    *chat.ROUTES,
    *health.ROUTES,
)
