"""A request's head is bounded in bytes, also where it never ends and comes in small pieces."""

from __future__ import annotations

import asyncio
import json

import pytest

import satchel
from tests.client.served import served

HEADER_BYTES = 64 * 1024
SLACK = 16 * 1024 * 1024  # what lies in sockets, where the server is slow to read, and one read


@pytest.mark.parametrize(
    "begin", [b"GET / HTTP/1.1\r\nHost: x\r\nX: ", b"GET /", b"GET / HTTP/1.1\r\n", b"GET / HTTP/1.1\r\nHost: x\r\nX"]
)
@pytest.mark.parametrize("piece", [b"a" * 1000, b"x: y\r\n" * 100])
@pytest.mark.parametrize("second", [False, True])
async def test_a_head_that_never_ends_is_refused_before_its_time(
    begin: bytes, piece: bytes, second: bool
) -> None:  # pytest gives it
    async with satchel.open("memory:") as store, served(store) as url:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
        if second:
            writer.write(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
            assert (await reader.readuntil(b"\r\n")).split()[1] == b"200"
        writer.write(begin)
        sent = 0
        while sent < 4 * SLACK and not writer.is_closing():
            try:
                writer.write(piece)
                await writer.drain()
            except ConnectionError:
                break
            sent += len(piece)
        assert sent < HEADER_BYTES + SLACK
        answer = await _rest(reader)
        writer.close()
    if answer:  # a client that goes on writing may find the answer gone
        status = answer.rpartition(b"HTTP/1.1 ")[2].split()[0]
        assert status in (b"400", b"431")
        if status == b"431":
            assert json.loads(answer.rpartition(b"\r\n\r\n")[2])["code"] == "headers_too_large"


async def test_a_long_body_before_a_head_is_no_long_head() -> None:
    async with satchel.open("memory:") as store, served(store) as url:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
        body = b"x" * (3 * HEADER_BYTES)
        post = b"POST /livez HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body)
        writer.write(post + body + b"GET /livez HTTP/1.1\r\nHost: x\r\nX: ")
        await asyncio.sleep(0.05)
        writer.write(b"y" * 1000)
        await asyncio.sleep(0.05)
        writer.write(b"\r\nConnection: close\r\n\r\n")
        answers = await _rest(reader)
        writer.close()
        assert answers.count(b"HTTP/1.1 ") == 2
        assert b"HTTP/1.1 200" in answers
        assert b"HTTP/1.1 431" not in answers


async def _rest(reader: asyncio.StreamReader) -> bytes:
    found = b""
    try:
        while piece := await asyncio.wait_for(reader.read(65536), 5):
            found += piece
    except ConnectionError:
        pass
    return found
