"""Every error that Satchel raises on purpose.

    SatchelError
    ├── Unauthenticated              nobody is calling
    ├── InvalidInput                 the request by itself is wrong (also a ValueError)
    │   ├── LimitExceeded            too large, too many, too deep
    │   └── InvalidCursor            a cursor that this caller did not get for this list
    ├── FrozenSnapshot               a snapshot was written to (also an AttributeError)
    ├── NotFound                     unknown, or somebody else's: both look alike
    │   ├── SessionNotFound          (also a KeyError)
    │   ├── RunNotFound
    │   ├── MessageNotFound
    │   └── ToolCallNotFound
    ├── ExtraMissing                 this needs a package that is not installed
    ├── NotServed                    the HTTP API has no way to do this; a manager on the store itself has
    ├── ServiceRefused               a service refused, or failed, in a way that only HTTP knows
    ├── ToolCallFailed               what ctx.call ran failed, now or in an earlier attempt
    ├── NotAllowed                   yours, but your role may not do this
    ├── Conflict                     right by itself, refused by the state it met; nothing was stored
    │   ├── VersionConflict          expected_version is not the current one
    │   ├── VersionRequired          this write is only safe with an expected_version
    │   ├── IdempotencyMismatch      the key was used for another request
    │   ├── SessionExists            if_exists="raise" met a session of that external_id
    │   ├── SessionNotActive
    │   │   ├── SessionClosed
    │   │   ├── SessionExpired
    │   │   └── SessionDeleted       a tombstone, shown to its owner
    │   ├── RestoreRefused           the session's policy does not let this caller restore it
    │   ├── RunActive                another run has the turn
    │   ├── QueueFull                too many runs, or too much input, are waiting
    │   ├── RunFenced                this attempt no longer holds the run
    │   ├── RunNested                a child run cannot have child runs of its own
    │   ├── StreamGap                a piece of streamed text does not follow on what is stored
    │   ├── ResyncRequired           a follower has seen what is not in the log: a failover took it back
    │   ├── IllegalTransition        the run cannot go from this status to that one
    │   ├── CancelRequested          the run was asked to stop, and asks nothing any more
    │   ├── OtherQuestion            the run waits for the answer to another question
    │   ├── ToolCallOpen             a call of that label, or of the run, is still open
    │   ├── StepOpen                 a call of that step is still open
    │   └── ToolCallEnded            the call has ended already, with another outcome
    ├── RunFailed                    raised by an agent, to fail its run with a code of its own
    └── StoreError                   the store, not the request
        ├── StoreBusy                too much contention; nothing was stored
        │   └── ServiceBusy          a service takes no more from this caller at the moment
        ├── StoreUnavailable         the store is away; nothing was stored
        ├── OutcomeUnknown           the write may be there: repeat it with the same idempotency key
        ├── StoreCorrupt             what is stored cannot be read
        ├── StoreMisused             closed, not opened, or carried into another process
        ├── StoreNotDurable          the database's settings would lose what was acknowledged
        └── SchemaMismatch           the database is newer than this program, or half migrated

``code`` is stable and public, the sentence may improve. ``retryable`` says whether the very same call, with the
same idempotency key, may succeed later.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from typing import ClassVar


class SatchelError(Exception):
    """Root of the hierarchy."""

    code: ClassVar[str] = "error"
    retryable: ClassVar[bool] = False

    def __str__(self) -> str:
        # KeyError, a base of some errors here, would show the repr of its argument.
        return str(self.args[0]) if self.args else self.code


class Unauthenticated(SatchelError):
    """No principal, or one without an identity."""

    code = "unauthenticated"


class InvalidInput(SatchelError, ValueError):
    """The request is wrong by itself. ``pointer`` is a JSON Pointer (RFC 6901) to the place."""

    code = "invalid_input"

    def __init__(self, reason: str, *, field: str, pointer: str = "") -> None:
        self.reason = reason
        self.field = field
        self.pointer = pointer
        super().__init__(f"{field}{pointer and f' at {pointer}'}: {reason}")


class LimitExceeded(InvalidInput):
    """``size`` of ``field`` is above ``limit``; ``setting`` names the limit that may be changed."""

    code = "limit_exceeded"

    def __init__(self, *, field: str, size: int, limit: int, setting: str, unit: str = "bytes") -> None:
        self.size = size
        self.limit = limit
        self.setting = setting
        self.unit = unit
        super().__init__(f"{size} {unit}, the limit is {limit} (setting {setting})", field=field)


class InvalidCursor(InvalidInput):
    """The cursor was not given to this caller for this list."""

    code = "invalid_cursor"

    def __init__(self) -> None:
        super().__init__("not a cursor of this list; start again without one", field="cursor")


class FrozenSnapshot(SatchelError, AttributeError):
    """Somebody wrote to a snapshot. The sentence names the method that writes to the session."""

    code = "frozen_snapshot"


class NotFound(SatchelError):
    """Unknown to this caller: it does not exist, or it is somebody else's."""

    code = "not_found"


