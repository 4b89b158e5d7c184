"""What Satchel promises, as plainly as it can be said: one thread, dictionaries, no store, no batches.

The state machine does everything twice, here and through the public door, and compares. Written from the rules of the
domain, not from the code: where both use a word, the code's own error codes and event kinds are that word.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from satchel.domain.principal import Principal
from satchel.testing.clock import SettableClock
from tests.property.layers import Layer, empty, seen

SECOND = 1_000_000
ENDED = ("COMPLETED", "FAILED", "CANCELLED")
Facts = dict[str, Any]


class Refused(Exception):
    """What the public door raises, by its code."""

    def __init__(self, code: str, **facts: Any) -> None:
        self.code = code
        self.facts = facts
        super().__init__(code)


@dataclass
class Entry:
    """One line of the log. ``body`` of a message: bytes as given, or the value that it decodes to. ``note``: what tells it from
    another of its kind, where a body would; it is not looked for in stores."""

    seq: int
    version: int
    kind: str
    at: int
    actor: str
    run_id: str | None = None
    refers_to: int | None = None
    status: str = "complete"
    role: str | None = None
    body: Any = None
    note: Any = None


@dataclass
class ModelRun:
    run_id: str
    number: int
    goal: str
    created: int
    max_attempts: int
    input: bytes | None
    added_by: str = ""
    version: int = 0
    status: str = "READY"
    attempt: int = 0
    steps: int = 0
    tokens: int = 0
    started: int | None = None
    ended: int | None = None
    stop_reason: str | None = None
    error: str | None = None
    cancel_requested: bool = False
    input_seq: int | None = None
    question: str | None = None
    wants: str = ""  # what its answer must be: a JSON type, or anything
    expires: int | None = None
    answered: dict[str, Any] = field(default_factory=dict)
    parent_run_id: str | None = None
    memory: str = "session"
    layer: Layer = field(default_factory=dict)
    layer_base: dict[str, Any] = field(default_factory=dict)  # what the session's memory held when the run replaced it
    layer_version: int = 0
    not_merged: dict[str, Any] = field(default_factory=dict)


@dataclass
class ModelCall:
    seq: int
    version: int
    tool: str
    arguments: Any
    label: str | None
    run_id: str | None
    start: int
    repeat_of: int | None
    status: str = "started"
    end: int | None = None
    result: Any = None
    error: Any = None


@dataclass
class Lease:
    each: int  # what a renewal adds
    until: int
    clock: str


@dataclass
class ModelPolicy:
    idle: int | None = None
    max_lifetime: int | None = None
    retention: int | None = None
    restore_closed: str = "owner"
    restore_expired: str = "owner"


@dataclass
class ModelSession:
    session_id: str
    tenant_id: str
    user_id: str
    created: int
    updated: int
    active: int
    clock_from: int
    policy: ModelPolicy
    title: str = ""
    first_title: str = ""
    first_metadata: dict[str, Any] = field(default_factory=dict)
    metadata: dict[str, Any] = field(default_factory=dict)
    memory: dict[str, Any] = field(default_factory=dict)
    external_id: str | None = None
    generation: int = 0
    status: str = "ACTIVE"
    version: int = 0
    closed: int | None = None
    expired_in: int = 0  # the version in which it last expired by itself
    log: list[Entry] = field(default_factory=list)
    taken_back: set[int] = field(default_factory=set)
    runs: dict[str, ModelRun] = field(default_factory=dict)
    calls: dict[int, ModelCall] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    turn: str | None = None
    leases: dict[str, Lease] = field(default_factory=dict)  # of the run that works, and of clients that wait
    queue: list[str] = field(default_factory=list)
    children: list[str] = field(default_factory=list)  # open ones of the run that has the turn
    changed: dict[str, int] = field(default_factory=dict)
    lifecycle: list[tuple[str, str, str]] = field(default_factory=list)
    keys: dict[tuple[str, str], tuple[Any, Facts]] = field(default_factory=dict)

    @property
    def last_seq(self) -> int:
        return len(self.log)

    @property
    def is_busy(self) -> bool:
        return self.turn is not None and self.runs[self.turn].status == "RUNNING"

    @property
    def asked_until(self) -> int | None:
        """The instant at which the question of a waiting run expires."""
        return None if self.turn is None else self.runs[self.turn].expires

    @property
    def expires(self) -> int | None:
        if self.status != "ACTIVE":
            return None
        instants = []
        if self.policy.idle is not None and not self.is_busy:
            instants.append(max(self.active, self.asked_until or 0) + self.policy.idle)
        if self.policy.max_lifetime is not None:
            instants.append(self.clock_from + self.policy.max_lifetime)
        return min(instants, default=None)

    @property
    def erases(self) -> int | None:
        if self.status not in ("CLOSED", "EXPIRED") or self.policy.retention is None or self.closed is None:
            return None
        return self.closed + self.policy.retention

    def messages(self) -> list[Entry]:
        return [entry for entry in self.log if entry.kind == "message"]

    def open_calls(self) -> list[ModelCall]:
        return [call for call in self.calls.values() if call.status == "started"]


def side_of(who: Principal) -> str:
    bound = who.subject if who.role == "user" else who.acting_for
    return who.role if bound is None else f"user:{bound}"


class Model:
    """All sessions of all tenants. Every verb gives the facts of its answer, or raises Refused and changes nothing."""

    def __init__(self, clock: SettableClock) -> None:
        self.clock = clock
        self.sessions: dict[tuple[str, str], ModelSession] = {}
        self.named: dict[tuple[str, str, str, int], str] = {}  # (tenant, user, external_id, generation)
        self.keyed: dict[tuple[str, str, str, str], str] = {}  # (tenant, user, side, key)
        self.forks: dict[tuple[str, str, str, str], tuple[str | None, str]] = {}  # (tenant, source, side, key)

    # -- who sees what

    def sees(self, who: Principal, session: ModelSession) -> bool:
        bound = who.subject if who.role == "user" else who.acting_for
        return session.tenant_id == who.tenant_id and bound in (None, session.user_id)

    def visible(self, who: Principal, session_id: str) -> ModelSession:
        session = self.sessions.get((who.tenant_id, session_id))
        if session is None or not self.sees(who, session):
            raise Refused("session_not_found")
        return session

    # -- what becomes true by itself

    def settle(self, session: ModelSession, writer: tuple[str, int] | None = None) -> None:
        while True:
            now = self.clock.now
            expires, erases, asked_until = session.expires, session.erases, session.asked_until
            if asked_until is not None and now >= asked_until and (expires is None or asked_until < expires):
                self._expire_question(session, asked_until)
            elif expires is not None and now >= expires:
                lifetime = session.policy.max_lifetime
                late = lifetime is not None and now >= session.clock_from + lifetime
                reason = "max_lifetime" if late else "idle"
                session.expired_in = self._leave(session, "operator", "EXPIRED", reason, at=expires)
                session.closed = expires  # retention counts from the instant, not from who met it
            elif erases is not None and now >= erases:
                self._bury(session, "operator", "retention")
            elif not self._end_a_lost_run(session, writer):
                return

    def _expire_question(self, session: ModelSession, instant: int) -> None:
        """The run has failed at that instant, whoever met it: idle counts from there."""
        change = Change(self, session, "operator")
        assert session.turn is not None
        change.end_run(session.runs[session.turn], "FAILED", "question_expired", error="question_expired")
        change.is_activity = False
        session.active = max(session.active, instant)
        change.done()

    def _end_a_lost_run(self, session: ModelSession, writer: tuple[str, int] | None) -> bool:
        """The first run whose lease is over: its worker, or the client that waits for its turn, is gone."""
        for run_id in [*([session.turn] if session.turn else []), *session.queue]:
            lease = session.leases.get(run_id)
            if lease is None or (lease.clock == self.clock.lease_clock and self.clock.lease_now < lease.until):
                continue
            if session.runs[run_id].status != "RUNNING":
                change = Change(self, session, "operator")
                change.end_run(session.runs[run_id], "CANCELLED", "client_lost")
                change.done()
                return True
            if not self._holds(session, writer):
                self._lose_worker(session)
                return True
        return False

    def _holds(self, session: ModelSession, writer: tuple[str, int] | None) -> bool:
        if writer is None:
            return False
        if writer[0] in session.children:
            return writer[1] == 1
        if session.turn != writer[0]:
            return False
        run = session.runs[writer[0]]
        return run.status == "RUNNING" and run.attempt == writer[1]

    def _lose_worker(self, session: ModelSession) -> None:
        with_change = Change(self, session, "operator")
        assert session.turn is not None
        run = session.runs[session.turn]
        if run.cancel_requested:
            with_change.end_run(run, "CANCELLED", "cancelled")
        elif run.attempt - len(run.answered) < run.max_attempts:
            with_change.end_children("FAILED", "worker_lost", error="worker_lost")
            with_change.end_calls_of(run, "unknown")
            run.status = "READY"
            with_change.wrote_run(run)
            with_change.event("run_returned", run_id=run.run_id)
            with_change.is_activity = True
            del session.leases[run.run_id]
        else:
            with_change.end_children("FAILED", "worker_lost", error="worker_lost")
            with_change.end_run(run, "FAILED", "worker_lost", error="worker_lost")
        with_change.done()

    def _leave(self, session: ModelSession, actor: str, status: str, reason: str, *, at: int | None = None) -> int:
        """CLOSED or EXPIRED, with everything that is open. ``at``: the instant, where it was by itself."""
        kind = "session_closed" if status == "CLOSED" else "session_expired"
        change = Change(self, session, actor)
        for run_id in [*session.queue, *session.children, *([session.turn] if session.turn else [])]:
            change.end_run(session.runs[run_id], "CANCELLED", kind)
        for call in session.open_calls():
            change.end_call(call, "unknown")
        change.event(kind, note=(reason, at))
        change.moved(status, reason)
        return change.done()

    def _bury(self, session: ModelSession, actor: str, reason: str) -> int:
        change = Change(self, session, actor)
        change.event("session_deleted")
        change.moved("DELETED", reason)
        version = change.done()
        session.title, session.metadata, session.memory = "", {}, {}
        session.turn, session.queue, session.runs, session.calls, session.asked = None, [], {}, {}, []
        session.children = []
        session.keys, session.external_id, session.leases = {}, None, {}
        return version

    # -- the frame of every write

    def write(
        self,
        who: Principal,
        session_id: str,
        effect: Callable[[ModelSession], Facts],
        *,
        request: Any,
        key: str | None = None,
        expected: int | None = None,
        writer: tuple[str, int] | None = None,
        allowed: Callable[[ModelSession], bool] | bool = True,
        needs_active: bool = True,
        turn_check: Callable[[ModelSession], None] = lambda _: None,
        version_check: Callable[[ModelSession], None] | None = None,
        deleted: Callable[[ModelSession], Facts] | None = None,
    ) -> Facts:
        """The order of checks. ``effect`` refuses before it changes anything."""
        session = self.visible(who, session_id)
        self.settle(session, writer)
        if not (allowed if isinstance(allowed, bool) else allowed(session)):
            raise Refused("not_allowed")
        if session.status == "DELETED":
            if deleted is not None:
                return deleted(session)
            raise Refused("session_deleted")
        # A run's own keys hold run and attempt.
        side = side_of(who) if writer is None else f"{side_of(who)} {writer}"
        place = None if key is None else (side, key)
        if place is not None and place in session.keys:
            first, answer = session.keys[place]
            if first != request:
                raise Refused("idempotency_mismatch")
            return answer | {"replayed": True}
        if needs_active and session.status != "ACTIVE":
            raise Refused("session_closed" if session.status == "CLOSED" else "session_expired")
        if writer is not None and not self._holds(session, writer):
            raise Refused("run_fenced")
        turn_check(session)
        if version_check is not None:
            version_check(session)
        elif expected is not None and expected != session.version:
            raise conflict(session, expected)
        answer = effect(session)
        answer.setdefault("replayed", False)
        if place is not None and session.status != "DELETED":
            session.keys[place] = (request, answer)
        return answer


def conflict(session: ModelSession, expected: int) -> Refused:
    changed = sorted(part for part, version in session.changed.items() if version > expected)
    return Refused("version_conflict", expected=expected, current=session.version, changed=changed)


class Change:
    """One accepted change of one session: what every verb does to the log and to what follows from it."""

    def __init__(self, model: Model, session: ModelSession, actor: str) -> None:
        self.session = session
        self.clock = model.clock
        self.actor = actor
        self.version = session.version + 1
        self.is_activity = actor != "operator"

    def event(self, kind: str, *, actor: str | None = None, **facts: Any) -> int:
        seq = self.session.last_seq + 1
        by = actor or self.actor
        entry = Entry(seq=seq, version=self.version, kind=kind, at=self.clock.now, actor=by, **facts)
        self.session.log.append(entry)
        return seq

    def touch(self, part: str) -> None:
        self.session.changed[part] = self.version

    def done(self) -> int:
        session = self.session
        session.version = self.version
        session.updated = max(session.updated, self.clock.now)
        if self.is_activity:
            session.active = max(session.active, self.clock.now)
        return self.version

    def moved(self, status: str, reason: str) -> None:
        self.session.status = status
        self.session.closed = None if status == "ACTIVE" else self.clock.now
        self.session.lifecycle.append((status, self.actor, reason))
        self.touch("status")

    def message(
        self,
        body: Any,
        *,
        role: str,
        asks: tuple[str, ...] = (),
        answers: str | None = None,
        run_id: str | None = None,
        status: str = "complete",
        refers_to: int | None = None,
        actor: str | None = None,
    ) -> int:
        facts = {"body": body, "role": role, "run_id": run_id, "status": status, "refers_to": refers_to}
        seq = self.event("message", actor=actor, **facts)
        self.touch("messages")
        self.session.asked = [*self.session.asked, *[self.as_asked(run_id, label) for label in asks]][-128:]
        if self.is_asked(run_id, answers):
            self.session.asked.remove(self.as_asked(run_id, answers))
        return seq

    def as_asked(self, run_id: str | None, label: str | None) -> str:
        """A child's labels are its own."""
        return f"{run_id}\n{label}" if run_id in self.session.children else f"{label}"

    def is_asked(self, run_id: str | None, label: str | None) -> bool:
        return label is not None and self.as_asked(run_id, label) in self.session.asked

    # -- tool calls

    def end_call(self, call: ModelCall, status: str, *, result: Any = None, error: Any = None) -> None:
        """By a message of ours if an assistant asked for this label, else by an event."""
        if self.is_asked(call.run_id, call.label) and status in ("succeeded", "failed"):
            said = error if status == "failed" else result
            body = {
                "role": "tool",
                "tool_call_id": call.label,
                "content": said if isinstance(said, str) else Json(said),
            }
            self.message(body, role="tool", answers=call.label, run_id=call.run_id, refers_to=call.seq)
        else:
            self.event("tool_call_finished", run_id=call.run_id, refers_to=call.seq)
        self.ended_call(call, status, result=result, error=error)

    def ended_call(self, call: ModelCall, status: str, *, result: Any = None, error: Any = None) -> None:
        call.status, call.result, call.error = status, result, error
        call.end, call.version = self.clock.now, self.version
        self.touch("tool_history")
        self.count_step(call.run_id)

    def end_calls_of(self, run: ModelRun, status: str) -> None:
        for call in self.session.open_calls():
            if call.run_id == run.run_id:
                self.end_call(call, status)

    # -- runs

    def wrote_run(self, run: ModelRun) -> None:
        run.version = self.version
        self.touch("runs")

    def count_step(self, run_id: str | None) -> None:
        run = self.session.runs.get(run_id or "")
        if run is not None and run.status not in ENDED:
            run.steps += 1
            self.wrote_run(run)

    def say_input(self, run: ModelRun, status: str) -> None:
        if run.input is not None and run.input_seq is None:
            run.input_seq = self.message(run.input, role="user", run_id=run.run_id, status=status, actor=run.added_by)

    def start_run(self, run: ModelRun, lease: int) -> None:
        self.say_input(run, "complete")
        run.status = "RUNNING"
        if run.attempt == 0 or run.run_id not in self.session.leases:  # else its client waited in place, and goes on
            run.layer, run.layer_base = {}, {}
        run.attempt += 1
        run.started = self.clock.now if run.started is None else run.started
        self.wrote_run(run)
        self.event("run_started", run_id=run.run_id)
        self.session.turn = run.run_id
        self.give_lease(run, lease)

    def give_lease(self, run: ModelRun, each: int) -> None:
        until = self.clock.lease_now + each
        self.session.leases[run.run_id] = Lease(each=each, until=until, clock=self.clock.lease_clock)

    def end_run(
        self, run: ModelRun, status: str, stop_reason: str, *, error: str | None = None, calls: str = "unknown"
    ) -> None:
        session = self.session
        if session.turn == run.run_id:
            self.end_children("CANCELLED", "parent_ended", calls=calls)
        self.end_calls_of(run, calls)
        self.say_input(run, "unanswered")
        run.status, run.ended, run.stop_reason, run.error = status, self.clock.now, stop_reason, error
        run.question, run.expires = None, None
        self.wrote_run(run)
        self.event("run_ended", run_id=run.run_id)
        if session.turn == run.run_id:
            session.turn = session.queue.pop(0) if session.queue else None
        elif run.parent_run_id is not None:
            session.children.remove(run.run_id)
        else:
            session.queue.remove(run.run_id)
        session.leases.pop(run.run_id, None)
        self.is_activity = True

    def end_children(self, status: str, reason: str, *, error: str | None = None, calls: str = "unknown") -> None:
        for run_id in list(self.session.children):
            self.end_run(self.session.runs[run_id], status, reason, error=error, calls=calls)

    def merge(self, run: ModelRun) -> None:
        """The run completes: its layer goes into the memory, but for what somebody else changed meanwhile."""
        session = self.session
        own = seen(session.memory, run.layer)
        clashing = [
            name
            for name, base in run.layer_base.items()
            if session.memory.get(name, empty(name)) != base
            and own.get(name, empty(name)) != session.memory.get(name, empty(name))
        ]
        merged = seen(session.memory, run.layer, without=clashing)
        if merged != session.memory:
            session.memory = merged
            self.event("working_memory_changed", run_id=run.run_id)
            self.touch("working_memory")
        if clashing:
            kept = {name: own.get(name, empty(name)) for name in clashing}
            run.not_merged = {"reason": "changed", "patch": {"set": kept}}
        run.layer, run.layer_base = {}, {}

    def stop_run(self, run: ModelRun, reason: str) -> None:
        if run.status != "RUNNING":
            self.end_run(run, "CANCELLED", reason, calls="cancelled")
        elif not run.cancel_requested:
            run.cancel_requested = True
            self.wrote_run(run)
            self.event("run_cancel_requested", run_id=run.run_id)


@dataclass(frozen=True)
class Json:
    """Any JSON text of this value. (A session that is copied has copies of it, which are equal.)"""

    value: Any
