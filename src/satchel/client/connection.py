"""One service: requests to it, each tried until it is answered or the caller's patience ends."""

from __future__ import annotations

import asyncio
import contextlib
import random
import re
import ssl
import uuid
from collections.abc import AsyncIterator, Mapping
from datetime import datetime
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, NoReturn
from urllib.parse import quote, urlencode, urlsplit

import msgspec

from satchel.access import checked_attempt, checked_whole
from satchel.client.refusals import About, Refusal, refusal_of
from satchel.client.tracing import trace_headers
from satchel.domain.idempotency import checked_key
from satchel.domain.json_text import kind_of
from satchel.domain.limits import DEFAULT_LIMITS, Limits
from satchel.domain.run import Attempt
from satchel.errors import ExtraMissing, InvalidInput, OutcomeUnknown, SatchelError, StoreMisused, StoreUnavailable

if TYPE_CHECKING:
    import httpx

    from satchel.runs import RunManager
    from satchel.sessions import SessionManager

FIRST_PAUSE = 0.1  # seconds before the second try; doubled each time
LONGEST_PAUSE = 5.0
TRIES = 12  # of one call
MOST_ATTEMPTS = 10**10 - 1  # that a service reads; no run has so many
SILENCE = 60.0  # seconds without a heartbeat after which a stream is taken for cut

_CLOSED = "this connection is closed"

Method = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]

_PLAIN = re.compile(r"[!-~]+")
_encode = msgspec.json.Encoder().encode


class Reply(msgspec.Struct, frozen=True):
    """``replayed``: an earlier call with the caller's own key was answered so before. ``hint``: what else the service says."""

    status: int
    body: bytes
    replayed: bool
    hint: str | None = None


