"""The ASGI application: the table of routes, put into Litestar, behind the gate."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import Any, cast

from litestar import Litestar, Request, Response
from litestar.exceptions import HTTPException, MethodNotAllowedException, NotFoundException
from litestar.handlers import HTTPRouteHandler
from litestar.types import ASGIApp

from satchel.errors import SatchelError
from satchel.http.answers import REPLAYED, Answer
from satchel.http.asgi import App, Receive, Scope, Send
from satchel.http.call import VISIT, Call, Visit
from satchel.http.gate import Gate, note_refusal
from satchel.http.identity import Credentials, Hook, Hooked, Identity
from satchel.http.keys import KeyRing
from satchel.http.problems import INTERNAL, MethodNotAllowed, PathNotFound, Problem, RequestError, problem_of
from satchel.http.route import Route
from satchel.http.service import Service
from satchel.http.settings import ServerSettings
from satchel.http.table import ROUTES
from satchel.http.traced import TracedApp
from satchel.opened import OpenStore
from satchel.traces import Traces

_SESSION_ID = re.compile(r"sess_[a-z2-7]{24}")


def make_app(
    store: OpenStore,
    *,
    principal_of: Hook | None = None,
    settings: ServerSettings | None = None,
    agents: Sequence[str] = (),
    traces: Traces | None = None,
) -> App:
    """The service over ``store``, which is open while the app serves and stays its opener's.

    Plain ASGI: mount it in another application. ``principal_of`` is asked who is calling, in place of our keys: it gets the
    request (headers, cookies, ``scope``) and gives a Principal, or raises Unauthenticated. ``agents``: the names of the
    agents that workers serve on this store, the one by default first. ``traces``: where the spans of requests go.
    """
    identity: Identity = Credentials(KeyRing(store)) if principal_of is None else Hooked(principal_of)
    return app_of(Service(store, identity, settings=settings or ServerSettings(), agents=agents, traces=traces))


def app_of(service: Service, routes: tuple[Route, ...] = ROUTES) -> App:
    open_paths = [route.path for route in routes if route.is_open]
    gate = Gate(_routed(routes), service, open_paths=open_paths)
    return gate if service.traces is None else TracedApp(gate, service.traces, quiet_paths=open_paths)


@cache
def _routed(routes: tuple[Route, ...]) -> App:
    """It keeps nothing: what a request needs comes with it, in its Visit."""
    app = Litestar(
        route_handlers=[_handler_of(path, methods) for path, methods in by_path(routes).items()],
        exception_handlers={HTTPException: _framework_problem, Exception: _internal_problem},
        openapi_config=None,
        logging_config=None,
    )
    return cast(App, app)


def by_path(routes: Sequence[Route]) -> dict[str, dict[str, Route]]:
    """The routes of each address by method. HEAD is GET without its body; OPTIONS is answered everywhere."""
    found: dict[str, dict[str, Route]] = {}
    for route in routes:
        methods = found.setdefault(route.path, {})
        methods[route.method] = route
        if route.method == "GET":
            methods["HEAD"] = route
    return found


def _handler_of(path: str, routes: dict[str, Route]) -> HTTPRouteHandler:
    """Litestar finds the address; what happens there is plain ASGI, so that nothing reads the request before we do."""
    methods = sorted({*routes, "OPTIONS"})
    options = Answer(status=204, headers=[(b"allow", ", ".join(methods).encode())])

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        visit: Visit = scope[VISIT]
        visit.template = path
        route = routes.get(scope["method"])
        answer = options if route is None else await _answer(Call(visit.service, route, scope, receive), visit)
        await answer(scope, receive, send)

    def in_its_place(app: ASGIApp) -> ASGIApp:  # noqa: ARG001  # Litestar hands it by name; nothing comes after us
        return cast(ASGIApp, serve)

    async def handle() -> None:
        """Litestar's own way to a handler makes a request, a response and a stack on the way; a middleware comes before."""
        raise AssertionError("never called")

    litestar_path = re.sub(r"\{(\w+)\}", r"{\1:str}", path)
    any_methods: list[Any] = methods
    return HTTPRouteHandler(litestar_path, http_method=any_methods, name=path, middleware=[in_its_place])(handle)


async def _answer(call: Call, visit: Visit) -> App:
    session_id = call.path.get("session_id")
    if session_id is not None and _SESSION_ID.fullmatch(session_id):
        visit.session_id = session_id
    try:
        call.read_query()
        call.check_condition()
        if len(call.path) > 1:
            await call.check_path()
        answer = await call.route.handler(call)
    except SatchelError as error:
        return _refused(visit, error, problem_of(error, call.places))
    if call.route.is_write and isinstance(answer, Answer):
        visit.replayed = REPLAYED in answer.headers
    return answer


def _refused(visit: Visit, error: SatchelError, problem: Problem) -> App:
    note_refusal(visit.service, visit, error, problem)
    return problem.answer(visit.request_id)


def _framework_problem(request: Request[Any, Any, Any], error: HTTPException) -> Response[bytes]:
    """What Litestar refuses by itself, in our words."""
    said: RequestError
    if isinstance(error, NotFoundException):
        said = PathNotFound("nothing is served at this address; GET /openapi.json shows what is")
    elif isinstance(error, MethodNotAllowedException):
        allow = (b"allow", (error.headers or {}).get("allow", "").encode("latin-1"))
        said = MethodNotAllowed("this address takes the methods that Allow names", headers=(allow,))
    elif error.status_code < 500:
        said = RequestError("the request cannot be understood")
    else:
        return _response(request, INTERNAL)
    problem = problem_of(said)
    _visit(request).code = problem.code
    return _response(request, problem)


def _internal_problem(_: Request[Any, Any, Any], error: Exception) -> Response[bytes]:
    raise error  # the gate logs it, and answers


def _response(request: Request[Any, Any, Any], problem: Problem) -> Response[bytes]:
    answer = problem.answer(_visit(request).request_id)
    headers = {name.decode(): value.decode("latin-1") for name, value in problem.headers}
    return Response(answer.body, status_code=problem.status, headers=headers, media_type="application/problem+json")


def _visit(request: Request[Any, Any, Any]) -> Visit:
    visit: Visit = cast(Scope, request.scope)[VISIT]
    return visit
