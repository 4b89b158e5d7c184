"""A principal's access to a store: references, keys, decisions handed in, and reading what is one's own."""

from __future__ import annotations

import os
from collections.abc import AsyncIterable, Awaitable, Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from typing import Any, Protocol, TypeVar

from satchel.commit import Committed
from satchel.domain.clock import from_datetime
from satchel.domain.decisions.decision import Decision
from satchel.domain.decisions.housekeeping import Settle
from satchel.domain.idempotency import checked_key, fingerprint, key_hash
from satchel.domain.ids import SessionRef, checked_id, join_parts
from satchel.domain.json_text import kind_of
from satchel.domain.limits import Limits
from satchel.domain.message import Draft
from satchel.domain.policy import Policy, SessionPolicy
from satchel.domain.principal import Principal
from satchel.domain.record import SessionRecord
from satchel.domain.rights import may_see
from satchel.domain.run import Attempt
from satchel.domain.state import Clock
from satchel.domain.stream import TextPosition
from satchel.domain.tokens import TokenCounter
from satchel.domain.upkeep import is_overdue
from satchel.errors import (
    InvalidInput,
    OutcomeUnknown,
    SessionDeleted,
    SessionNotFound,
    StoreBusy,
    StoreError,
    StoreMisused,
    StoreUnavailable,
    Unauthenticated,
)
from satchel.opened import OpenStore
from satchel.store import Store
from satchel.stores.memory import MemoryStore

V = TypeVar("V")


class Read(Protocol):
    """Every answer of a store about one session."""

    @property
    def record(self) -> SessionRecord | None: ...

    @property
    def clock(self) -> Clock: ...


R = TypeVar("R", bound=Read)


class Access:
    """One principal's way into one store. What a principal cannot see does not exist here."""

    def __init__(self, opened: OpenStore, principal: Principal, policy: SessionPolicy) -> None:
        self.opened = opened
        self.principal = principal
        self.policy = policy
        self.limits: Limits = opened.limits
        self.count_tokens: TokenCounter = opened.count_tokens
        self._side = join_parts(principal.side)

    @property
    def store(self) -> Store:
        return self.opened.store

    def ref(self, session_id: str) -> SessionRef:
        if type(session_id) is not str:
            raise InvalidInput(f"must be text, not {type(session_id).__name__}", field="session_id")
        # Every id that exists is of this form: any other is as unknown as a wrong one.
        if not session_id.isascii() or not session_id.isprintable() or len(session_id) > self.limits.id:
            raise SessionNotFound(session_id[:128].encode("ascii", "backslashreplace").decode())
        return SessionRef(self.principal.tenant_id, session_id)

    def key(self, idempotency_key: str | None, attempt: Attempt | None = None) -> dict[str, Any]:
        """A decision's ``key`` and ``caller_key``. Without the caller's key one is drawn, for the store's own retries."""
        if idempotency_key is None:
            return {"key": os.urandom(16), "caller_key": False}
        checked = checked_key(idempotency_key, limits=self.limits)
        # A run's own keys hold run and attempt: a step of the next run, or the next attempt, may be called the same.
        side = self._side if attempt is None else self._side + join_parts(attempt.run_id, str(attempt.attempt))
        return {"key": key_hash(checked, side), "caller_key": True}

    def common(
        self, session_id: str, idempotency_key: str | None, expected_version: int | None, attempt: Attempt | None
    ) -> dict[str, Any]:
        if expected_version is not None:
            checked_whole(expected_version, field="expected_version")
        if attempt is not None:
            checked_attempt(attempt)
        fields = self.key(idempotency_key, attempt)
        fields["ref"] = self.ref(session_id)
        fields["principal"] = self.principal
        fields["expected_version"] = expected_version
        fields["attempt"] = attempt
        return fields

    def submit(self, decision: Decision[V]) -> Awaitable[Committed[V]]:
        return self.opened.committer.submit(decision)

    def checked(self, ref: SessionRef, record: SessionRecord | None) -> SessionRecord:
        """The record if it is there, this principal's, and not a tombstone. Raises SessionNotFound, SessionDeleted."""
        if record is None or record.hidden or not may_see(self.principal, record):
            raise SessionNotFound(ref.session_id)
        if record.status == "DELETED":
            raise SessionDeleted(ref.session_id)
        return record

    async def read(self, ref: SessionRef, fetch: Callable[[], Awaitable[R]]) -> tuple[R, SessionRecord]:
        """What ``fetch`` reads of a session of one's own. What is overdue in it is committed first; if the store takes no
        writes, the reader is told what holds all the same."""
        page = await fetch()
        record = self.checked(ref, page.record)
        if is_overdue(record, page.clock):
            try:
                await self.submit(Settle(ref=ref, principal=self.principal))
            except StoreError:
                if record.status_at(page.clock.now) == "DELETED":  # its retention is over
                    raise SessionDeleted(ref.session_id) from None
                return page, record
            page = await fetch()
            record = self.checked(ref, page.record)
        return page, record


