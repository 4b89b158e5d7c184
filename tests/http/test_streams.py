"""Streams in this process: a reader that is too slow, one that leaves, a server that stops."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from satchel import SessionManager
from satchel.http import streams
from satchel.http.app import app_of
from satchel.http.streams import Lagged, Pipe
from tests.http.door import Door, open_door


class Reader:
    """The other end of a connection: takes what is sent while it ``is_reading``."""

    def __init__(self) -> None:
        self.sent = b""
        self.status = 0
        self.ended = False
        self.reading = asyncio.Event()
        self.reading.set()
        self.left = asyncio.Event()
        self.came = asyncio.Event()
        self._asked = False

    async def receive(self) -> dict[str, Any]:
        if not self._asked:
            self._asked = True
            return {"type": "http.request", "body": b"", "more_body": False}
        await self.left.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        await self.reading.wait()
        if message["type"] == "http.response.start":
            self.status = message["status"]
            return
        self.sent += message.get("body", b"")
        self.came.set()
        self.ended = not message.get("more_body", False)

    async def until(self, text: bytes) -> None:
        async with asyncio.timeout(10):
            while text not in self.sent:
                self.came.clear()
                await self.came.wait()


@asynccontextmanager
async def following(door: Door, url: str, **headers: str) -> AsyncIterator[tuple[Reader, asyncio.Task[None]]]:
    path, _, query = url.partition("?")
    sent = {"authorization": f"Bearer {door.keys['ada']}", "accept": "text/event-stream"} | headers
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "GET",
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "headers": [(name.encode(), value.encode()) for name, value in sent.items()],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 2),
        "scheme": "http",
    }
    reader = Reader()
    task = asyncio.create_task(_serve(door, scope, reader))
    try:
        yield reader, task
    finally:
        reader.reading.set()
        reader.left.set()
        async with asyncio.timeout(10):
            await task


async def _serve(door: Door, scope: dict[str, Any], reader: Reader) -> None:
    await app_of(door.service)(scope, reader.receive, reader.send)


async def test_a_reader_that_is_too_slow_is_told_and_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "PATIENCE", 0.1)
    async with open_door(stream_bytes=2_000) as door:
        session = await door.session()
        async with following(door, f"{session}/events") as (reader, task):
            await reader.until(b"retry")
            reader.reading.clear()
            for number in range(30):
                await door.say(session, f"{number} " + "x" * 200)
            await asyncio.sleep(0.4)
            reader.reading.set()
            await asyncio.wait_for(asyncio.shield(task), 10)
        assert reader.sent.endswith(b'event: end\ndata: {"reason":"lagged"}\n\n')
        assert reader.ended
        seen = [int(line[4:]) for line in reader.sent.split(b"\n") if line.startswith(b"id: ")]
        assert seen == list(range(1, len(seen) + 1))
        assert len(seen) < 30

        async with following(door, f"{session}/events", **{"last-event-id": str(seen[-1])}) as (reader, _):
            await reader.until(b"id: 30\n")
        again = [int(line[4:]) for line in reader.sent.split(b"\n") if line.startswith(b"id: ")]
        assert seen + again == list(range(1, 31))


async def test_a_reader_that_never_reads_again_is_left_and_keeps_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "PATIENCE", 0.1)
    monkeypatch.setattr(streams, "LAST_WORD", 0.1)
    async with open_door(stream_bytes=2_000, streams_per_user=1) as door:
        session = await door.session()
        async with following(door, f"{session}/events") as (reader, task):
            await reader.until(b"retry")
            reader.reading.clear()
            for number in range(30):
                await door.say(session, f"{number} " + "x" * 200)
            await asyncio.wait_for(asyncio.shield(task), 10)
            assert not reader.ended
            async with following(door, f"{session}/events") as (again, _):  # its place is free
                await again.until(b"id: 30\n")


async def test_a_reader_that_leaves_leaves_nothing_behind(door: Door) -> None:
    session = await door.session()
    async with following(door, f"{session}/events") as (reader, task):
        await reader.until(b"retry")
        told = (await door("GET", "/metrics")).text
        assert "satchel_followers 1.0" in told
        reader.left.set()
        await asyncio.wait_for(asyncio.shield(task), 10)
    assert "satchel_followers 0.0" in (await door("GET", "/metrics")).text


async def test_what_a_reader_was_sent_is_free_as_soon_as_it_has_left(door: Door) -> None:
    """Not when the garbage collector next looks: until then there would be megabytes of it."""
    session = await door.session()
    gc.collect()
    gc.disable()
    try:
        async with following(door, f"{session}/events") as (reader, task):
            await door.say(session, "x" * 50_000)
            await reader.until(b"id: 1\n")
            assert [one for one in gc.get_objects() if isinstance(one, Pipe)]
            reader.left.set()
            await asyncio.wait_for(asyncio.shield(task), 10)
        del reader, task
        assert not [one for one in gc.get_objects() if isinstance(one, Pipe)]
    finally:
        gc.enable()


async def test_a_stream_that_breaks_off_by_a_fault_of_ours_is_in_the_log(
    door: Door, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(*_: Any, **__: Any) -> AsyncIterator[Any]:
        for nothing in (0,):
            yield 1 / nothing

    session = await door.session()
    monkeypatch.setattr(SessionManager, "follow", broken)
    async with following(door, f"{session}/events") as (reader, task):
        await asyncio.wait_for(asyncio.shield(task), 10)
        assert reader.ended
    (record,) = [record for record in caplog.records if record.levelname == "ERROR"]
    assert record.exc_info is not None
    assert record.exc_info[0] is ZeroDivisionError


async def test_a_server_that_stops_ends_its_streams_and_begins_none(door: Door) -> None:
    session = await door.session()
    async with following(door, f"{session}/events") as (reader, task):
        await reader.until(b"retry")
        door.service.drain()
        await asyncio.wait_for(asyncio.shield(task), 10)
        assert reader.ended
        assert b"event: end" not in reader.sent
    refused = await door("GET", f"{session}/events", headers={"Accept": "text/event-stream"})
    assert (refused.status_code, refused.json()["code"], refused.headers["retry-after"]) == (503, "draining", "1")


async def test_a_session_that_is_given_away_is_gone_for_its_follower(door: Door) -> None:
    session = await door.session()
    async with following(door, f"{session}/events") as (reader, task):
        await reader.until(b"retry")
        await door("POST", f"{session}/transfer", who="admin", json={"user_id": "bob"})
        await asyncio.wait_for(asyncio.shield(task), 10)
    assert b"session_transferred" not in reader.sent
    assert reader.sent.endswith(b'event: end\ndata: {"reason":"gone"}\n\n')


async def test_what_a_stream_cannot_take_is_refused_before_it_begins(door: Door) -> None:
    session = await door.session()
    sse = {"Accept": "text/event-stream"}
    for query, status in (("limit=5", 422), ("order=desc", 422), ("run_id=run_x", 404), ("after=x", 422)):
        assert (await door("GET", f"{session}/events?{query}", headers=sse)).status_code == status, query
    assert (await door("GET", f"{session}/events", headers=sse | {"Last-Event-ID": "x"})).status_code == 422
    assert (await door("GET", f"{session}/events", who="bob", headers=sse)).status_code == 404


async def test_a_pipe_holds_its_bytes_or_one_frame(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "PATIENCE", 0.05)
    pipe = Pipe(10)
    await pipe.put(b"x" * 50)
    with pytest.raises(Lagged):
        await pipe.put(b"y")
    putting = asyncio.create_task(pipe.put(b"z" * 4))
    await asyncio.sleep(0)
    assert await pipe.take(1) == b"x" * 50
    await putting
    assert await pipe.take(1) == b"z" * 4
    assert await pipe.take(0.01) == b""
    pipe.push(b"last")
    pipe.close()
    assert await pipe.take(1) == b"last"
    assert await pipe.take(1) is None


async def test_a_chat_whose_stream_is_refused_has_said_nothing() -> None:
    async with open_door(agents=("shop",), streams_per_user=1) as door:
        session = await door.session()
        said = {"session_id": session.rpartition("/")[2], "message": "pay the bill", "stream": True}
        async with following(door, f"{session}/events") as (reader, _):
            await reader.until(b"retry")
            for asked in (said, {"message": "pay the bill", "stream": True}):
                full = await door("POST", "/v1/chat", json=asked)
                assert (full.status_code, full.json()["code"]) == (429, "too_many_streams")
        door.service.drain()
        draining = await door("POST", "/v1/chat", json=said)
        assert (draining.status_code, draining.json()["code"]) == (503, "draining")
        assert (await door("GET", f"{session}/runs")).json()["items"] == []
        assert len((await door("GET", "/v1/sessions")).json()["items"]) == 1


async def test_a_chat_that_is_cancelled_while_it_stops_looking_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    stopping = asyncio.Event()
    follow = SessionManager.follow

    async def slow_to_stop(self: SessionManager, *arguments: Any, **options: Any) -> AsyncIterator[Any]:
        try:
            async for item in follow(self, *arguments, **options):
                yield item
        finally:
            stopping.set()
            await asyncio.sleep(0.2)

    monkeypatch.setattr(SessionManager, "follow", slow_to_stop)
    async with open_door(agents=("shop",)) as door:
        asking = asyncio.create_task(door("POST", "/v1/chat", json={"message": "hello", "wait": 0.05}))
        await asyncio.wait_for(stopping.wait(), 10)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking


async def test_who_comes_back_after_a_runs_end_stays_away_though_its_message_was_taken_back_since(door: Door) -> None:
    session = await door.session()
    run = (await door("POST", f"{session}/runs", who="agent", json={"start": True, "input": "hi"})).json()
    attempt = {"Satchel-Attempt": f"{run['run_id']}/1"}
    ended = await door("POST", f"{session}/runs/{run['run_id']}/complete", who="agent", headers=attempt)
    assert ended.status_code == 200
    (input_of,) = (await door("GET", f"{session}/messages")).json()["items"]
    last = (await door("GET", f"{session}/events?order=desc&limit=1")).json()["items"][0]
    assert last["kind"] == "run_ended"
    back = {"Accept": "text/event-stream", "Last-Event-ID": str(last["seq"])}
    url = f"{session}/events?run_id={run['run_id']}"
    assert (await door("GET", url, headers=back)).status_code == 204
    ahead = await door("GET", url, headers=back | {"Last-Event-ID": "99"})  # it came before a failover
    assert f'{{"reason":"resync","last_seq":{last["seq"]}}}' in ahead.text
    assert (await door("POST", f"{session}/messages/{input_of['message_id']}/retract")).status_code == 200
    assert (await door("GET", url, headers=back)).status_code == 204
