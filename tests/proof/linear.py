"""Is the history of one session linearisable?

In general that is hard to tell. Here it is not, because every accepted write is told its version, and the log says what each
version wrote: the order of the writes is given, and only two things are left to ask.

1. Was each call told what is so at its place in that order? A write of version v has place 2v; whoever saw version v has 2v + 1.
   A refusal that names no version may have any place where it is right (``SessionClosed``: where the session was closed).
2. Do the places agree with time? A call that ended before another began must not have the later place. It is enough to go
   through the calls by their beginning and to keep the highest place of those that have ended. A call with several places
   takes the lowest that is left to it, which is never worse for those behind it.

Both together are what linearisable means: put the calls in the order of their places, and of equal ones in that of time.
"""

from __future__ import annotations

import bisect
import heapq
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tests.proof.history import Call, Line, Seen

FOR_EVER = 1 << 62
PARTS = {
    "message": "messages",
    "working_memory_changed": "working_memory",
    "title_changed": "title",
    "metadata_changed": "metadata",
    "session_closed": "status",
    "session_restored": "status",
}


class Log:
    """A session's log, and what the session was at each version."""

    def __init__(self, lines: Sequence[Line]) -> None:
        self.lines = lines
        self.faults: list[str] = []
        self.where: dict[str, Line] = {}
        self.states = [Seen(0, 0, "ACTIVE", "", 0)]
        self.last: list[dict[str, int]] = [{}]  # at each version: the version at which each part last changed
        for number, line in enumerate(lines, 1):
            if line.seq != number:
                self.faults.append(f"the log has seq {line.seq} in place {number}")
            self._take(line)
        self.newest = len(self.states) - 1
        self._messages = [line for line in lines if line.kind == "message"]
        self._message_seqs = [line.seq for line in self._messages]

    def _take(self, line: Line) -> None:
        state = self.states[-1]
        if line.version == state.version + 1:
            self.states.append(state)
            self.last.append(self.last[-1])
        elif line.version != state.version or not line.version:
            self.faults.append(f"seq {line.seq} has version {line.version} behind version {state.version}")
            return
        status = {"session_closed": "CLOSED", "session_restored": "ACTIVE"}.get(line.kind, state.status)
        title = line.text if line.kind == "title_changed" else state.title
        messages = state.messages + (line.kind == "message")
        self.states[-1] = Seen(line.version, line.seq, status, title, messages)
        if line.kind in PARTS:
            self.last[-1] = {**self.last[-1], PARTS[line.kind]: line.version}
        if line.text in self.where:
            self.faults.append(f"{line.text!r} was written twice: seq {self.where[line.text].seq} and {line.seq}")
        elif line.text:
            self.where[line.text] = line

    def changed_since(self, expected: int, version: int) -> set[str]:
        return {part for part, last in self.last[version].items() if last > expected}

    def page(self, call: Call) -> str | list[tuple[int, int]]:
        """The versions at which ``call`` could have been shown its lines, or what is wrong with them."""
        assert call.lines is not None
        if call.verb == "messages":  # the newest, in order
            upto = bisect.bisect_right(self._message_seqs, call.lines[-1].seq) if call.lines else 0
            if tuple(self._messages[max(0, upto - len(call.lines)) : upto]) != call.lines:
                return "it was shown messages that the log does not hold so"
            if not call.is_whole and not call.lines:
                return "a page is empty though it is not whole"
            first = call.lines[-1].version if call.lines else 0
            behind = self._messages[upto].version if upto < len(self._messages) else self.newest + 1
            return [(first, behind - 1)]
        if tuple(self.lines[call.after : call.after + len(call.lines)]) != call.lines:
            return "it was shown events that the log does not hold so"
        end = call.after + len(call.lines)
        first = self.lines[end - 1].version if end else 0
        if not call.is_whole:
            return [(first, self.newest)]
        if self.states[first].last_seq != end:
            return f"it was shown half of version {first}"
        return [(first, first)]


class _Placed(NamedTuple):
    """``ranges`` of places, in order."""

    began: int
    ended: int
    ranges: Sequence[tuple[int, int]]
    what: str


