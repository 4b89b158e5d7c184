"""``/livez``, ``/readyz``, ``/metrics``: what an operator's machines ask; and the OpenAPI document."""

from __future__ import annotations

import contextlib
from ipaddress import ip_address

from satchel.domain.rights import require
from satchel.errors import SatchelError, StoreError
from satchel.http import shapes
from satchel.http.answers import Answer, encode
from satchel.http.asgi import App
from satchel.http.call import Call
from satchel.http.keys import SETTING
from satchel.http.metrics import CONTENT_TYPE
from satchel.http.route import Route


async def live(_: Call) -> App:
    """The process answers; whether it can serve is asked at /readyz."""
    return Answer(encode({"status": "live"}))


async def ready(call: Call) -> App:
    store = "ok"
    try:
        await call.service.store.store.setting(SETTING)
    except SatchelError as error:
        store = error.code
    draining = call.service.is_draining
    good = store == "ok" and not draining
    checks = {"store": store, "draining": draining}
    headers = [] if good else [(b"retry-after", b"1")]
    status = 200 if good else 503
    return Answer(
        encode({"status": "ready" if good else "not ready", "checks": checks}), status=status, headers=headers
    )


async def metrics(call: Call) -> App:
    """To who asks from this machine; to others, and behind a proxy, with an admin's key."""
    if call.service.settings.metrics_need_key or not _is_near(call):
        principal = call.visit.principal or await call.service.identity(call.scope)
        require(principal, "govern", "read the metrics of all tenants")
    with contextlib.suppress(StoreError):  # what this process saw is told all the same
        call.service.metrics.queue_age.set(await call.service.queue_age())
    return Answer(call.service.metrics.text(), media_type=CONTENT_TYPE)


def _is_near(call: Call) -> bool:
    client = call.scope.get("client")
    if client is None or any(name in call.headers for name in (b"forwarded", b"x-forwarded-for")):
        return False
    try:
        return ip_address(client[0]).is_loopback
    except ValueError:
        return False


async def openapi(_: Call) -> App:
    from satchel.http.openapi import document_bytes

    return Answer(document_bytes())


ROUTES = (
    Route(
        method="GET",
        path="/livez",
        name="livez",
        about="Whether the process answers.",
        handler=live,
        answers={200: shapes.Live},
        is_open=True,
    ),
    Route(
        method="GET",
        path="/readyz",
        name="readyz",
        about="Whether it can serve: the store answers, and it is not draining.",
        handler=ready,
        answers={200: shapes.Ready, 503: shapes.Ready},
        is_open=True,
    ),
    Route(
        method="GET",
        path="/metrics",
        name="metrics",
        about="For Prometheus: what this process saw. From another machine with an admin's key.",
        handler=metrics,
        answers={200: str},
        errors=(401, 403),
        is_open=True,
    ),
    Route(
        method="GET",
        path="/openapi.json",
        name="openapi",
        about="This document.",
        handler=openapi,
        answers={200: dict},
    ),
)
