"""The checker of histories tells a history that could have been from one that could not."""

from __future__ import annotations

from typing import Any

import pytest

from tests.proof.history import Call, Line, Seen
from tests.proof.linear import check

LOG = (
    Line(1, 1, "message", "a"),
    Line(2, 2, "message", "b"),
    Line(3, 2, "message", "c"),
    Line(4, 3, "title_changed", "t"),
    Line(5, 4, "session_closed", "x"),
    Line(6, 5, "session_restored", "y"),
    Line(7, 6, "working_memory_changed", "m"),
)
STATES = (
    Seen(0, 0, "ACTIVE", "", 0),
    Seen(1, 1, "ACTIVE", "", 1),
    Seen(2, 3, "ACTIVE", "", 3),
    Seen(3, 4, "ACTIVE", "t", 3),
    Seen(4, 5, "CLOSED", "t", 3),
    Seen(5, 6, "ACTIVE", "t", 3),
    Seen(6, 7, "ACTIVE", "t", 3),
)


def call(verb: str, began: int, ended: int, *, told: str = "done", **more: Any) -> Call:
    return Call(session="s", verb=verb, began=began, ended=ended, told=told, **more)


def story(*others: Call) -> list[str]:
    """The writes of LOG, one after another in [10 v, 10 v + 5], and others."""
    writes = (
        call("append", 10, 15, texts=("a",), key="a", version=1, seqs=(1,)),
        call("append_many", 20, 25, texts=("b", "c"), version=2, seqs=(2, 3), expected=1),
        call("rename", 30, 35, texts=("t",), seen=STATES[3]),
        call("close", 40, 45, texts=("x",), seen=STATES[4]),
        call("restore", 50, 55, texts=("y",), seen=STATES[5]),
        call("memory", 60, 65, texts=("m",), version=6, expected=0),
    )
    return check([*writes, *others], LOG)


def conflict(began: int, ended: int, expected: int, current: int, *changed: str, verb: str = "append") -> Call:
    return call(
        verb, began, ended, told="refused", code="version_conflict", texts=("no",), expected=expected, current=current,
        changed=changed,
    )  # fmt: skip


@pytest.mark.parametrize(
    "other",
    [
        call("get", 16, 18, seen=STATES[1]),
        call("get", 12, 13, seen=STATES[1]),  # while it is written
        call("get", 12, 13, seen=STATES[0]),
        call("get", 22, 70, seen=STATES[4]),
        call("events", 26, 28, after=1, lines=LOG[1:3], is_whole=True),
        call("events", 36, 38, after=0, lines=LOG[:2], is_whole=False),
        call("messages", 26, 34, lines=LOG[1:3]),
        call("messages", 1, 2, lines=(), is_whole=True),
        call("append", 46, 48, told="refused", code="session_closed", texts=("no",)),
        call("append", 54, 70, told="refused", code="session_closed", texts=("no",)),
        call("close", 46, 48, texts=("again",), seen=STATES[4]),
        call("append", 66, 68, texts=("a",), key="a", version=1, seqs=(1,), replayed=True),
        call("mismatch", 66, 68, told="refused", code="idempotency_mismatch", key="a"),
        call("append", 66, 68, told="unknown", texts=("never",)),
        call("append", 66, 68, told="unknown", texts=("a",), key="a"),  # a retry of what was written long ago
        conflict(26, 28, 1, 2, "messages"),
        conflict(66, 68, 2, 6, "title", "status", "working_memory"),
        conflict(66, 68, 0, 6, "messages", "title", "status", "working_memory", verb="memory"),
    ],
)
def test_what_could_have_been_is_no_fault(other: Call) -> None:
    assert story(other) == []


@pytest.mark.parametrize(
    ("other", "fault"),
    [
        (call("get", 26, 28, seen=STATES[1]), "began after"),  # stale
        (call("get", 1, 2, seen=STATES[1]), "began after"),  # of the future
        (call("get", 16, 18, seen=Seen(1, 1, "ACTIVE", "", 2)), "that version is"),
        (call("get", 70, 72, seen=Seen(7, 8, "ACTIVE", "t", 4)), "the last is 6"),
        (call("events", 26, 28, after=1, lines=LOG[1:2], is_whole=True), "half of version 2"),
        (call("events", 26, 28, after=1, lines=LOG[2:3], is_whole=True), "does not hold so"),
        (call("messages", 36, 38, lines=LOG[:1]), "began after"),
        (call("append", 58, 59, told="refused", code="session_closed", texts=("no",)), "began after"),
        (call("append", 30, 38, told="refused", code="session_closed", texts=("no",)), "began after"),
        (call("append", 30, 38, told="refused", code="not_found", texts=("no",)), "refused with not_found"),
        (call("append", 46, 48, told="refused", code="session_closed", texts=("a",)), "and it is in the log"),
        (call("restore", 42, 44, texts=("again",), seen=STATES[5]), "began after"),
        (call("append", 66, 68, texts=("lost",), version=7, seqs=(8,)), "not in the log"),
        (call("append", 1, 68, texts=("a",), key="a", version=1, seqs=(1,)), "as new 2 times"),
        (call("append", 1, 2, texts=("a",), key="a", version=1, seqs=(1,), replayed=True), "began after"),
        (call("mismatch", 1, 2, told="refused", code="idempotency_mismatch", key="a"), "began after"),
        (conflict(26, 28, 2, 2), "was so at 2"),
        (conflict(26, 28, 1, 2, "title"), "changed since"),
        (conflict(36, 38, 0, 2, "messages"), "began after"),
        (conflict(66, 68, 6, 6, verb="memory"), "was so at 6"),
    ],
)
def test_what_could_not_have_been_is_found(other: Call, fault: str) -> None:
    found = story(other)
    assert len(found) >= 1
    assert any(fault in one for one in found), found


def keyed(*asked: Call) -> list[str]:
    return check([*asked, call("get", 30, 31, seen=STATES[1])], LOG[:1])


def test_what_only_calls_without_an_answer_can_have_written_was_not_there_before_they_began() -> None:
    first = call("append", 10, 20, told="unknown", texts=("a",), key="a")
    again = call("append", 40, 45, told="unknown", texts=("a",), key="a")
    replay = call("append", 40, 45, texts=("a",), key="a", version=1, seqs=(1,), replayed=True)
    assert keyed(first, again) == keyed(first, replay) == []
    assert "began after" in keyed(again)[0]
    assert "began after" in keyed(replay)[0]


def test_two_reads_that_go_backwards_are_found_though_each_could_be() -> None:
    early, late = call("get", 11, 12, seen=STATES[1]), call("get", 13, 14, seen=STATES[0])
    assert story(early) == story(late) == []
    assert "began after get" in story(early, late)[0]


@pytest.mark.parametrize(
    ("log", "fault"),
    [
        ((Line(1, 1, "message", "a"), Line(3, 2, "message", "b")), "in place 2"),
        ((Line(1, 1, "message", "a"), Line(2, 3, "message", "b")), "behind version 1"),
        ((Line(1, 1, "message", "a"), Line(2, 2, "message", "a")), "written twice"),
        ((Line(1, 1, "message", "a"), Line(2, 2, "message", "stranger")), "nobody wrote it"),
    ],
)
def test_a_log_that_could_not_have_been_is_found(log: tuple[Line, ...], fault: str) -> None:
    found = check([call("append", 1, 2, texts=("a",), version=1, seqs=(1,))], log)
    assert any(fault in one for one in found), found