def check(calls: Iterable[Call], lines: Sequence[Line]) -> list[str]:
    """What is wrong with the calls on one session, given its log as it was read in the end. [] is what is hoped for."""
    log = Log(lines)
    faults = list(log.faults)
    placed: list[_Placed] = []
    history = list(calls)
    intended = {text for call in history for text in call.texts}
    faults += [f"{text!r} is in the log, and nobody wrote it" for text in log.where if text not in intended]
    for call in history:
        found = _Judge(log, call)
        found.judge()
        faults += [f"{call.verb} {call.key or call.texts or ''}: {fault}" for fault in found.faults]
        placed += found.placed
    faults += _fresh_twice(history)
    placed += _written_under_keys(log, history)
    return faults + _against_time(placed)


class _Judge:
    """What one call was told, against the log; and its places."""

    def __init__(self, log: Log, call: Call) -> None:
        self.log = log
        self.call = call
        self.faults: list[str] = []
        self.placed: list[_Placed] = []

    def judge(self) -> None:
        call = self.call
        if call.seen is not None:
            self._saw(call.seen)
        if call.lines is not None:
            found = self.log.page(call)
            if isinstance(found, str):
                self.faults.append(found)
            else:
                self._reads(found)
        if call.told == "refused":
            self._refused()
        elif call.told == "done" and call.texts:
            self._wrote()
        elif call.told == "unknown":
            self._may_have_written()

    def _place(self, ranges: Sequence[tuple[int, int]], *, ended: int | None = None, what: str = "") -> None:
        call = self.call
        self.placed.append(
            _Placed(
                call.began, call.ended if ended is None else ended, ranges, what or f"{call.verb} {call.texts or ''}"
            )
        )

    def _reads(self, versions: Sequence[tuple[int, int]]) -> None:
        if not versions:
            self.faults.append("at no version of the session was this the answer")
        else:
            self._place([(2 * first + 1, 2 * last + 1) for first, last in versions])

    def _saw(self, seen: Seen) -> None:
        if seen.version > self.log.newest:
            self.faults.append(f"it saw version {seen.version}, and the last is {self.log.newest}")
        elif seen != self.log.states[seen.version]:
            self.faults.append(f"it saw {seen}, and that version is {self.log.states[seen.version]}")
        else:
            self._reads([(seen.version, seen.version)])

    def _wrote(self) -> None:
        call = self.call
        lines = [self.log.where[text] for text in call.texts if text in self.log.where]
        if not lines and call.verb in ("close", "restore"):  # it was so already
            wanted = "CLOSED" if call.verb == "close" else "ACTIVE"
            self._reads(self._while_status(wanted))
            return
        if len(lines) != len(call.texts):
            self.faults.append(f"it was told that it was done (version {call.version}), and it is not in the log")
            return
        versions = {line.version for line in lines}
        version = lines[0].version
        if len(versions) != 1 or call.version not in (None, version):
            self.faults.append(f"it was told version {call.version}, and the log has it at {sorted(versions)}")
        if call.seqs and call.seqs != tuple(line.seq for line in lines):
            self.faults.append(f"it was told seqs {call.seqs}, and the log has {[line.seq for line in lines]}")
        if call.replayed:
            self._reads([(version, self.log.newest)])
            return
        self._place([(2 * version, 2 * version)])
        if self.log.states[version - 1].status != "ACTIVE" and call.verb != "restore":
            self.faults.append(f"version {version} was written while the session was closed")
        if call.expected is not None:
            self._check_expected(call.expected, version)

    def _check_expected(self, expected: int, version: int) -> None:
        if self.call.verb == "memory":
            changed = self.log.last[version - 1].get("working_memory", 0)
            if changed > expected:
                self.faults.append(f"it expected {expected}, and the memory had changed at {changed}")
        elif version != expected + 1:
            self.faults.append(f"it expected version {expected}, and was written as {version}")

    def _may_have_written(self) -> None:
        lines = [self.log.where[text] for text in self.call.texts if text in self.log.where]
        if not lines:
            return
        if len(lines) != len(self.call.texts):
            self.faults.append("half of it is in the log")
        if self.call.key:  # it, or another call under its key, which may be long ago
            return
        version = lines[0].version
        self._place([(2 * version, 2 * version)], ended=FOR_EVER)

    def _refused(self) -> None:
        call = self.call
        if not call.key and any(text in self.log.where for text in call.texts):
            self.faults.append(f"it was refused with {call.code}, and it is in the log")
        if call.code == "version_conflict":
            self._conflict()
        elif call.code == "session_closed":
            self._reads(self._while_status("CLOSED"))
        elif call.code == "idempotency_mismatch" and call.verb == "mismatch":
            first = self.log.where.get(call.key)
            if first is None:
                self.faults.append(f"its key {call.key!r} was called used, and nothing was written under it")
            else:
                self._reads([(first.version, self.log.newest)])
        else:
            self.faults.append(f"it was refused with {call.code}")

    def _conflict(self) -> None:
        call = self.call
        assert call.expected is not None
        if call.current is None or call.current > self.log.newest:
            self.faults.append(f"it was told that version {call.current} is current, and the last is {self.log.newest}")
            return
        changed = self.log.changed_since(call.expected, call.current)
        is_right = "working_memory" in changed if call.verb == "memory" else call.current != call.expected
        if not is_right:
            self.faults.append(f"it was refused though what it expected, {call.expected}, was so at {call.current}")
        if set(call.changed) != changed:
            self.faults.append(f"it was told that {call.changed} changed since {call.expected}, and {changed} did")
        self._reads([(call.current, call.current)])

    def _while_status(self, status: str) -> list[tuple[int, int]]:
        ranges: list[tuple[int, int]] = []
        for state in self.log.states:
            if state.status != status:
                continue
            if ranges and ranges[-1][1] == state.version - 1:
                ranges[-1] = (ranges[-1][0], state.version)
            else:
                ranges.append((state.version, state.version))
        return ranges


