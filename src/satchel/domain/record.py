"""The session's one row: all that a decision needs, nothing that grows with the session's length."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from satchel.domain.ids import SessionRef
from satchel.domain.policy import DEFAULT_POLICY, SessionPolicy
from satchel.domain.run import RunStatus, Usage
from satchel.domain.stream import OpenStream

SessionStatus = Literal["ACTIVE", "CLOSED", "EXPIRED", "DELETED"]
STATUSES: tuple[SessionStatus, ...] = ("ACTIVE", "CLOSED", "EXPIRED", "DELETED")
LISTED: tuple[SessionStatus, ...] = ("ACTIVE", "CLOSED", "EXPIRED")
NOT_LISTED = " (what is deleted is in no list)"
Part = Literal["messages", "tool_history", "runs", "working_memory", "metadata", "title", "status"]

KEPT_TRANSITIONS = 32
KEPT_LABELS = 128


class PartVersions(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """For each part of the session the version at which it last changed."""

    messages: int = 0
    tool_history: int = 0
    runs: int = 0
    working_memory: int = 0
    metadata: int = 0
    title: int = 0
    status: int = 0

    def changed_since(self, version: int) -> tuple[str, ...]:
        return tuple(name for name in self.__struct_fields__ if getattr(self, name) > version)


class Transition(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One change of the session's status. ``reason`` is ``idle``, ``max_lifetime``, ``retention``, or the caller's own."""

    at: int
    to: SessionStatus
    actor: str
    reason: str = ""


