"""Requests to a real server that no honest client makes: a clear problem, in bounded time and memory, and it goes on.

Each goes over a socket, byte for byte, so that no client's library mends it first.
"""

from __future__ import annotations

import contextlib
import json
import re
import socket
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import httpx
import psutil
import pytest

from tests.http.plain import NO_CERTIFICATES
from tests.http.server import Server, client_of, developers_key, serving

pytestmark = pytest.mark.slow

MIB = 1 << 20
QUICK = 5.0  # seconds that an answer may take, on a machine that is busy with other tests
LONG = "x" * 100_000
SECRET = "the-rejected-value"
# What no answer says: SQL, a path of the machine, a stack, a name of ours from inside.
LEAKS = re.compile(
    r"SELECT |INSERT |sqlite|/site-packages|\.py\b|Traceback|File \"|line \d+, in|/tmp/|/dev/shm/|\bmsgspec\b|\bNone\b"
)


class Hostile(NamedTuple):
    server: Server
    key: str
    session: str

    def send(self, data: bytes, *, timeout: float = 20.0) -> bytes:
        """What comes back until the server closes, or the connection breaks off."""
        with socket.create_connection(("127.0.0.1", self.server.port), timeout=timeout) as connection:
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                connection.sendall(data)
            return received_on(connection)

    def request(self, line: str, *headers: str, body: bytes = b"", length: bool = True) -> bytes:
        head = [line, "Host: x", f"Authorization: Bearer {self.key}", "Connection: close", *headers]
        if body and length:
            head.append(f"Content-Length: {len(body)}")
        if body and not any(header.lower().startswith("content-type") for header in headers):
            head.append("Content-Type: application/json")
        return "\r\n".join([*head, "", ""]).encode("latin-1") + body

    def post(self, body: bytes, *headers: str, path: str = "/messages") -> tuple[int, dict[str, Any]]:
        return problem(self.send(self.request(f"POST {self.session}{path} HTTP/1.1", *headers, body=body)))

    def is_well(self) -> None:
        with client_of(self.server, self.key) as client:
            said = client.post(f"{self.session}/messages", json={"content": "it goes on"})
            assert said.status_code == 201, said.text
            assert client.get("/readyz").status_code == 200


def received_on(connection: socket.socket) -> bytes:
    """Until the other side closes, or breaks off."""
    received = b""
    with contextlib.suppress(ConnectionResetError):
        while part := connection.recv(65536):
            received += part
    return received


def problem(answer: bytes) -> tuple[int, dict[str, Any]]:
    """The status and the problem, which is whole and gives nothing away."""
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 "), answer[:300]
    status = int(head.split(b" ")[1])
    assert b"application/problem+json" in head, answer[:1000]
    found: dict[str, Any] = json.loads(body)
    assert {"type", "title", "status", "detail", "code", "retryable", "request_id"} <= set(found)
    assert found["status"] == status
    assert 400 <= status < 500, found
    text = body.decode()
    assert len(text) < 2_000
    assert SECRET not in text
    assert not LEAKS.search(text), text
    return status, found


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hostile]:
    folder = tmp_path_factory.mktemp("hostile")
    (folder / "satchel.toml").write_text("[server]\nheader_seconds = 1\nbody_seconds = 1\nrequests_per_second = 0\n")
    with serving(folder, "--config", str(folder / "satchel.toml"), agents=("--no-agents",)) as server:
        key = developers_key(folder)
        with client_of(server, key) as client:
            session = client.post("/v1/sessions").json()["session_id"]
        yield Hostile(server, key, f"/v1/sessions/{session}")
        assert "Traceback" not in server.log.read_text()
        assert SECRET not in server.log.read_text()


@pytest.fixture(autouse=True)
def it_goes_on(hostile: Hostile) -> Iterator[None]:
    """After each of them: it serves, took no long time over it, and is no larger than before."""
    process = psutil.Process(hostile.server.process.pid)
    before = process.memory_info().rss
    yield
    hostile.is_well()
    assert process.memory_info().rss - before < 64 * MIB