def access_to(store: OpenStore | None, principal: Principal | None, policy: Policy | None) -> Access:
    """Without a store: a private ``memory:`` store that is gone with the process. Without a principal: Principal.local(),
    for a ``memory:`` store alone. Raises Unauthenticated."""
    opened = OpenStore(MemoryStore()) if store is None else store
    if not isinstance(opened, OpenStore):
        raise StoreMisused(f"a manager needs what satchel.open gives, not {type(opened).__name__}")
    if policy is not None:
        checked_policy(policy)
    if principal is not None and not isinstance(principal, Principal):
        raise Unauthenticated(f"no identity: must be a Principal, not {type(principal).__name__}")
    if principal is None:
        if opened.store.capabilities.name != "memory":
            raise Unauthenticated(
                "a store that outlives the process needs a principal, for example"
                ' Principal.agent("shop", tenant_id="acme", acting_for="ada")'
            )
        principal = Principal.local()
    return Access(opened, principal, (policy or Policy()).over(opened.policy))


@contextmanager
def behind_a_write() -> Iterator[None]:
    """What is done once a write was committed. Raises OutcomeUnknown where the store is away by now: that nothing was stored
    would not be true."""
    try:
        yield
    except (StoreUnavailable, StoreBusy) as away:
        raise OutcomeUnknown("it was done, and the store is away since") from away


request = fingerprint  # of one request: its verb, then its parts


def attempt_part(attempt: Attempt | None) -> str | None:
    return None if attempt is None else f"{attempt.run_id}/{attempt.attempt}"


def draft_parts(draft: Draft) -> tuple[bytes | str | None, ...]:
    return draft.body, draft.format, draft.metadata


MOST = 2**63 - 1  # what a database can hold, or compare


def checked_whole(value: object, *, field: str, least: int = 0) -> None:
    """Raises InvalidInput unless ``value`` is a whole number from ``least``, of at most 64 bits."""
    if type(value) is not int or not least <= value <= MOST:
        raise InvalidInput(f"must be a whole number from {least}" + _at_most(value), field=field)


def _at_most(value: object) -> str:
    return f" to {MOST}" if type(value) is int and value > MOST else ""


def checked_choice(value: object, choices: Collection[str], *, field: str, note: str = "") -> None:
    """Raises InvalidInput unless ``value`` is one of these texts."""
    if type(value) is not str or value not in choices:
        raise InvalidInput(f"must be one of {', '.join(choices)}{note}", field=field)


def checked_flag(value: object, *, field: str) -> None:
    """Raises InvalidInput: what is merely truthy is more often a mistake than a yes."""
    if type(value) is not bool:
        raise InvalidInput(f"must be True or False, not {kind_of(value)}", field=field)


def checked_filters(limits: Limits, **filters: object) -> None:
    """Each is None (any), or an id. Raises InvalidInput, LimitExceeded."""
    for name, value in filters.items():
        if value is not None:
            checked_id(value, field=name, limits=limits)


def checked_attempt(attempt: object, *, field: str = "attempt") -> None:
    """Raises InvalidInput unless it is one that a run can have had."""
    if (
        not isinstance(attempt, Attempt)
        or type(attempt.run_id) is not str
        or not attempt.run_id.isascii()
        or type(attempt.attempt) is not int
    ):
        raise InvalidInput("must be an Attempt: Attempt(run.run_id, run.attempt)", field=field)


def checked_position(position: object) -> None:
    """Raises InvalidInput unless it can be a place in a streamed message."""
    if not isinstance(position, TextPosition) or type(position.run_id) is not str:
        raise InvalidInput("must be a TextPosition, as a TextDelta has it", field="position")
    for name in ("attempt", "message", "offset"):
        checked_whole(getattr(position, name), field=f"position.{name}")


def checked_policy(policy: object) -> None:
    if not isinstance(policy, Policy):
        raise InvalidInput(f"must be a Policy, not {kind_of(policy)}", field="policy")


def checked_items(items: object, *, field: str) -> None:
    """Raises InvalidInput unless one can go through it: a text is one thing, not many."""
    if isinstance(items, (str, bytes, bytearray, Mapping)) or not isinstance(items, (Iterable, AsyncIterable)):
        raise InvalidInput(f"must be several things to go through, not {kind_of(items)}", field=field)


def checked_limit(limit: int, *, most: int) -> int:
    """Raises InvalidInput: a page's size is never changed behind the caller's back."""
    if type(limit) is not int or not 1 <= limit <= most:
        raise InvalidInput(f"must be a whole number from 1 to {most}", field="limit")
    return limit


def checked_instant(value: object, *, field: str) -> int | None:
    if value is None:
        return None
    if not isinstance(value, datetime) or value.utcoffset() is None:
        raise InvalidInput("must be a datetime with a time zone", field=field)
    return from_datetime(value)