def _written_under_keys(log: Log, calls: Iterable[Call]) -> list[_Placed]:
    """What no call was told to have written: one of those under its key did, and none of them before it began."""
    began: dict[str, int] = {}
    told: set[str] = set()
    for call in calls:
        if not call.key or not call.texts or call.told == "refused":
            continue
        began[call.key] = min(call.began, began.get(call.key, call.began))
        if call.told == "done" and not call.replayed:
            told.add(call.key)
    lines = [(at, log.where[key]) for key, at in began.items() if key in log.where and key not in told]
    return [
        _Placed(at, FOR_EVER, [(2 * line.version, 2 * line.version)], f"what was written as {line.text!r}")
        for at, line in lines
    ]


def _fresh_twice(calls: Iterable[Call]) -> list[str]:
    """Of all calls under one key at most one was answered as the first."""
    fresh: dict[str, int] = {}
    for call in calls:
        if call.key and call.told == "done" and call.texts and not call.replayed:
            fresh[call.key] = fresh.get(call.key, 0) + 1
    return [f"key {key!r} was answered as new {count} times" for key, count in fresh.items() if count > 1]


def _against_time(placed: Iterable[_Placed]) -> list[str]:
    faults: list[str] = []
    open_calls: list[tuple[int, int, str]] = []  # ended, place, what
    floor, holder = 0, ""
    for one in sorted(placed, key=lambda one: one.began):
        while open_calls and open_calls[0][0] < one.began:
            _, place, what = heapq.heappop(open_calls)
            if place > floor:
                floor, holder = place, what
        possible = _lowest(one.ranges, floor)
        if possible is None:
            faults.append(
                f"{one.what} has a place before {floor // 2} (up to {one.ranges[-1][1] / 2:g}), and began after {holder}"
                f" had ended, whose place is {floor / 2:g}"
            )
            continue
        heapq.heappush(open_calls, (one.ended, possible, one.what))
    return faults


def _lowest(ranges: Sequence[tuple[int, int]], floor: int) -> int | None:
    """The lowest odd or even place, as the ranges have it, that is not below ``floor``."""
    at = bisect.bisect_left(ranges, floor, key=lambda one: one[1])
    if at == len(ranges):
        return None
    first, last = ranges[at]
    place = max(first, floor)
    if (place - first) % 2:
        place += 1
    return place if place <= last else None