BODIES: dict[str, tuple[bytes, int]] = {
    "20,000 levels": (b'{"content":' + b"[" * 20_000 + b"]" * 20_000 + b"}", 413),
    "20,000 levels of objects": (b'{"content":' + b'{"a":' * 20_000 + b"1" + b"}" * 20_001, 413),
    "20,000 levels that never end": (b'{"content":' + b"[" * 20_000, 413),
    "a million levels": (b"[" * MIB, 422),
    "a number of 5,000 digits": (b'{"content":"x","n":' + b"9" * 5_000 + b"}", 422),
    "a negative number of 5,000 digits": (b'{"content":"x","n":-' + b"9" * 5_000 + b"}", 422),
    "5,000 digits in an exponent": (b'{"content":"x","n":1e' + b"9" * 5_000 + b"}", 422),
    "a number of a million digits": (b'{"content":"x","n":' + b"9" * MIB + b"}", 422),
    "NaN": (b'{"content":"x","n":NaN}', 422),
    "Infinity": (b'{"content":"x","n":Infinity}', 422),
    "a lone surrogate": (b'{"content":"the-rejected-value \\ud800"}', 422),
    "surrogates in the wrong order": (b'{"content":"\\udc00\\ud800"}', 422),
    "duplicate keys": (b'{"content":"the-rejected-value","content":"b"}', 422),
    "duplicate keys in other spellings": (b'{"content":"a","\\u0063ontent":"b"}', 422),
    "100,000 members": (b'{"content":"x",' + b",".join(b'"k%d":1' % n for n in range(100_000)) + b"}", 413),
    "a role of 100,000 characters": (b'{"role":"' + LONG.encode() + b'","content":"x"}', 422),
    "a role that is a value": (b'{"role":"the-rejected-value","content":"x"}', 422),
    "overlong UTF-8": (b'{"content":"\xc0\xaf"}', 400),
    "a surrogate in UTF-8": (b'{"content":"\xed\xa0\x80"}', 400),
    "a key of ours": (b'{"content":"x","seq":"the-rejected-value"}', 422),
    "no JSON": (b"the-rejected-value", 400),
}


@pytest.mark.parametrize("name", BODIES)
def test_a_bad_body_is_a_problem_that_says_what_is_wrong(hostile: Hostile, name: str) -> None:
    body, expected = BODIES[name]
    began = time.monotonic()
    status, found = hostile.post(body)
    assert time.monotonic() - began < QUICK
    assert status == expected, found
    if status != 400:
        assert found["errors"], found


PLACES: dict[str, tuple[str, dict[str, Any]]] = {
    "external_id": ("/v1/sessions", {"external_id": LONG}),
    "user_id": ("/v1/sessions", {"user_id": LONG}),
    "title": ("/v1/sessions", {"title": LONG}),
    "control characters": ("/v1/sessions", {"external_id": f"{SECRET}\r\nSet-Cookie: a=b"}),
    "NUL": ("/v1/sessions", {"external_id": f"{SECRET}\0"}),
    "policy": ("/v1/sessions", {"policy": {"idle": SECRET}}),
    "a policy beyond time": ("/v1/sessions", {"policy": {"idle": 1e300}}),
    "a policy of digits": ("/v1/sessions", {"policy": {"idle": "9" * 5_000}}),
    "session_id": ("/v1/chat", {"session_id": LONG, "message": "hi"}),
    "agent": ("/v1/chat", {"agent": LONG, "message": "hi"}),
    "goal": ("/v1/chat", {"goal": LONG, "message": "hi"}),
    "wait": ("/v1/chat", {"wait": 1e300, "message": "hi"}),
    "an unknown member": ("/v1/chat", {LONG: SECRET, "message": "hi"}),
    "an unknown member further in": ("/v1/sessions", {"policy": {"x\r\ny": SECRET}}),
    "an enumeration": ("/v1/chat", {"on_busy": SECRET, "message": "hi"}),
    "another type": ("/v1/chat", {"stream": SECRET, "message": "hi"}),
    "tool": ("/tool-history", {"tool": LONG}),
    "tool_call_id": ("/tool-history", {"tool": "t", "tool_call_id": LONG}),
    "goal of a run": ("/runs", {"goal": LONG}),
    "agent of a run": ("/runs", {"agent": LONG}),
    "lease": ("/runs", {"lease": 1e300, "start": True}),
    "attempts": ("/runs", {"max_attempts": 2**64}),
    "version": ("/messages", {"message": {"content": "x"}, "expected_version": 2**70}),
    "format": ("/messages", {"message": {"content": "x"}, "format": LONG}),
}