class Connection:
    """``sessions`` and ``runs``: the managers of whom the key belongs to. See satchel.connect."""

    def __init__(
        self,
        url: str,
        key: str,
        *,
        acting_for: str | None,
        limits: Limits = DEFAULT_LIMITS,
        timeout: float,
        patience: float,
        http: httpx.AsyncClient | None,
    ) -> None:
        from satchel.client.runs import RemoteRunManager
        from satchel.client.sessions import RemoteSessionManager

        self.url = checked_url(url)
        self.limits = limits
        self.patience = checked_seconds(patience, field="patience")
        self._timeout = checked_seconds(timeout, field="timeout")
        self._headers = _identity(key, acting_for)
        self._given = http
        self._http = http
        self._is_closed = False
        self._under_way: set[asyncio.Timeout] = set()  # of each request, until it is answered, or its stream begins
        self._at_rest = asyncio.Event()
        load_httpx()
        runs = RemoteRunManager(self)
        self.runs: RunManager = runs
        self.sessions: SessionManager = RemoteSessionManager(self, runs)

    async def open(self) -> Connection:
        """Nothing is sent: whether the service is there, the first call says."""
        return self

    async def close(self) -> None:
        """What is under way is broken off: reads hear StoreMisused, and writes that may be done OutcomeUnknown. Twice is fine."""
        self._is_closed = True
        try:
            await self._break_off()
        finally:
            http, self._http = self._http, None
            if http is not None and http is not self._given:
                await http.aclose()

    async def _break_off(self) -> None:
        """Whoever is still connecting would leave behind what he gets: the transport closes only what is connected by then."""
        now = asyncio.get_running_loop().time()
        for scope in tuple(self._under_way):
            if not scope.expired():
                scope.reschedule(now)
        while self._under_way:
            self._at_rest.clear()
            await self._at_rest.wait()

    @contextlib.asynccontextmanager
    async def _trying(self, seconds: float | None) -> AsyncIterator[None]:
        """Raises TimeoutError after so many ``seconds``, and when the connection is closed meanwhile."""
        async with asyncio.timeout(seconds) as scope:
            self._under_way.add(scope)
            try:
                yield
            finally:
                self._under_way.discard(scope)
                self._at_rest.set()

    async def __aenter__(self) -> Connection:
        return await self.open()

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    def _client(self) -> httpx.AsyncClient:
        if self._is_closed:
            raise StoreMisused(_CLOSED)
        if self._http is None:
            httpx = load_httpx()
            # A stream takes a connection for as long as it lasts: how many there are is not for us to bound.
            pool = httpx.Limits(max_connections=None, max_keepalive_connections=32)
            self._http = httpx.AsyncClient(verify=_certificates(), timeout=self._timeout, limits=pool)
        return self._http

    # -- requests

    async def read(self, path: str, *, query: Mapping[str, Any] | None = None, about: About) -> Reply:
        return await self._exchange("GET", path, query=query, headers={}, content=None, about=about)

    async def write(
        self,
        method: Method,
        path: str,
        body: Mapping[str, Any] | bytes | None = None,
        *,
        about: About,
        query: Mapping[str, Any] | None = None,
        attempt: Attempt | None = None,
        expected_version: int | None = None,
        idempotency_key: str | None = None,
        is_keyed: bool = True,
    ) -> Reply:
        """Done once, however often it is sent: under the caller's key, or one that is drawn here, unless ``is_keyed`` is false
        for what may be repeated as it is. ``body``: JSON, or members, in which None is left out."""
        headers: dict[str, str] = {}
        if expected_version is not None:
            checked_whole(expected_version, field="expected_version")
            headers["If-Match"] = f'"v{expected_version}"'
        if attempt is not None:
            checked_attempt(attempt)
            run_id = attempt.run_id if is_plain_id(attempt.run_id) else "unknown"
            number = attempt.attempt if 0 <= attempt.attempt < MOST_ATTEMPTS else MOST_ATTEMPTS
            headers["Satchel-Attempt"] = f"{run_id}/{number}"
        key: str | None = None
        if idempotency_key is not None:
            key = checked_key(idempotency_key, limits=self.limits)
        elif is_keyed:
            key = f"client-{uuid.uuid4().hex}"
        if key is not None:
            headers["Idempotency-Key"] = f'"{key}"'
        content: bytes | None = None
        if body is not None:
            if isinstance(body, bytes):
                content = body
            else:
                content = _encode({name: value for name, value in body.items() if value is not None})
            headers["Content-Type"] = "application/json"
        try:
            reply = await self._exchange(method, path, query=query, headers=headers, content=content, about=about)
        except OutcomeUnknown as unknown:
            if key is not None:
                unknown.idempotency_key = key
                unknown.add_note(f"its idempotency key: {key}")
            raise
        if (
            idempotency_key is None and is_keyed
        ):  # nobody used that key before: what was answered twice is the first answer
            return msgspec.structs.replace(reply, replayed=False)
        return reply

    async def _exchange(
        self,
        method: Method,
        path: str,
        *,
        query: Mapping[str, Any] | None,
        headers: Mapping[str, str],
        content: bytes | None,
        about: About,
    ) -> Reply:
        httpx = load_httpx()
        address = self.address(path, query)
        tries = Tries(self.patience)
        is_write = method != "GET"
        may_be_done = False
        while True:
            refusal: Refusal | None = None
            if may_be_done and self._is_closed:
                raise OutcomeUnknown(_CLOSED)
            client = self._client()
            try:
                async with self._trying(self._timeout):
                    reply = await client.request(
                        method, address, headers={**self._headers, **trace_headers(), **headers}, content=content
                    )
            except (httpx.LocalProtocolError, httpx.UnsupportedProtocol):
                raise  # nothing was sent, and another try would be no better
            except (httpx.TransportError, TimeoutError) as broken:
                trouble = name_of(broken)
                cause: Exception = broken
                # What was never connected was never sent.
                may_be_done |= is_write and not isinstance(broken, (httpx.ConnectError, httpx.ConnectTimeout))
            else:
                if reply.status_code < 300:
                    replayed = reply.headers.get("idempotent-replayed") == "true"
                    return Reply(reply.status_code, reply.content, replayed, reply.headers.get("satchel-hint"))
                refusal = refusal_of(reply.status_code, reply.headers, reply.content)
                may_be_done |= is_write and refusal.leaves_unknown
                trouble = f"it answered {reply.status_code} {refusal.code}"
                cause = refusal.error(about)
                if not refusal.is_worth_waiting:
                    if may_be_done and refusal.is_before_the_key:
                        self._give_up(trouble, cause, may_be_done=True)
                    raise cause
            if not self._is_closed and not await tries.next(None if refusal is None else refusal.retry_after):
                self._give_up(trouble, cause, may_be_done=may_be_done)

    @staticmethod
    def _give_up(trouble: str, cause: Exception, *, may_be_done: bool) -> NoReturn:
        """What the transport raised says no more than ``trouble`` does, in ninety lines of its own: it is left out."""
        refused = cause if isinstance(cause, SatchelError) else None
        if may_be_done:
            raise OutcomeUnknown(trouble) from refused
        if refused is not None:
            raise refused
        raise StoreUnavailable(f"the service cannot be reached: {trouble}") from None

    @contextlib.asynccontextmanager
    async def stream(
        self, path: str, *, query: Mapping[str, Any], headers: Mapping[str, str], about: About
    ) -> AsyncIterator[AsyncIterator[bytes] | None]:
        """What a stream says, as it comes; None: there is nothing more to follow. Raises Refused, StoreMisused, and as httpx does."""
        httpx = load_httpx()
        timeout = httpx.Timeout(self._timeout, read=max(SILENCE, self._timeout))
        sent = {**self._headers, **trace_headers(), **headers, "Accept": "text/event-stream"}
        client = self._client()
        request = client.build_request("GET", self.address(path, query), headers=sent, timeout=timeout)
        try:
            async with self._trying(None):
                reply = await client.send(request, stream=True)
        except TimeoutError:
            raise StoreMisused(_CLOSED) from None
        async with contextlib.aclosing(reply):
            if reply.status_code == 204:
                yield None
                return
            if reply.status_code != 200:
                await reply.aread()
                raise Refused(refusal_of(reply.status_code, reply.headers, reply.content))
            yield reply.aiter_raw()

    def address(self, path: str, query: Mapping[str, Any] | None) -> str:
        pairs = [(name, _text(value)) for name, value in (query or {}).items() if value is not None]
        return self.url + path + ("?" + urlencode(pairs) if pairs else "")


