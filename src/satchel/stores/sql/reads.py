"""What a store on a database server reads, in functions of its own."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from satchel.domain.ids import SessionRef
from satchel.domain.stream import StreamKey
from satchel.store import CallPage, EventPage, PartialPage, RunPage, SessionPage, Snapshot
from satchel.stores.sql.loading import ReadClock

Fetch = Callable[..., Awaitable[Any]]  # one snapshot of what is asked, in the store's own way


class Reading(Protocol):
    """A store's reads, each of one snapshot: a module whose functions have these names. ``now``, ``lease_now``: None where they
    are the server's."""

    async def snapshot(
        self,
        fetch: Fetch,
        read_clock: ReadClock,
        ref: SessionRef,
        /,
        *,
        working_memory: bool,
        metadata: bool,
        messages: int,
        tool_calls: int,
        runs: int,
    ) -> Snapshot: ...

    async def events(
        self,
        fetch: Fetch,
        read_clock: ReadClock,
        ref: SessionRef,
        /,
        *,
        after: int,
        before: int | None,
        newest_first: bool,
        kind: str | None,
        run_id: str | None,
        with_retracted: bool,
        limit: int,
    ) -> EventPage: ...

    async def tool_calls(
        self,
        fetch: Fetch,
        read_clock: ReadClock,
        ref: SessionRef,
        /,
        *,
        run_id: str | None,
        tool: str | None,
        arguments_hash: bytes | None,
        tool_call_id: str | None,
        is_open: bool | None,
        after: int,
        before: int | None,
        newest_first: bool,
        limit: int,
    ) -> CallPage: ...

    async def runs(
        self,
        fetch: Fetch,
        read_clock: ReadClock,
        ref: SessionRef,
        /,
        *,
        run_id: str | None,
        parent_run_id: str | None,
        status: str | None,
        after_number: int,
        before_number: int | None,
        newest_first: bool,
        limit: int,
    ) -> RunPage: ...

    async def partial(
        self, fetch: Fetch, read_clock: ReadClock, ref: SessionRef, /, *, key: StreamKey, offset: int, limit: int
    ) -> PartialPage: ...

    async def sessions(
        self,
        fetch: Fetch,
        read_clock: ReadClock,
        now: int | None,
        tenant_id: str,
        /,
        *,
        user_id: str | None,
        status: str | None,
        updated_from: int | None,
        updated_before: int | None,
        after: tuple[int, str] | None,
        limit: int,
    ) -> SessionPage: ...

    async def due(
        self,
        fetch: Fetch,
        /,
        *,
        now: int | None,
        lease_now: int | None,
        lease_clock: str,
        queue: str,
        agent: str | None,
        after: SessionRef | None,
        limit: int,
    ) -> list[SessionRef]: ...

    async def refs(self, fetch: Fetch, /, *, after: SessionRef | None, limit: int) -> list[SessionRef]: ...

    async def may_look(self, fetch: Fetch, ref: SessionRef, after: int, revision: int | None, /) -> bool: ...