@pytest.mark.parametrize("name", PLACES)
def test_a_bad_member_is_named_and_not_repeated(hostile: Hostile, name: str) -> None:
    path, body = PLACES[name]
    url = path if path.startswith("/v1") else hostile.session + path
    raw = json.dumps(body).encode()
    status, found = problem(hostile.send(hostile.request(f"POST {url} HTTP/1.1", body=raw)))
    assert status in (404, 413, 422), found
    assert LONG[:100] not in json.dumps(found)


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        (f"Idempotency-Key: {'k' * 256}", 422),
        ("Idempotency-Key: ", 422),
        (f"Idempotency-Key: {SECRET}\x7f", 400),
        ("Idempotency-Key: caf\xe9", 422),
        (f"If-Match: {SECRET}", 422),
        (f'If-Match: "v{"9" * 5_000}"', 422),
        (f"Satchel-Attempt: {SECRET}", 422),
        (f"Satchel-Attempt: run_x/{'9' * 5_000}", 422),
        ("Satchel-Acting-For: bob\r\nSatchel-Acting-For: ada", 422),
        ("Idempotency-Key: a\r\nIdempotency-Key: b", 422),
        (f"Content-Type: {SECRET}/x", 415),
        ("Content-Type: text/html", 415),
        ("Content-Type: application/json; charset=utf-7", 415),
        ("Content-Type: multipart/form-data; boundary=x", 415),
        ("Content-Encoding: gzip", 415),
        ("Authorization: Bearer other", 401),  # a second one
        (f"X-Request-Id: {SECRET}\tx", 201),
    ],
)
def test_a_bad_header_is_named_and_not_repeated(hostile: Hostile, header: str, expected: int) -> None:
    answer = hostile.send(hostile.request(f"POST {hostile.session}/messages HTTP/1.1", header, body=b'{"content":"x"}'))
    if expected == 201:
        assert answer.startswith(b"HTTP/1.1 201 ")
        assert SECRET.encode() not in answer.partition(b"\r\n\r\n")[0]
        return
    status, found = problem(answer)
    assert status == expected, found


