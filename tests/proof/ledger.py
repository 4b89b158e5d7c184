"""Writers that keep a ledger: what they are about to write, and what was acknowledged. Killing them, or what they write to, must
lose nothing of the second; and what is in the first alone must land once, when it is asked for again."""

from __future__ import annotations

import collections
from collections.abc import Callable
from typing import Any

import msgspec

from satchel import Attempt, Event, RunManager, SessionManager
from satchel.errors import RunActive, RunFenced, SessionNotFound

LEASE = 5.0  # seconds of a run that its writer started: whoever is killed blocks its session for so long


class Entry(msgspec.Struct, frozen=True, array_like=True):
    """``what``: "about" to be done, "done", or "refused". ``place``: the seq of what was written, or the id of the run.
    ``of``: the run that is to be completed."""

    what: str
    key: str
    session: str
    verb: str
    place: int | str = 0
    version: int = 0
    of: str = ""


class Done(msgspec.Struct, frozen=True):
    place: int | str
    version: int
    replayed: bool


async def perform(sessions: SessionManager, runs: RunManager, entry: Entry) -> Done:
    """The one write that ``entry`` names, under its key."""
    session_id, key = entry.session, entry.key
    if entry.verb == "say":
        message = await sessions.append_message(session_id, {"role": "user", "content": key}, idempotency_key=key)
        return Done(message.seq, message.version, message.replayed)
    if entry.verb == "tool":
        call = {"tool": "look", "arguments": {"key": key}, "result": "seen", "ok": True}
        recorded = await sessions.append_tool_history(session_id, call, idempotency_key=key)
        return Done(recorded.seq, recorded.version, recorded.replayed)
    if entry.verb == "run":
        run = await runs.add_run(session_id, goal=key, input="go", start=True, lease=LEASE, idempotency_key=key)
        return Done(run.run_id, run.version, run.replayed)
    assert entry.verb == "end"
    run = await runs.complete_run(session_id, Attempt(entry.of, 1), stop_reason=key, idempotency_key=key)
    return Done(run.run_id, run.version, run.replayed)


def key_of(event: Event) -> str:
    """The key under which it was written; "" for what follows from another event of its version."""
    body = event.data
    found: Callable[[], Any] | None = {
        "message": lambda: body.get("content") if event.run_id is None else None,
        "tool_call_recorded": lambda: body["arguments"]["key"],
        "run_added": lambda: body.get("goal"),
        "run_ended": lambda: body.get("stop_reason") if body["status"] == "COMPLETED" else None,
    }.get(event.kind)
    return str((found and found()) or "")


class Ledger:
    """All entries of all writers, and how far the logs were read against them."""

    def __init__(self) -> None:
        self.about: dict[str, Entry] = {}
        self.done: dict[str, Entry] = {}
        self.refused: set[str] = set()
        self.faults: list[str] = []
        self.stored: dict[str, Event] = {}  # by key
        self._unproved: collections.deque[Entry] = collections.deque()
        self._where: dict[str, str] = {}
        self._read_to: dict[str, tuple[int, int]] = {}  # seq and version, of each session

    def feed(self, line: bytes) -> None:
        entry = msgspec.json.decode(line, type=Entry)
        if entry.what == "about":
            self.about[entry.key] = entry
        elif entry.what == "refused":
            self.refused.add(entry.key)
        else:
            self.done[entry.key] = entry
            self._unproved.append(entry)

    @property
    def unknown(self) -> list[Entry]:
        return [entry for key, entry in self.about.items() if key not in self.done and key not in self.refused]

    async def read_on(self, sessions: SessionManager, session_ids: list[str]) -> None:
        """What was written since; each seq and version in its place, and no key twice."""
        for session_id in session_ids:
            seq, version = self._read_to.get(session_id, (0, 0))
            while True:
                try:
                    page = await sessions.events(session_id, after=seq, limit=1000)
                except SessionNotFound:
                    self.faults.append(f"session {session_id} was acknowledged, and is lost")
                    break
                for event in page:
                    if event.seq != seq + 1 or event.version not in (version, version + 1):
                        self.faults.append(
                            f"behind seq {seq}, version {version} comes seq {event.seq}, version {event.version}"
                        )
                    seq, version = event.seq, event.version
                    self._keep(session_id, event)
                self._read_to[session_id] = (seq, version)
                if page.next is None:
                    break

    def _keep(self, session_id: str, event: Event) -> None:
        key = key_of(event)
        if not key:
            return
        if key in self.stored:
            self.faults.append(f"{key} is stored twice: seq {self.stored[key].seq} and {event.seq}")
        self.stored[key] = event
        self._where[key] = session_id

    async def prove(self, sessions: SessionManager, session_ids: list[str]) -> None:
        """What was acknowledged until now is there, as it was said to be."""
        waiting, self._unproved = self._unproved, collections.deque()
        await self.read_on(sessions, session_ids)
        for entry in waiting:
            event = self.stored.get(entry.key)
            if event is None:
                self.faults.append(f"{entry.verb} {entry.key} was acknowledged, and is lost")
            elif event.version != entry.version:
                self.faults.append(f"{entry.key} was told version {entry.version}, and has {event.version}")
            elif entry.place not in (event.seq, event.run_id):
                self.faults.append(f"{entry.key} was told place {entry.place}, and is {event.run_id} at {event.seq}")

    async def ask_again(self, sessions: SessionManager, runs: RunManager, session_ids: list[str]) -> int:
        """Each write of which nobody knows, under its key: it is done once, whichever way it went. How many there were.

        All writers have ended, and all that they said was heard."""
        for key, session_id in self._where.items():
            if key not in self.about or self.about[key].session != session_id:
                self.faults.append(f"{key} is stored in {session_id}, and nobody was to write it there")
        unknown = self.unknown
        for entry in unknown:
            before = self.stored.get(entry.key)
            try:
                done = await perform(sessions, runs, entry)
            except (
                RunActive,
                RunFenced,
            ):  # another run has the turn by now, or its own is over: a refusal, so it must not be there
                if before is not None:
                    self.faults.append(f"{entry.key} is stored, and its retry was refused")
                self.refused.add(entry.key)
                continue
            if done.replayed != (before is not None):
                self.faults.append(f"{entry.key} stored: {before is not None}, and its retry a replay: {done.replayed}")
            self.feed(
                msgspec.json.encode(
                    Entry("done", entry.key, entry.session, entry.verb, done.place, done.version, entry.of)
                )
            )
        await self.prove(sessions, session_ids)
        return len(unknown)