def _is_ours(text: object, prefix: str) -> bool:
    """Whether it looks like an id that Satchel made; a name of the caller's own may begin like one."""
    return isinstance(text, str) and re.fullmatch(prefix + "[a-z2-7]{24}", text) is not None


class SessionNotFound(NotFound, KeyError):
    code = "session_not_found"

    def __init__(self, session_id: str) -> None:
        self.session_id = session_id
        hint = ": that is a run's id; name its session, sess_…" if _is_ours(session_id, "run_") else ""
        super().__init__(f"no session {session_id!r}{hint}")


class RunNotFound(NotFound):
    code = "run_not_found"

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        hint = ": that is a session's id" if _is_ours(run_id, "sess_") else ""
        super().__init__(f"no run {run_id!r} in this session{hint}")


class MessageNotFound(NotFound):
    code = "message_not_found"

    def __init__(self, message: str | int) -> None:
        self.message = message
        super().__init__(f"no message {message!r} in this session")


class ToolCallNotFound(NotFound):
    code = "tool_call_not_found"

    def __init__(self, call: str | int) -> None:
        self.call = call
        super().__init__(f"no tool call {call!r} in this session")


# What each extra of pyproject.toml consists of. Satchel itself is named in no line to install: it is on no index.
EXTRAS: Mapping[str, tuple[str, ...]] = {
    "cli": ("cyclopts", "jsonschema-rs", "rich"),
    "client": ("httpx",),
    "jwt": ("pyjwt[crypto]",),
    "mysql": ("asyncmy", "cryptography"),
    "openai": ("openai",),
    "otel": ("opentelemetry-api", "opentelemetry-exporter-otlp-proto-http", "opentelemetry-sdk"),
    "postgres": ("asyncpg",),
    "questions": ("jsonschema-rs",),
    "redis": ("redis[hiredis]",),
    "server": ("httptools", "jsonschema-rs", "litestar", "prometheus-client", "uvicorn"),
}


class ExtraMissing(SatchelError):
    """``extra`` names what is missing beside Satchel, ``packages`` what it consists of."""

    code = "extra_missing"

    def __init__(self, extra: str, *, action: str) -> None:
        self.extra = extra
        self.packages = EXTRAS[extra]
        first, *others = self.packages
        missing = "packages that are not installed" if others else f"{first.partition('[')[0]}, which is not installed"
        super().__init__(
            f"{action} needs {missing}: pip install {shlex.join(self.packages)} (the extra {extra!r} of satchel)"
        )


class NotServed(SatchelError):
    """Asked of a manager that works over HTTP, where there is no way to do it."""

    code = "not_served"

    def __init__(self, action: str) -> None:
        self.action = action
        super().__init__(f"a service does not {action}; use a manager on the store itself (satchel.open)")


class ServiceRefused(SatchelError):
    """A service answered with ``status`` and a problem that no store knows: ``problem`` is its code (``internal_error``,
    ``too_many_sessions``, …, or ``http`` for an answer that was not a service of ours), ``request_id`` names the request in
    the service's log."""

    code = "service_refused"

    def __init__(self, *, status: int, problem: str, detail: str, request_id: str = "") -> None:
        self.status = status
        self.problem = problem
        self.detail = detail
        self.request_id = request_id
        named = f" (request {request_id})" if request_id else ""
        super().__init__(f"the service answered {status} {problem}: {detail}{named}")


class ToolCallFailed(SatchelError):
    """A tool failed that ``ctx.call`` was to run: now, or in an earlier attempt. ``error`` is what the tool history keeps."""

    code = "tool_call_failed"

    def __init__(self, *, tool: str, step: str | None, error: object) -> None:
        self.tool = tool
        self.step = step
        self.error = error
        named = "" if step is None else f" (step {step!r})"
        super().__init__(f"{tool}{named} failed: {error}")


class NotAllowed(SatchelError):
    """The session is the caller's, but the caller's role may not do this."""

    code = "not_allowed"

    def __init__(self, *, role: str, action: str) -> None:
        self.role = role
        self.action = action
        super().__init__(f"role {role!r} may not {action}")


class Conflict(SatchelError):
    """The request met a state that refuses it. Nothing was stored."""

    code = "conflict"


