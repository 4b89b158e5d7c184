"""Async iterators as plain ones: what ends them, and where their input is read."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import threading
import time
from collections.abc import AsyncIterator, Iterator

import pytest

from satchel import InvalidInput, Principal, SessionDeleted
from satchel.sync import Iteration, SessionManager
from satchel.sync.background import background


class Source:
    """Counts up, and notes when it has ended."""

    def __init__(self) -> None:
        self.ended = threading.Event()

    async def numbers(self, *, count: int = 1_000_000) -> AsyncIterator[int]:
        try:
            for number in range(count):
                yield number
        finally:
            self.ended.set()


def test_an_iterator_gives_everything_and_then_stops() -> None:
    source = Source()
    numbers = Iteration(background(), source.numbers(count=3))
    assert list(numbers) == [0, 1, 2]
    assert source.ended.is_set()
    assert list(numbers) == []
    numbers.close()


def test_closing_an_iterator_ends_its_source() -> None:
    source = Source()
    numbers = Iteration(background(), source.numbers())
    assert next(numbers) == 0
    numbers.close()
    assert source.ended.is_set()
    numbers.close()
    assert next(numbers, None) is None


def test_leaving_a_with_block_ends_the_source() -> None:
    source = Source()
    with Iteration(background(), source.numbers()) as numbers:
        assert next(numbers) == 0
    assert source.ended.is_set()


def test_an_iterator_that_is_dropped_ends_its_source() -> None:
    source = Source()
    for number in Iteration(background(), source.numbers()):
        if number == 2:
            break
    gc.collect()
    assert source.ended.wait(10)


def test_a_follower_sees_what_other_threads_write() -> None:
    manager = SessionManager()
    session_id = manager.create_session().session_id
    seen: list[object] = []

    def watch() -> None:
        for event in manager.follow(session_id, after=0):
            seen.append(json.loads(event.body)["content"])
            if len(seen) == 3:
                return

    watcher = threading.Thread(target=watch)
    watcher.start()
    for number in range(3):
        manager.append_message(session_id, {"role": "user", "content": (number and str(number)) or "0"})
    watcher.join(10)
    assert seen == ["0", "1", "2"]


def test_closing_from_another_thread_ends_a_follower_that_waits() -> None:
    manager = SessionManager()
    session_id = manager.create_session().session_id
    events = manager.follow(session_id, after=0)
    seen: list[int] = []
    watcher = threading.Thread(target=lambda: seen.extend(event.seq for event in events))
    watcher.start()
    manager.append_message(session_id, {"role": "user", "content": "hello"})
    deadline = time.monotonic() + 10
    while not seen and time.monotonic() < deadline:
        time.sleep(0.005)
    events.close()
    watcher.join(10)
    assert not watcher.is_alive()
    assert seen == [1]


def test_closing_ends_also_a_source_that_swallows_a_cancellation() -> None:
    waits, ended = threading.Event(), threading.Event()

    async def stubborn() -> AsyncIterator[int]:
        with contextlib.suppress(asyncio.CancelledError):
            waits.set()
            await asyncio.sleep(60)
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()
        yield 1

    numbers = Iteration(background(), stubborn())
    watcher = threading.Thread(target=lambda: next(numbers, None))
    watcher.start()
    assert waits.wait(10)
    numbers.close()
    watcher.join(10)
    assert ended.is_set()


def test_a_follower_hears_of_the_deletion_as_an_error() -> None:
    manager = SessionManager()
    session_id = manager.create_session().session_id
    events = manager.follow(session_id, after=0)
    manager.append_message(session_id, {"role": "user", "content": "hello"})
    assert next(events).seq == 1
    manager.delete_session(session_id)
    with pytest.raises(SessionDeleted):
        next(events)
    assert next(events, None) is None


def conversation(number: int) -> str:
    return json.dumps({"session_id": f"c{number}", "messages": [{"role": "user", "content": f"question {number}"}]})


def test_lines_to_import_are_read_in_the_calling_thread_and_as_they_are_needed() -> None:
    manager = SessionManager()
    read: list[tuple[int, int]] = []

    def lines() -> Iterator[str]:
        for number in range(3):
            read.append((number, threading.get_ident()))
            yield conversation(number)

    imported = manager.import_sessions(lines())
    assert read == []
    assert next(imported).external_id == "c0"
    assert read == [(0, threading.get_ident())]
    assert [one.external_id for one in imported] == ["c1", "c2"]
    assert {thread for _, thread in read} == {threading.get_ident()}


def test_an_export_may_be_read_by_an_import() -> None:
    here, there = SessionManager(), SessionManager()
    for number in range(3):
        session = here.create_session(external_id=f"c{number}")
        here.append_message(session.session_id, {"role": "user", "content": f"question {number}"})

    def lines() -> Iterator[bytes]:
        line = b""
        for piece in here.export_sessions():
            line += piece
            if piece.endswith(b"\n"):
                yield line
                line = b""

    imported = list(there.import_sessions(lines()))
    assert sorted(one.external_id for one in imported) == ["c0", "c1", "c2"]
    for one in imported:
        [message] = there.get_session(one.session_id).messages
        assert message.content == f"question {one.external_id[1:]}"


def test_ids_to_export_may_come_from_the_manager_itself() -> None:
    manager = SessionManager()
    made = [manager.create_session(title=f"{number}").session_id for number in range(3)]

    def chosen() -> Iterator[str]:
        for session_id in made:
            if manager.get_session(session_id, include=()).title != "1":
                yield session_id

    lines = b"".join(manager.export_sessions(chosen())).splitlines()
    assert [json.loads(line)["session_id"] for line in lines] == [made[0], made[2]]


class Torn(Exception):
    pass


def test_an_error_while_lines_are_read_ends_the_import_with_that_error() -> None:
    manager = SessionManager()

    def lines() -> Iterator[str]:
        yield conversation(0)
        raise Torn

    imported = manager.import_sessions(lines())
    assert next(imported).result == "imported"
    with pytest.raises(Torn):
        next(imported)
    assert next(imported, None) is None


def test_ctrl_c_while_lines_are_read_leaves_the_loop_usable() -> None:
    manager = SessionManager()

    def lines() -> Iterator[str]:
        yield conversation(0)
        raise KeyboardInterrupt

    imported = manager.import_sessions(lines())
    assert next(imported).result == "imported"
    with pytest.raises(KeyboardInterrupt):
        next(imported)
    assert len(manager.list_sessions()) == 1


def test_a_bad_line_is_named() -> None:
    manager = SessionManager(principal=Principal.local())
    with pytest.raises(InvalidInput, match="line 2"):
        list(manager.import_sessions([conversation(0), "{"]))
