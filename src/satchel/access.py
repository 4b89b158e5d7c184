"""A principal's access to a store: references, keys, decisions handed in, and reading what is one's own."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any, Protocol, TypeVar

from satchel.commit import Committed, OpenStore
from satchel.domain.clock import from_datetime
from satchel.domain.decisions.decision import Decision
from satchel.domain.decisions.housekeeping import Settle
from satchel.domain.idempotency import checked_key, fingerprint, key_hash
from satchel.domain.ids import SessionRef, join_parts
from satchel.domain.limits import Limits
from satchel.domain.message import Draft
from satchel.domain.policy import Policy, SessionPolicy
from satchel.domain.principal import Principal
from satchel.domain.record import SessionRecord
from satchel.domain.rights import may_see
from satchel.domain.run import Attempt
from satchel.domain.state import Clock
from satchel.domain.upkeep import is_overdue
from satchel.errors import InvalidInput, SessionDeleted, SessionNotFound, StoreError, Unauthenticated
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
        self._side = join_parts(principal.side)

    @property
    def limits(self) -> Limits:
        return self.opened.limits

    @property
    def store(self) -> Store:
        return self.opened.store

    def ref(self, session_id: str) -> SessionRef:
        if not isinstance(session_id, str):
            raise InvalidInput(f"must be text, not {type(session_id).__name__}", field="session_id")
        # Every id that exists is of this form: any other is as unknown as a wrong one.
        if not session_id.isascii() or not session_id.isprintable() or len(session_id) > self.limits.id:
            raise SessionNotFound(session_id[:128].encode("ascii", "backslashreplace").decode())
        return SessionRef(self.principal.tenant_id, session_id)

    def key(self, idempotency_key: str | None) -> dict[str, Any]:
        """A decision's ``key`` and ``caller_key``. Without the caller's key one is drawn, for the store's own retries."""
        if idempotency_key is None:
            return {"key": os.urandom(16), "caller_key": False}
        checked = checked_key(idempotency_key, limits=self.opened.limits)
        return {"key": key_hash(checked, self._side), "caller_key": True}

    def common(
        self, session_id: str, idempotency_key: str | None, expected_version: int | None, attempt: Attempt | None
    ) -> dict[str, Any]:
        if expected_version is not None:
            checked_whole(expected_version, field="expected_version")
        fields = self.key(idempotency_key)
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
                return page, record
            page = await fetch()
            record = self.checked(ref, page.record)
        return page, record


def access_to(store: OpenStore | None, principal: Principal | None, policy: Policy | None) -> Access:
    """Without a store: a private ``memory:`` store that is gone with the process. Without a principal: Principal.local(),
    for a ``memory:`` store alone. Raises Unauthenticated."""
    opened = OpenStore(MemoryStore()) if store is None else store
    if principal is None:
        if opened.store.capabilities.name != "memory":
            raise Unauthenticated(
                "a store that outlives the process needs a principal, for example"
                ' Principal.agent("shop", tenant_id="acme", acting_for="ada")'
            )
        principal = Principal.local()
    return Access(opened, principal, (policy or Policy()).over(opened.policy))


def request(verb: str, *parts: bytes | str | int | None) -> bytes:
    """The fingerprint of one request."""
    return fingerprint(verb, *parts)


def attempt_part(attempt: Attempt | None) -> str | None:
    return None if attempt is None else f"{attempt.run_id}/{attempt.attempt}"


def draft_parts(draft: Draft) -> tuple[bytes | str | None, ...]:
    return draft.body, draft.format, draft.metadata


def checked_whole(value: object, *, field: str, least: int = 0) -> None:
    """Raises InvalidInput unless ``value`` is a whole number from ``least``."""
    if type(value) is not int or value < least:
        raise InvalidInput(f"must be a whole number from {least}", field=field)


def checked_limit(limit: int, *, most: int) -> int:
    """Raises InvalidInput: a page's size is never changed behind the caller's back."""
    if type(limit) is not int or not 1 <= limit <= most:
        raise InvalidInput(f"must be a whole number from 1 to {most}", field="limit")
    return limit


def checked_instant(value: datetime | None, *, field: str) -> int | None:
    if value is None:
        return None
    if value.tzinfo is None:
        raise InvalidInput("must be a datetime with a time zone", field=field)
    return from_datetime(value)
