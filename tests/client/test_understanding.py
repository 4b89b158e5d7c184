"""An address at which something else answers: a portal's page, another program, a service of another version."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import httpx
import pytest

import satchel
from satchel import ServiceRefused
from satchel.client import frames
from satchel.client.connection import Connection
from tests.http.plain import NO_CERTIFICATES

ANSWERS = (b"", b"<html>Sign in</html>", b"{}", b"[]", b"null", b"17", b'{"items":[{}]}', b"\xff", b"[" * 100_000)
CALLS: dict[str, Callable[[Connection], Awaitable[object]]] = {
    "session": lambda server: server.sessions.get_session("sess_1"),
    "create": lambda server: server.sessions.create_session(),
    "list": lambda server: server.sessions.list_sessions(),
    "append": lambda server: server.sessions.append_message("sess_1", {"role": "user", "content": "x"}),
    "messages": lambda server: server.sessions.messages("sess_1"),
    "events": lambda server: server.sessions.events("sess_1"),
    "memory": lambda server: server.sessions.get_working_memory("sess_1"),
    "tools": lambda server: server.sessions.tool_history("sess_1"),
    "context": lambda server: server.sessions.context("sess_1", max_tokens=100),
    "run": lambda server: server.runs.get_run("sess_1", "run_1"),
    "add run": lambda server: server.runs.add_run("sess_1"),
}


def answering(content: bytes, **options: Any) -> Connection:
    async def pieces() -> AsyncIterator[bytes]:
        yield content

    transport = httpx.MockTransport(lambda request: httpx.Response(200, content=pieces()))  # noqa: ARG005  # whatever is asked
    return satchel.connect(
        "http://there", "key", http=httpx.AsyncClient(verify=NO_CERTIFICATES, transport=transport), **options
    )


@pytest.mark.parametrize("call", CALLS)
async def test_what_is_no_answer_of_a_service_is_refused_by_name(call: str) -> None:
    for content in ANSWERS:
        async with answering(content) as server:
            with pytest.raises(ServiceRefused) as refused:
                await CALLS[call](server)
            assert "Sign in" not in str(refused.value)
            assert (refused.value.status, refused.value.problem) == (200, "http")


@pytest.mark.parametrize(
    "content",
    [
        b"event: message\ndata: <html>\n\n",
        b'event: message\ndata: {"seq":1}\n\n',
        b"event: text_delta\ndata: {}\n\n",
        b"event: end\ndata: 17\n\n",
        b"event: \xff\ndata: {}\n\n",
    ],
)
async def test_what_is_no_stream_of_a_service_is_refused_by_name(content: bytes) -> None:
    async with answering(content) as server:
        with pytest.raises(ServiceRefused):
            async for _ in server.sessions.follow("sess_1", after=0):
                pass


async def test_a_line_without_an_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "LONGEST_LINE", 1 << 16)
    async with answering(b"data: " + b"x" * (1 << 20)) as server:
        with pytest.raises(ServiceRefused):
            async for _ in server.sessions.follow("sess_1", after=0):
                pass