class Refused(Exception):
    """A stream was not begun."""

    def __init__(self, refusal: Refusal) -> None:
        self.refusal = refusal
        super().__init__(refusal.code)


class Tries:
    """How often something is tried again, and how long is waited before: longer each time, and never at the same moment as
    others that were cut off with us."""

    def __init__(self, patience: float, *, most: int = TRIES) -> None:
        self._left = most - 1
        self._pause = FIRST_PAUSE
        self._patience = patience
        self._until = asyncio.get_running_loop().time() + patience

    async def next(self, retry_after: float | None) -> bool:
        """After a pause. False: enough was tried."""
        pause = self._pause * random.uniform(0.5, 1.0)  # noqa: S311  # no secret
        self._pause = min(2 * self._pause, LONGEST_PAUSE)
        if retry_after is not None:
            pause = max(pause, retry_after * random.uniform(1.0, 1.25))  # noqa: S311  # no secret
        if self._left <= 0 or asyncio.get_running_loop().time() + pause > self._until:
            return False
        self._left -= 1
        await asyncio.sleep(pause)
        return True


@cache
def _certificates() -> ssl.SSLContext:
    """Those that this machine trusts; read once, for it takes a while."""
    context: ssl.SSLContext = load_httpx().create_ssl_context()
    return context


def load_httpx() -> Any:
    try:
        import httpx
    except ImportError as missing:
        raise ExtraMissing("client", action="satchel.connect") from missing
    return httpx


def checked_url(url: object) -> str:
    """Without a slash at its end. Raises InvalidInput."""
    if type(url) is not str:
        raise InvalidInput(f"must be text, not {kind_of(url)}", field="url")
    wrong = InvalidInput("must be the address of a service, for example http://127.0.0.1:8321", field="url")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise wrong from None
    if parts.scheme not in ("http", "https") or parts.hostname is None or port == 0 or not _PLAIN.fullmatch(url):
        raise wrong
    if parts.username is not None or parts.query or parts.fragment:
        raise InvalidInput("must hold no user, query or fragment; the key is an argument of its own", field="url")
    return url.rstrip("/")


def checked_seconds(value: float, *, field: str) -> float:
    if type(value) not in (int, float) or not 0 < value <= 86_400:
        raise InvalidInput("must be seconds, more than 0 and at most 86400", field=field)
    return float(value)


def _identity(key: object, acting_for: object) -> dict[str, Any]:
    """The headers of every request. The key is never part of an error."""
    if type(key) is not str or not _PLAIN.fullmatch(key):
        raise InvalidInput("must be an API key or a token: visible ASCII characters", field="key")
    headers: dict[str, Any] = {"Authorization": f"Bearer {key}", "Accept-Encoding": "identity"}
    if acting_for is not None:
        if type(acting_for) is not str or not acting_for or not acting_for.isprintable():
            raise InvalidInput("must be the name of a user", field="acting_for")
        headers["Satchel-Acting-For"] = acting_for.encode()
    return headers


def part(name: str) -> str:
    """One segment of an address."""
    return quote(name, safe="")


def is_plain_id(name: str) -> bool:
    """Whether it is one segment of an address, whoever reads it on the way."""
    return len(name) <= 128 and name.isascii() and name.replace("_", "").replace("-", "").isalnum()


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime):
        return value.isoformat()
    return str(value)


def name_of(broken: Exception) -> str:
    said = str(broken)
    return f"{type(broken).__name__}: {said}" if said else type(broken).__name__
