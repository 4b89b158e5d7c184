"""One request, decoded: who calls, what the path, the query, the headers and the body say."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import parse_qsl, quote, urlencode

import msgspec

from satchel.domain.principal import Principal
from satchel.domain.run import Attempt, Run
from satchel.errors import (
    IdempotencyMismatch,
    InvalidInput,
    MessageNotFound,
    RunNotFound,
    ToolCallNotFound,
    Unauthenticated,
)
from satchel.http.answers import Answer, Header
from satchel.http.asgi import Receive, Scope
from satchel.http.bodies import admit_envelope, check_media_type, check_text, decode_as, read_body
from satchel.http.limits import check_session_count, former_agent, was_answered
from satchel.http.parameters import read_query
from satchel.http.problems import Places, TooManyRuns
from satchel.http.route import Route
from satchel.runs import RunManager
from satchel.sessions import SessionManager

if TYPE_CHECKING:
    from satchel.http.service import Service

S = TypeVar("S")

KEPT_QUERY = 200  # bytes of a query that is remembered
VISIT = "satchel"  # where the gate leaves a Visit in the scope
_TAG = re.compile(r'"v(0|[1-9][0-9]{0,18})"')
_ATTEMPT = re.compile(r"([!-~]{1,128})/(0|[1-9][0-9]{0,9})")

_CHILDREN: dict[str, tuple[re.Pattern[str], type[RunNotFound | MessageNotFound | ToolCallNotFound]]] = {
    "run_id": (re.compile(r"[!-~]{1,128}"), RunNotFound),
    "message_id": (re.compile(r"msg_[1-9][0-9]{0,17}"), MessageNotFound),
    "seq": (re.compile(r"[1-9][0-9]{0,17}"), ToolCallNotFound),
}


class Visit:
    """What the gate knows of a request, and what its log line will say."""

    __slots__ = ("code", "is_stream", "principal", "replayed", "request_id", "service", "session_id", "template")

    def __init__(self, service: Service, request_id: str) -> None:
        self.service = service
        self.request_id = request_id
        self.principal: Principal | None = None
        self.template = ""
        self.session_id: str | None = None
        self.code: str | None = None
        self.replayed = False
        self.is_stream = False


class Call:
    """What a handler is given. The managers are bound to the caller."""

    __slots__ = (
        "_conditional",
        "_pointers",
        "_receive",
        "headers",
        "path",
        "query",
        "route",
        "scope",
        "service",
        "visit",
    )

    def __init__(self, service: Service, route: Route, scope: Scope, receive: Receive) -> None:
        self.service = service
        self.route = route
        self.scope = scope
        self._receive = receive
        self.visit: Visit = scope[VISIT]
        self.path: dict[str, str] = scope["path_params"]  # shared with later requests to this address: never written
        self.headers = dict(scope["headers"])
        self.query: dict[str, Any] = {}
        self._pointers: dict[str, str] = {"body": ""}
        self._conditional = False

    def read_query(self) -> None:
        query: bytes = self.scope["query_string"]
        if query:
            self.query = (_read_query if len(query) <= KEPT_QUERY else _read_query.__wrapped__)(query, self.route)

    # -- who

    @property
    def principal(self) -> Principal:
        principal = self.visit.principal
        if principal is None:
            raise Unauthenticated("no identity")
        return principal

    @property
    def sessions(self) -> SessionManager:
        return self.service.managers(self.principal)[0]

    @property
    def runs(self) -> RunManager:
        return self.service.managers(self.principal)[1]

    @property
    def session_id(self) -> str:
        return self.path["session_id"]

    async def check_path(self) -> None:
        """A child's id that none can have is as unknown as a wrong one: after it is known that the session is one's own."""
        for name, (form, error) in _CHILDREN.items():
            given = self.path.get(name)
            if given is not None and not form.fullmatch(given):
                await self.sessions.get_session(self.session_id, include=())
                raise error("")

    async def add_run(self, session_id: str, *, agent: str | None, **options: Any) -> Run:
        """Within the number of runs that a caller may have open. Without ``agent`` it is the default one's; of a request that is
        repeated, whose it was at first: that may have been another server, with another default."""
        open_runs, key = self.service.open_runs, options["idempotency_key"]
        try:
            await open_runs.check(self.principal, self.runs)
        except TooManyRuns:
            if not await was_answered(self.service.store, self.principal, session_id, key):
                raise
        named = self.service.default_agent if agent is None else agent
        try:
            run = await self.runs.add_run(session_id, agent=named, **options)
        except IdempotencyMismatch:
            former = await former_agent(self.service.store, self.runs, session_id, key) if agent is None else None
            if former is None or former == named:
                raise
            run = await self.runs.add_run(session_id, agent=former, **options)
        open_runs.added(self.principal, run)
        if self.service.traces is not None:
            self.service.traces.run_added(run)
        return run

    async def check_session_count(self, user_id: str | None, **found_by: str | None) -> None:
        """``found_by``: the external_id and the key by which a session may be found that is there."""
        most = self.service.settings.sessions_per_user
        await check_session_count(self.service.store, self.sessions, user_id, most=most, **found_by)

    # -- headers

    def header(self, name: bytes) -> str | None:
        value = self.headers.get(name)
        return None if value is None else value.decode("latin-1")

    def _single(self, name: bytes, field: str) -> str | None:
        if name not in self.headers:
            return None
        values = [value for known, value in self.scope["headers"] if known == name]
        if len(values) > 1:
            raise InvalidInput("is given twice", field=field)
        text: str = values[0].decode("latin-1").strip()
        return text

    @property
    def key(self) -> str | None:
        """The Idempotency-Key, quoted or bare."""
        text = self._single(b"idempotency-key", "idempotency_key")
        if text is not None and len(text) > 1 and text[0] == text[-1] == '"':
            return text[1:-1]
        return text

    @property
    def attempt(self) -> Attempt | None:
        """The run that writes: ``Satchel-Attempt: RUN_ID/ATTEMPT``."""
        text = self._single(b"satchel-attempt", "attempt")
        if text is None:
            return None
        found = _ATTEMPT.fullmatch(text)
        if found is None:
            raise InvalidInput("must be RUN_ID/ATTEMPT", field="attempt")
        return Attempt(found[1], int(found[2]))

    def version(self, in_body: int | None = None) -> int | None:
        """The version that the caller expects: from If-Match, or from the body."""
        text = self._single(b"if-match", "if_match")
        if text is None or text == "*":
            return in_body
        found = _TAG.fullmatch(text)
        if found is None:
            raise InvalidInput('must be one entity tag as ETag gives it, for example "v17"', field="if_match")
        version = int(found[1])
        if in_body is not None and in_body != version:
            raise InvalidInput("is another version than expected_version in the body", field="if_match")
        self._conditional = True
        return version

    def check_condition(self) -> None:
        """A condition that nobody looks at would hold nothing. ``*`` is none, as everywhere."""
        if b"if-match" not in self.headers or self.route.method == "GET" or self.route.takes_condition:
            return
        if self._single(b"if-match", "if_match") != "*":
            raise InvalidInput("is not taken here: this address acts whatever the version is", field="if_match")

    def write(self, in_body: int | None = None) -> dict[str, Any]:
        """The arguments that every write takes."""
        return {"expected_version": self.version(in_body), "idempotency_key": self.key}

    # -- the body

    async def body(self) -> bytes:
        service = self.service
        body = await read_body(
            self._receive, self.headers, most=service.settings.body, deadlines=service.body_deadlines
        )
        if body:
            check_media_type(self.headers)
            check_text(body)
        return body

    async def fields(self, shape: type[S]) -> S:
        """The body as ``shape``, after a full look at it; an empty one has no members."""
        body = await self.body() or b"{}"
        read = decode_as(decoder_of(shape), body)
        admit_envelope(body)
        return read

    def is_whole(self, *fields: str) -> None:
        """What the errors call by these names is the body itself."""
        self.stands_at(dict.fromkeys(fields, ""))

    def stands_at(self, pointers: Mapping[str, str]) -> None:
        """Where in the body the fields stand that the errors call by these names."""
        self._pointers |= pointers

    @property
    def places(self) -> Places:
        return Places(
            query=frozenset(parameter.name for parameter in self.route.query),
            pointers=self._pointers,
            conditional=self._conditional,
        )

    # -- answers

    def unless_known(self, answer: Answer) -> Answer:
        """304 in its place, when the caller has it already (``If-None-Match``)."""
        known = self.headers.get(b"if-none-match")
        if known is None:
            return answer
        tag = next((value for name, value in answer.headers if name == b"etag"), None)
        tags = {one.strip().removeprefix(b"W/") for one in known.split(b",")}
        if tag is None or not (tag in tags or b"*" in tags):
            return answer
        return Answer(status=304, headers=[(b"etag", tag)])

    # -- addresses

    def location(self, session_id: str, run_id: str | None = None) -> Header:
        """Where it is that was made: by its whole path, under a mount too."""
        path = quote(self.scope.get("root_path") or "") + f"/v1/sessions/{session_id}"
        return b"location", (path if run_id is None else f"{path}/runs/{run_id}").encode()

    def url(self, **changed: str) -> str:
        """This address with other parameters: relative, so that it holds behind a proxy and under a mount."""
        pairs = [(name, text) for name, text in parse_qsl(self.scope["query_string"].decode("ascii"), True)]
        kept = [(name, text) for name, text in pairs if name not in changed]
        return "?" + urlencode([*kept, *changed.items()])


@lru_cache(1024)
def _read_query(query: bytes, route: Route) -> dict[str, Any]:
    """Many requests come with the same few. What is given is handed on, and never written."""
    return read_query(query, route.query)


_DECODERS: dict[Any, Any] = {}


def decoder_of(shape: type[S]) -> msgspec.json.Decoder[S]:
    found: msgspec.json.Decoder[S] | None = _DECODERS.get(shape)
    if found is None:
        found = _DECODERS[shape] = msgspec.json.Decoder(shape)
    return found