class VersionConflict(Conflict):
    """``expected`` is not ``current``; ``changed`` names the parts of the session that changed since."""

    code = "version_conflict"

    def __init__(self, *, expected: int, current: int, changed: Sequence[str]) -> None:
        self.expected = expected
        self.current = current
        self.changed = tuple(changed)
        if expected > current:
            sentence = f"expected version {expected} is newer than the current one, {current}"
        else:
            sentence = (
                f"expected version {expected}, the current one is {current} (changed since: {', '.join(self.changed)});"
                " read again, merge, and write with the current version"
            )
        super().__init__(sentence)


class VersionRequired(Conflict):
    """A write that replaces what others may have written needs ``expected_version``, or the run that has the turn."""

    code = "version_required"

    def __init__(self, *, action: str) -> None:
        self.action = action
        super().__init__(f"{action}: give expected_version, or write as the run that has the turn")


class IdempotencyMismatch(Conflict):
    code = "idempotency_mismatch"

    def __init__(self) -> None:
        super().__init__("this idempotency key was used for another request in this session; take a new key")


class SessionExists(Conflict):
    code = "session_exists"

    def __init__(self, session_id: str) -> None:
        self.session_id = session_id
        super().__init__(f"a session of this external_id exists: {session_id}")


class SessionNotActive(Conflict):
    """The session takes no writes in its status."""

    code = "session_not_active"


class SessionClosed(SessionNotActive):
    code = "session_closed"

    def __init__(self, session_id: str) -> None:
        self.session_id = session_id
        super().__init__(f"session {session_id} is CLOSED and takes no writes; restore_session opens it again")


class SessionExpired(SessionNotActive):
    code = "session_expired"

    def __init__(self, session_id: str) -> None:
        self.session_id = session_id
        super().__init__(f"session {session_id} is EXPIRED and takes no writes; restore_session opens it again")


class SessionDeleted(SessionNotActive):
    code = "session_deleted"

    def __init__(self, session_id: str) -> None:
        self.session_id = session_id
        super().__init__(f"session {session_id} was deleted; its id is never used again")


class RestoreRefused(Conflict):
    code = "restore_refused"

    def __init__(self, *, status: str, policy: str) -> None:
        self.status = status
        self.policy = policy
        super().__init__(f"this session's policy restores {status} sessions by: {policy}")


class RunActive(Conflict):
    """Another run has the turn: ``run_id`` names it."""

    code = "run_active"

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        super().__init__(f'run {run_id} has the turn; wait for it, or add with on_busy="queue" or "cancel"')


class QueueFull(Conflict):
    code = "queue_full"
    retryable = True

    def __init__(self, *, size: int, limit: int, setting: str, unit: str) -> None:
        self.size = size
        self.limit = limit
        self.setting = setting
        self.unit = unit
        super().__init__(f"{size} {unit} would wait for the turn, the limit is {limit} (setting {setting})")


class RunFenced(Conflict):
    """The caller wrote as an attempt of a run that it no longer holds."""

    code = "run_fenced"

    def __init__(self, *, run_id: str, attempt: int, reason: str) -> None:
        self.run_id = run_id
        self.attempt = attempt
        self.reason = reason
        super().__init__(f"attempt {attempt} of run {run_id} holds it no longer: {reason}")


class StreamGap(Conflict):
    """A piece of streamed text does not follow on what is stored of its message: text between is missing, or other text
    stands there."""

    code = "stream_gap"

    def __init__(self, *, run_id: str, message: int, expected: int, offset: int) -> None:
        self.run_id = run_id
        self.message = message
        self.expected = expected
        self.offset = offset
        super().__init__(
            f"streamed message {message} of run {run_id} goes on at character {expected}, this text begins at {offset}"
        )


class ResyncRequired(Conflict):
    """Whoever follows the log has seen what is not in it (any more): more than there is, or another event in that place. A
    failover may take back what nobody was told was done (capability ``prefix_after_failover``). What was acknowledged is in the
    log: read it again, from its beginning or from a seq that the answer to a write named. ``last_seq``: where it ends now."""

    code = "resync"

    def __init__(self, *, session_id: str, after: int, last_seq: int) -> None:
        self.session_id = session_id
        self.after = after
        self.last_seq = last_seq
        super().__init__(
            f"what was seen of the log of {session_id} up to seq {after} is not what it holds (it ends at {last_seq}); read it again"
        )


class RunNested(Conflict):
    """``run_id`` is a child run: what it would add is added to its parent."""

    code = "run_nested"

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        super().__init__(f"run {run_id} is a child run and cannot have child runs of its own; add it to the parent")


class IllegalTransition(Conflict):
    code = "illegal_transition"

    def __init__(self, *, run_id: str, current: str, wanted: str, reason: str = "") -> None:
        self.run_id = run_id
        self.current = current
        self.wanted = wanted
        self.reason = reason
        super().__init__(f"run {run_id} is {current}" + (f": {reason}" if reason else f" and cannot become {wanted}"))