@pytest.mark.parametrize(
    "path",
    [
        "/v1/sessions/..%2f..%2fetc%2fpasswd",
        "/v1/sessions/%2e%2e/%2e%2e/etc/passwd",
        "/v1/sessions/../../etc/passwd",
        "/v1//sessions//x",
        "/v1/sessions/%00",
        "/v1/sessions/a%00b/messages",
        "/v1/sessions/%252e%252e%252f",
        "/v1/sessions/%c0%ae%c0%ae/",
        "/v1/sessions/%ff%fe",
        "/v1/sessions/%0d%0aSet-Cookie:%20a=b",
        "/v1/sessions/%",
        "/v1/sessions/%zz",
        "/v1/sessions/;x=y",
        "/v1/sessions/x?limit=%00",
        "/v1/sessions?limit=" + "9" * 5_000,
        "/v1/sessions?cursor=" + SECRET,
        "/v1/sessions?cursor=%00%ff",
        "/v1/sessions?%ff=1",
        f"/v1/sessions?%0d%0aSet-Cookie:a={SECRET}",
        f"/v1/sessions?{LONG[:5_000]}={SECRET}",
        "/v1/sessions?" + "&".join("a=1" for _ in range(1000)),
        "/v1/sessions?updated_after=" + SECRET,
        "/v1/sessions?updated_after=9999-12-31T23:59:59-23:59",
        "/v1/sessions?metadata.a=" + "[" * 5_000,
        "/v1/sessions/" + LONG,
        "/v1/sessions?title=" + LONG,
        "/static/../../../etc/passwd",
        "http://elsewhere/v1/sessions/x",
        "//v1/sessions/x",
        "/metrics/..%2fv1/sessions",
        "*",
    ],
)
def test_a_tricky_path_leads_nowhere(hostile: Hostile, path: str) -> None:
    began = time.monotonic()
    answer = hostile.send(hostile.request(f"GET {path} HTTP/1.1"))
    assert time.monotonic() - began < QUICK
    assert b"root:" not in answer
    assert b"\nset-cookie" not in answer.lower()
    if answer.startswith(b"HTTP/1.1 200 "):  # one that means what it says, and finds nothing
        assert json.loads(answer.partition(b"\r\n\r\n")[2])["items"] == []
        return
    problem(answer)


def test_an_id_of_100_000_characters_is_unknown_or_too_long(hostile: Hostile) -> None:
    for path in (f"/v1/sessions/{LONG}", f"{hostile.session}/runs/{LONG}", f"{hostile.session}/events?run_id={LONG}"):
        status, found = problem(hostile.send(hostile.request(f"GET {path} HTTP/1.1")))
        assert status in (414, 431), found
    for size in (129, 4_000):
        for path in (f"/v1/sessions/{'x' * size}", f"{hostile.session}/runs/{'x' * size}"):
            assert problem(hostile.send(hostile.request(f"GET {path} HTTP/1.1")))[0] == 404


@pytest.mark.parametrize(
    "head",
    [
        "Content-Length: 5\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: chunked\r\nContent-Length: 5",
        "Content-Length: 5\r\nContent-Length: 6",
        "Content-Length: -1",
        "Content-Length: +5",
        "Content-Length: 0x5",
        "Content-Length: 5, 6",
        "Content-Length: 99999999999999999999999",
        "Transfer-Encoding: identity, chunked, x",
        "Transfer-Encoding: xchunked",
        "Transfer-Encoding : chunked",
        "Bad Header: x",
        "X-A: b\r\n folded: c",
        "X-A: b\x00c",
        "X-A: b\rc",
        "X-A: b\nContent-Length: 5",
    ],
)
def test_a_request_that_two_readers_would_read_differently_is_refused_once(hostile: Hostile, head: str) -> None:
    """Nothing after it on the connection is taken for a request."""
    with client_of(hostile.server, hostile.key) as client:
        before = client.get(hostile.session).json()["version"]
    smuggled = hostile.request(f"DELETE {hostile.session} HTTP/1.1")
    first = (
        f"POST {hostile.session}/messages HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {hostile.key}\r\n{head}\r\n\r\n"
    )
    answer = hostile.send(first.encode("latin-1") + b"0\r\n\r\n" + smuggled)
    assert len(re.findall(rb"HTTP/1\.1 \d{3} ", answer)) <= 1, answer
    if answer:
        status, found = problem(answer)
        assert status in (400, 408, 413), found
    with client_of(hostile.server, hostile.key) as client:
        session = client.get(hostile.session).json()
    assert (session["status"], session["version"]) == ("ACTIVE", before)


