"""A service's problems as the errors that a manager on the store raises, with their fields."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from satchel import errors
from satchel.errors import SatchelError, ServiceBusy, ServiceRefused

Facts = Mapping[str, Any]

# What a call was about, for those errors that a service does not repeat it in: session_id, run_id, message, call.
About = Mapping[str, Any]
Build = Callable[[Facts, About], SatchelError]

STORE = "the service's store is away"

BUSY = frozenset({"rate_limited", "too_many_runs", "too_many_streams", "draining", "body_too_slow"})

# What may be tried again later is not always worth waiting for: these end when somebody does something.
NOT_SOON = frozenset({"queue_full", "too_many_runs"})


class Refusal(msgspec.Struct, frozen=True):
    """An answer that is an error. ``is_ours``: it is a problem document of a service."""

    status: int
    problem: Facts
    is_ours: bool
    retry_after: float | None = None

    @property
    def code(self) -> str:
        return str(self.problem.get("code", "http"))

    @property
    def is_worth_waiting(self) -> bool:
        return self.status in (429, 502, 503, 504) and self.code not in NOT_SOON

    @property
    def leaves_unknown(self) -> bool:
        """Whether a write may be done though this was answered: by somebody between us and the service, or by a service
        that broke."""
        return self.status >= 500 and (not self.is_ours or self.code in ("internal_error", "outcome_unknown"))

    @property
    def is_before_the_key(self) -> bool:
        """Whether it was said before anybody looked what an earlier try had done: it takes nothing back."""
        return self.status in (401, 408, 429) or self.status >= 500

    def error(self, about: About) -> SatchelError:
        build = _BUILDERS.get(self.code)
        if self.is_ours and build is not None:
            try:
                return build(self.problem, about)
            except (KeyError, TypeError, ValueError):  # a service of another version says something else here
                pass
        detail = str(self.problem.get("detail", "no problem document came with it"))
        if self.code in BUSY:
            return ServiceBusy(problem=self.code, detail=detail, retry_after=self.retry_after)
        request_id = str(self.problem.get("request_id", ""))
        return ServiceRefused(status=self.status, problem=self.code, detail=detail, request_id=request_id)


def refusal_of(status: int, headers: Mapping[str, str], body: bytes) -> Refusal:
    """Of an answer from 300 on."""
    problem: Any = None
    if headers.get("content-type", "").startswith("application/problem+json"):
        try:
            problem = msgspec.json.decode(body)
        except (msgspec.DecodeError, ValueError, RecursionError):  # also half a character, or a thousand brackets
            problem = None
    after = headers.get("retry-after", "")
    retry_after = float(after) if after.isascii() and after.isdigit() and len(after) < 10 else None
    if isinstance(problem, dict):
        return Refusal(status, problem, True, retry_after)
    return Refusal(status, {}, False, retry_after)


def _field(place: Facts) -> str:
    """As the manager calls it."""
    return str(place.get("field") or place.get("parameter") or place.get("header") or "body")


def _pointer(place: Facts) -> str:
    """Within the field."""
    pointer = str(place.get("pointer", ""))
    base = "/" + _field(place).replace("[", "/").replace("]", "").replace(".", "/")
    return pointer.removeprefix(base)


def _plain(kind: Callable[..., SatchelError], *names: str) -> Build:
    """By keyword, from the facts of the same name."""

    def build(facts: Facts, _: About) -> SatchelError:
        return kind(**{name: facts[SHOWN_AS.get(name, name)] for name in names})

    return build


def _of(kind: Callable[[Any], SatchelError], name: str) -> Build:
    """By position, from what the service says, else from what was asked."""

    def build(facts: Facts, about: About) -> SatchelError:
        return kind(facts[name] if name in facts else about[name])

    return build


def _invalid(facts: Facts, _: About) -> SatchelError:
    place = facts["errors"][0]
    return errors.InvalidInput(place["detail"], field=_field(place), pointer=_pointer(place))


def _limit(facts: Facts, _: About) -> SatchelError:
    numbers = {name: facts[name] for name in ("size", "limit", "setting", "unit")}
    return errors.LimitExceeded(field=_field(facts["errors"][0]), **numbers)


def _version_conflict(facts: Facts, _: About) -> SatchelError:
    return errors.VersionConflict(
        expected=facts["expected_version"], current=facts["current_version"], changed=facts["changed"]
    )


KEY_REFUSED = (
    "the service does not take the key that connect() was given: it is unknown there, or was revoked, or has expired"
)
SHOWN_AS = {"status": "current_status"}  # a problem has a status of its own

_BUILDERS: dict[str, Build] = {
    "unauthenticated": lambda _, __: errors.Unauthenticated(KEY_REFUSED),
    "invalid_input": _invalid,
    "limit_exceeded": _limit,
    "invalid_cursor": lambda _, __: errors.InvalidCursor(),
    "session_not_found": _of(errors.SessionNotFound, "session_id"),
    "run_not_found": _of(errors.RunNotFound, "run_id"),
    "message_not_found": _of(errors.MessageNotFound, "message"),
    "tool_call_not_found": _of(errors.ToolCallNotFound, "call"),
    "not_allowed": _plain(errors.NotAllowed, "role", "action"),
    "version_conflict": _version_conflict,
    "version_required": _plain(errors.VersionRequired, "action"),
    "idempotency_mismatch": lambda _, __: errors.IdempotencyMismatch(),
    "session_exists": _of(errors.SessionExists, "session_id"),
    "session_closed": _of(errors.SessionClosed, "session_id"),
    "session_expired": _of(errors.SessionExpired, "session_id"),
    "session_deleted": _of(errors.SessionDeleted, "session_id"),
    "restore_refused": _plain(errors.RestoreRefused, "status", "policy"),
    "run_active": _of(errors.RunActive, "run_id"),
    "queue_full": _plain(errors.QueueFull, "size", "limit", "setting", "unit"),
    "run_fenced": _plain(errors.RunFenced, "run_id", "attempt", "reason"),
    "run_nested": _of(errors.RunNested, "run_id"),
    "stream_gap": _plain(errors.StreamGap, "run_id", "message", "expected", "offset"),
    "resync": _plain(errors.ResyncRequired, "session_id", "after", "last_seq"),
    "illegal_transition": _plain(errors.IllegalTransition, "run_id", "current", "wanted", "reason"),
    "cancel_requested": _of(errors.CancelRequested, "run_id"),
    "other_question": _plain(errors.OtherQuestion, "run_id", "name", "pending"),
    "tool_call_open": _plain(errors.ToolCallOpen, "tool_call_id", "seq"),
    "step_open": _plain(errors.StepOpen, "step", "seq"),
    "tool_call_ended": _plain(errors.ToolCallEnded, "seq", "status"),
    "store_busy": lambda facts, _: errors.StoreBusy(facts["detail"]),
    "store_unavailable": lambda _, __: errors.StoreUnavailable(STORE),
    "outcome_unknown": lambda _, __: errors.OutcomeUnknown(STORE),
    "store_corrupt": lambda _, __: errors.StoreCorrupt("what was asked for"),
}