class Lease(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Somebody lives behind a run: until ``until`` on ``clock``; each renewal adds ``each``. All in microseconds."""

    each: int
    until: int
    clock: str

    def is_over(self, lease_now: int, lease_clock: str) -> bool:
        """Another clock (the machine was started anew): it is over."""
        return self.clock != lease_clock or lease_now >= self.until


class Turn(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """The run that may work now. While it is READY or WAITING it has a lease if its own client is going to start it.
    ``expires_at``: the instant at which the question of a WAITING run expires."""

    run_id: str
    status: RunStatus
    attempt: int = 0
    agent: str = ""
    lease: Lease | None = None
    cancel_requested: bool = False
    expires_at: int | None = None
    has_layer: bool = False  # it writes to a working memory of its own


class OpenChild(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A child run of the run that has the turn. It lives under its parent's attempt and lease, and is RUNNING."""

    run_id: str
    cancel_requested: bool = False


def asked_label(children: Sequence[OpenChild], run_id: str | None, label: str) -> str:
    """As ``asked`` holds a label: a child run's are its own, and none of its parent's. (A call's label has no line break.)"""
    return f"{run_id}\n{label}" if any(child.run_id == run_id for child in children) else label


class Waiting(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A run in the queue, the size of the input that waits with it, and the lease of the client that waits for it."""

    run_id: str
    agent: str = ""
    size: int = 0
    lease: Lease | None = None


class OpenCall(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    seq: int
    tool_call_id: str | None = None
    run_id: str | None = None


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """Where a fork comes from."""

    session_id: str
    seq: int


class SessionRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """See DESIGN's words. ``version`` is public; ``revision`` is the store's own and grows with every write of the record."""

    tenant_id: str
    session_id: str
    user_id: str
    revision: int
    created_at: int
    updated_at: int
    active_at: int  # last activity: idle counts from here
    clock_from: int  # creation or last restore: max_lifetime counts from here
    status: SessionStatus = "ACTIVE"
    version: int = 0
    last_seq: int = 0
    title: str = ""
    external_id: str | None = None
    generation: int = 0
    closed_at: int | None = None
    policy: SessionPolicy = DEFAULT_POLICY
    hidden: bool = False
    arriving: bool = (
        False  # a copy that goes on with it has not written its last chunk: nothing happens in it by itself
    )
    origin: Origin | None = None
    # Totals.
    messages: int = 0
    tool_calls: int = 0
    runs: int = 0
    retracted: int = 0
    context_tokens: int = 0
    usage: Usage = Usage()
    changed: PartVersions = PartVersions()
    # Work.
    run_number: int = 0
    turn: Turn | None = None
    queue: tuple[Waiting, ...] = ()
    children: tuple[OpenChild, ...] = ()
    child_runs: int = 0  # of all runs that there were, how many were child runs
    open_calls: tuple[OpenCall, ...] = ()
    asked: tuple[str, ...] = ()  # see asked_label
    streams: tuple[OpenStream, ...] = ()  # messages that are being said: their text stands in pieces beside the log
    # Lifecycle history: the newest transitions, and how many there were.
    lifecycle: tuple[Transition, ...] = ()
    transitions: int = 0
    # What looks after the session: a tombstone's rows, or what an unfinished import left.
    erasing: bool = False
    sweep_at: int | None = None
    lease_until: int | None = None  # of the lease that ends first, with its clock
    lease_clock: str = ""

    @property
    def ref(self) -> SessionRef:
        return SessionRef(self.tenant_id, self.session_id)

    @property
    def ready_agent(self) -> str | None:
        """The agent whose workers may claim this session's run now; None when there is nothing to claim."""
        turn = self.turn
        if turn is None or turn.status != "READY" or turn.lease is not None or self.arriving:
            return None
        return turn.agent

    @property
    def expires_at(self) -> int | None:
        """The instant at which an ACTIVE session expires, if nothing happens before."""
        if self.status != "ACTIVE" or self.hidden or self.arriving:
            return None
        policy = self.policy
        if policy.idle is None:
            idle = None
        else:
            idle = self.active_at + policy.idle if self.turn is None else self._idle_from(policy.idle)
        if policy.max_lifetime is None:
            return idle
        end = self.clock_from + policy.max_lifetime
        return end if idle is None else min(idle, end)

    def _idle_from(self, idle: int) -> int | None:
        """A question that nobody answers ends its run at its instant, whoever meets that: idle counts from there."""
        if not self.is_busy:
            return self.active_at + idle
        asked = self.question_expires_at
        return None if asked is None else max(self.active_at, asked) + idle

    @property
    def question_expires_at(self) -> int | None:
        return None if self.turn is None or self.arriving else self.turn.expires_at

    @property
    def is_busy(self) -> bool:
        """A RUNNING or WAITING run keeps its session from idling."""
        return self.turn is not None and self.turn.status in ("RUNNING", "WAITING")

    @property
    def erases_at(self) -> int | None:
        """The instant at which the policy deletes a session that is not ACTIVE any more."""
        if self.status not in ("CLOSED", "EXPIRED") or self.policy.retention is None or self.closed_at is None:
            return None
        if self.arriving:  # the copy may have broken off before what restored it
            return None
        return self.closed_at + self.policy.retention

    @property
    def turns_at(self) -> int | None:
        """The instant at which time alone changes the status."""
        return self.expires_at if self.status == "ACTIVE" else self.erases_at

    @property
    def due_at(self) -> int | None:
        """The instant at which time alone changes the session, or its run: before it, a decision on this record holds."""
        turns = self.turns_at
        if self.turn is None:
            return turns
        asked = self.question_expires_at
        return turns if asked is None or (turns is not None and turns < asked) else asked

    @property
    def has_open_work(self) -> bool:
        """Whether it has runs that are not over, open calls or streams: what a decision on them must see."""
        return self.turn is not None or bool(self.queue or self.children or self.open_calls or self.streams)

    def leases(self) -> list[Lease]:
        """Of the run that has the turn, and of those in the queue."""
        found = [waiting.lease for waiting in self.queue if waiting.lease is not None]
        if self.turn is not None and self.turn.lease is not None:
            found.append(self.turn.lease)
        return found

    def has_lease_over(self, lease_now: int, lease_clock: str) -> bool:
        if self.lease_until is None:
            return False
        return any(lease.is_over(lease_now, lease_clock) for lease in self.leases())

    def is_past(self, seq: int, revision: int | None) -> bool:
        """Whether there is something for who has seen all up to ``seq`` and waits: an event, another revision than the one
        that is given, the end, after which nothing comes, or that what was seen is not there (any more)."""
        moved = revision is not None and self.revision != revision
        return moved or self.last_seq != seq or self.status == "DELETED"

    def status_at(self, now: int) -> SessionStatus:
        """The status that holds at ``now``, whether or not anybody has committed it yet."""
        expires, erases = self.expires_at, self.erases_at
        if expires is not None and now >= expires:
            retention = self.policy.retention
            return "DELETED" if retention is not None and now >= expires + retention else "EXPIRED"
        return "DELETED" if erases is not None and now >= erases else self.status


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(SessionRecord).decode


def encode_record(record: SessionRecord) -> bytes:
    return _encode(record)


def decode_record(data: bytes | str) -> SessionRecord:
    """Raises ValueError (msgspec.ValidationError) when what is stored is not a record."""
    return _decode(data)