class CancelRequested(Conflict):
    """Somebody asked the run to stop: it may finish what it does, and begins no wait for an answer."""

    code = "cancel_requested"

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        super().__init__(f"run {run_id} was asked to stop, and asks nothing any more")


class OtherQuestion(Conflict):
    """``pending`` is the name of the question that the run waits for."""

    code = "other_question"

    def __init__(self, *, run_id: str, name: str, pending: str) -> None:
        self.run_id = run_id
        self.name = name
        self.pending = pending
        super().__init__(f"run {run_id} waits for the answer to {pending!r}, not to {name!r}")


class ToolCallOpen(Conflict):
    code = "tool_call_open"

    def __init__(self, *, tool_call_id: str | None, seq: int) -> None:
        self.tool_call_id = tool_call_id
        self.seq = seq
        which = "a call of this run" if tool_call_id is None else f"a call labelled {tool_call_id!r}"
        super().__init__(f"{which} is still open (seq {seq}); finish it first")


class StepOpen(Conflict):
    """The step was started and has no outcome yet."""

    code = "step_open"

    def __init__(self, *, step: str, seq: int) -> None:
        self.step = step
        self.seq = seq
        super().__init__(f"step {step!r} is still open (seq {seq}): one call at a time has a step's name")


class ToolCallEnded(Conflict):
    code = "tool_call_ended"

    def __init__(self, *, seq: int, status: str) -> None:
        self.seq = seq
        self.status = status
        super().__init__(f"tool call {seq} has ended already: {status}")


class RunFailed(SatchelError):
    """Raised by an agent: its run ends as FAILED with ``error_code`` and the sentence, and nobody's traceback is logged."""

    code = "run_failed"

    def __init__(self, error_code: str, message: str) -> None:
        self.error_code = error_code
        self.message = message
        super().__init__(message)


class StoreError(SatchelError):
    """The store could not do what a correct request asked for."""

    code = "store_error"


class StoreBusy(StoreError):
    """Too much contention. Nothing was stored."""

    code = "store_busy"
    retryable = True

    def __init__(
        self, reason: str = "the session changed faster than this write could follow; nothing was stored"
    ) -> None:
        super().__init__(reason)


class ServiceBusy(StoreBusy):
    """``problem`` says what there was too much of: ``rate_limited``, ``too_many_runs``, ``too_many_streams``, or ``draining``
    for a service that is about to stop. ``retry_after``: seconds."""

    code = "service_busy"

    def __init__(self, *, problem: str, detail: str, retry_after: float | None = None) -> None:
        self.problem = problem
        self.detail = detail
        self.retry_after = retry_after
        super().__init__(f"{detail} ({problem}); nothing was stored")


class StoreUnavailable(StoreError):
    """The store is away. Nothing was stored. ``mend``: what its operator can do, if that is known."""

    code = "store_unavailable"
    retryable = True

    def __init__(self, reason: str, *, mend: str = "") -> None:
        self.reason = reason
        self.mend = mend
        said = f"the store is not available ({reason}); nothing was stored"
        super().__init__(f"{said}. What mends it: {mend}" if mend else said)


class OutcomeUnknown(StoreError):
    """The store went away during a commit. Repeat the call with the same idempotency key.

    ``idempotency_key``: over HTTP, the one that the call was made with, also where its caller gave none; else None.
    """

    code = "outcome_unknown"
    retryable = True
    idempotency_key: str | None = None

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(f"the write may or may not be stored ({reason}); repeat it with the same idempotency key")


class StoreCorrupt(StoreError):
    """What is stored is damaged. Reads show what is left; a write that needs what is lost is refused. ``mend``: what its
    operator can do, if that is known."""

    code = "store_corrupt"

    def __init__(self, what: str, *, trouble: str = "is stored in a form that cannot be read", mend: str = "") -> None:
        self.what = what
        self.trouble = trouble
        self.mend = mend
        super().__init__(f"{what} {trouble}. What mends it: {mend}" if mend else f"{what} {trouble}")


class StoreMisused(StoreError):
    code = "store_misused"


class StoreNotDurable(StoreError):
    """A store is not opened on settings that would lose what was acknowledged. ``line``: what mends it, as the database's manual
    writes it."""

    code = "store_not_durable"

    def __init__(self, what: str, *, line: str) -> None:
        self.what = what
        self.line = line
        super().__init__(f"{what}. What mends it: {line}")


class SchemaMismatch(StoreError):
    code = "schema_mismatch"

    def __init__(self, *, found: int, known: int) -> None:
        self.found = found
        self.known = known
        super().__init__(f"the database has schema {found}, this program knows {known}; update Satchel")