@pytest.mark.parametrize(
    "chunk", [b"zz\r\nxx\r\n", b"5\r\nab", b"-1\r\n", b"ffffffffffffffffff\r\n", b"5;" + b"x" * 70_000]
)
def test_broken_chunks_are_given_up(hostile: Hostile, chunk: bytes) -> None:
    head = hostile.request(f"POST {hostile.session}/messages HTTP/1.1", "Transfer-Encoding: chunked")
    began = time.monotonic()
    answer = hostile.send(head + chunk)
    assert time.monotonic() - began < QUICK
    if answer:
        problem(answer)


def test_10_mib_in_chunks_without_a_length_are_refused_at_the_limit(hostile: Hostile) -> None:
    chunk = b"%x\r\n" % MIB + b" " * MIB + b"\r\n"
    for path in ("/messages", "/runs", "/working-memory"):
        method = "PATCH" if path == "/working-memory" else "POST"
        head = hostile.request(f"{method} {hostile.session}{path} HTTP/1.1", "Transfer-Encoding: chunked")
        answer = hostile.send(head + chunk * 10 + b"0\r\n\r\n")
        if answer:  # a reset may overtake it
            status, found = problem(answer)
            assert (status, found["setting"]) == (413, "server.body")


def test_a_length_beyond_the_limit_is_refused_before_the_body_comes(hostile: Hostile) -> None:
    head = hostile.request(f"POST {hostile.session}/messages HTTP/1.1", f"Content-Length: {10 * MIB}")
    status, found = problem(hostile.send(head))
    assert (status, found["setting"]) == (413, "server.body")


def test_slow_bodies_and_slow_heads_are_given_up_while_others_are_served(hostile: Hostile) -> None:
    head = hostile.request(f"POST {hostile.session}/messages HTTP/1.1", "Content-Length: 1000")
    slow = [socket.create_connection(("127.0.0.1", hostile.server.port), timeout=20) for _ in range(40)]
    began = time.monotonic()
    try:
        for number, connection in enumerate(slow):
            connection.sendall(head + b"{" if number % 2 else b"GET /livez HTTP/1.1\r\nX-")
        for _ in range(5):
            hostile.is_well()
            for number, connection in enumerate(slow):
                with contextlib.suppress(OSError):
                    connection.sendall(b" " if number % 2 else b"a")
        answers = [received_on(connection) for connection in slow]
    finally:
        for connection in slow:
            connection.close()
    assert time.monotonic() - began < 3 * QUICK
    for number, answer in enumerate(answers):
        if number % 2:
            assert problem(answer)[0] == 408
        else:
            assert answer == b""


def test_who_leaves_in_the_middle_leaves_nothing(hostile: Hostile) -> None:
    with client_of(hostile.server, hostile.key) as client:
        before = client.get(hostile.session).json()["version"]
    body = b'{"content":"half"}'
    for cut in range(1, len(body)):
        head = hostile.request(f"POST {hostile.session}/messages HTTP/1.1", f"Content-Length: {len(body)}")
        with socket.create_connection(("127.0.0.1", hostile.server.port), timeout=20) as connection:
            connection.sendall(head + body[:cut])
    with client_of(hostile.server, hostile.key) as client:
        assert client.get(hostile.session).json()["version"] == before


def test_other_methods_and_upgrades_are_refused(hostile: Hostile) -> None:
    for method in ("PUT", "TRACE", "PROPFIND", "LINK", "PATCH"):
        status, _ = problem(hostile.send(hostile.request(f"{method} {hostile.session}/messages HTTP/1.1")))
        assert status in (400, 405), method
    upgrade = (
        "Upgrade: websocket",
        "Connection: Upgrade",
        "Sec-WebSocket-Version: 13",
        "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==",
    )
    answer = hostile.send(hostile.request(f"GET {hostile.session} HTTP/1.1", *upgrade))
    assert not answer.startswith(b"HTTP/1.1 101 ")
    with httpx.Client(verify=NO_CERTIFICATES, trust_env=False) as client:
        assert client.get(f"{hostile.server.url}/livez").status_code == 200
