"""The doors of a store on a database server. How it is asked, and in what order rows are written, each such store says itself."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, Literal, TypeVar

from satchel.domain.event import EventKind
from satchel.domain.ids import SessionRef
from satchel.domain.record import SessionStatus
from satchel.domain.run import RunStatus
from satchel.domain.state import Clock, Want
from satchel.domain.stream import StreamKey
from satchel.errors import StoreMisused, StoreUnavailable
from satchel.store import (
    CallPage,
    Change,
    EventPage,
    Landing,
    Loaded,
    Outcome,
    PartialPage,
    RunPage,
    SessionPage,
    Setting,
    Snapshot,
    Store,
)
from satchel.stores.sql.hints import Hints
from satchel.stores.sql.opened import Opened, finish
from satchel.stores.sql.pool import Pool
from satchel.stores.sql.reads import Fetch, Reading
from satchel.stores.sql.recent import Recent
from satchel.stores.sql.writing import NO_BASIS, Basis, Written, basis_of

T = TypeVar("T")
Row = Any
Decide = Callable[[Loaded], Sequence[Change]]

LEASE_CLOCK = "server"  # leases count on the server's wall clock: the one that all processes share


class ServerStore(Store):
    """``clock`` may replace the server's, to test what time does."""

    _reading: ClassVar[Reading]

    def __init__(self, *, clock: Callable[[], Clock] | None = None) -> None:
        self._clock = clock
        self._opened: Opened | None = None
        self._opening: asyncio.Lock | None = None

    # What each store says itself. They raise SatchelErrors only.

    async def _start(self) -> tuple[Pool[Any], Hints]:
        """Connected, with the schema up to date."""
        raise NotImplementedError

    async def _read(self, pool: Pool[Any], *what: Any) -> Any:
        """One snapshot; again, once, when a connection was lost."""
        raise NotImplementedError

    async def _load(self, fetch: Fetch, wanted: Mapping[SessionRef, Want]) -> Loaded:
        raise NotImplementedError

    async def _write_batch(
        self, pool: Pool[Any], changes: Sequence[Change], clock: Clock | None, basis: Basis
    ) -> Written:
        """``clock`` where it is not the server's."""
        raise NotImplementedError

    async def _write_locked(
        self, pool: Pool[Any], wanted: Mapping[SessionRef, Want], decide: Decide
    ) -> tuple[Sequence[Change], Written]:
        """Lock, load, decide and write in one transaction: nobody comes between; also what was decided."""
        raise NotImplementedError

    async def _vouch(self, pool: Pool[Any]) -> None:
        """Until what the server shows is as safe as what it acknowledges. It may have come back from a crash with commits that
        nobody was told of, and that a failover would lose."""

    async def _erase(self, pool: Pool[Any], ref: SessionRef, limit: int) -> int:
        raise NotImplementedError

    async def _set(self, pool: Pool[Any], name: str, base: int | None, value: bytes | None) -> Setting | None:
        raise NotImplementedError

    # Opening and closing

    async def open(self) -> None:
        self._opening = self._opening or asyncio.Lock()
        async with self._opening:
            if self._opened is not None:
                self._live()
                return
            pool, hints = await self._start()
            self._opened = Opened(pool, hints, Recent(self._read_clock))

    async def close(self) -> None:
        opened, self._opened = self._opened, None
        if opened is None or opened.process != os.getpid():
            return
        await finish(opened.tasks, opened.hints.close, opened.pool.close)

    def _live(self) -> Opened:
        if self._opened is None:
            raise StoreMisused(
                "the store is not open: use `async with satchel.open(url) as store`, or await store.open()"
            )
        if self._opened.process != os.getpid():
            raise StoreMisused("the store was opened before this process was forked; open one here")
        if self._opened.loop is not asyncio.get_running_loop():
            raise StoreMisused("the store was opened on another event loop; open one here")
        return self._opened

    def _kept(self, opened: Opened, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """``close`` waits for it."""
        task = opened.loop.create_task(work)
        opened.tasks.add(task)
        task.add_done_callback(opened.tasks.discard)
        return task

    def _apart(self, opened: Opened, work: Coroutine[Any, Any, T]) -> Awaitable[T]:
        """In a task of its own, which goes on when the caller is cancelled: a statement that is on its way is not left."""
        return asyncio.shield(self._kept(opened, work))

    async def _fetch(self, *what: Any) -> Any:
        opened = self._live()
        return await self._apart(opened, self._read(opened.pool, *what))

    def _read_clock(self, now: int) -> Clock:
        return Clock(now, now, LEASE_CLOCK) if self._clock is None else self._clock()

    # Writing

    async def load(self, wanted: Mapping[SessionRef, Want]) -> Loaded:
        return await self._load(self._fetch, wanted)

    async def commit(self, changes: Sequence[Change]) -> list[Outcome]:
        opened = self._live()
        return await self._apart(opened, self._write(opened, changes))

    def transact(
        self, wanted: Mapping[SessionRef, Want], decide: Callable[[Loaded], Sequence[Change]]
    ) -> Awaitable[list[Outcome]]:
        opened = self._live()
        landing: Landing[list[Outcome]] = Landing()
        bringing = landing.bring(partial(self._transact, opened, wanted, decide))
        self._kept(opened, bringing).add_done_callback(landing.left)
        return landing

    async def _transact(
        self, opened: Opened, wanted: Mapping[SessionRef, Want], decide: Callable[[Loaded], Sequence[Change]]
    ) -> list[Outcome]:
        """Again, once, when a connection was lost before anything was written."""
        losses = opened.pool.losses
        try:
            return await self._transact_once(opened, wanted, decide)
        except StoreUnavailable as error:
            if opened.pool.losses == losses or isinstance(error.__cause__, TimeoutError):
                raise
        return await self._transact_once(opened, wanted, decide)

    async def _transact_once(
        self, opened: Opened, wanted: Mapping[SessionRef, Want], decide: Callable[[Loaded], Sequence[Change]]
    ) -> list[Outcome]:
        await self._vouch_after_a_loss(opened)
        if opened.contention.is_met(wanted):
            opened.recent.forget(wanted)
            changes, written = await self._write_locked(opened.pool, wanted, decide)
            if not changes:  # else its commit stands behind all that was seen
                await self._vouch_after_a_loss(opened)
            return opened.settle(changes, written)
        if (recalled := opened.recent.recall(wanted)) is not None:
            basis = Basis(basis_of(recalled).records, wanted)
            changes = decide(recalled)
            if len(changes) == len(wanted):  # else something was answered that the commit does not bear out
                return await self._write(opened, changes, basis)
        loaded = await self._load(partial(self._read, opened.pool), wanted)
        basis = basis_of(loaded)
        changes = decide(loaded)
        if len(changes) < len(wanted):  # something is answered without a commit, perhaps by who was reached anew
            await self._vouch_after_a_loss(opened)
        return await self._write(opened, changes, basis)

    async def _vouch_after_a_loss(self, opened: Opened) -> None:
        if opened.vouched != opened.pool.losses:
            losses = opened.pool.losses
            await self._vouch(opened.pool)
            opened.vouched = losses

    async def _write(self, opened: Opened, changes: Sequence[Change], basis: Basis = NO_BASIS) -> list[Outcome]:
        if not changes:
            return []
        clock = None if self._clock is None else self._clock()
        try:
            written = await self._write_batch(opened.pool, changes, clock, basis)
        except BaseException:
            opened.recent.forget({change.ref: None for change in changes})
            raise
        opened.contention.note(changes, written.outcomes)
        return opened.settle(changes, written)

    # One session

    async def snapshot(
        self,
        ref: SessionRef,
        *,
        working_memory: bool = True,
        metadata: bool = True,
        messages: int = 0,
        tool_calls: int = 0,
        runs: int = 0,
    ) -> Snapshot:
        return await self._reading.snapshot(
            self._fetch,
            self._read_clock,
            ref,
            working_memory=working_memory,
            metadata=metadata,
            messages=messages,
            tool_calls=tool_calls,
            runs=runs,
        )

    async def events(
        self,
        ref: SessionRef,
        *,
        after: int = 0,
        before: int | None = None,
        newest_first: bool = False,
        kind: EventKind | None = None,
        run_id: str | None = None,
        with_retracted: bool = True,
        limit: int,
    ) -> EventPage:
        return await self._reading.events(
            self._fetch,
            self._read_clock,
            ref,
            after=after,
            before=before,
            newest_first=newest_first,
            kind=kind,
            run_id=run_id,
            with_retracted=with_retracted,
            limit=limit,
        )

    async def tool_calls(
        self,
        ref: SessionRef,
        *,
        run_id: str | None = None,
        tool: str | None = None,
        arguments_hash: bytes | None = None,
        tool_call_id: str | None = None,
        is_open: bool | None = None,
        after: int = 0,
        before: int | None = None,
        newest_first: bool = True,
        limit: int,
    ) -> CallPage:
        return await self._reading.tool_calls(
            self._fetch,
            self._read_clock,
            ref,
            run_id=run_id,
            tool=tool,
            arguments_hash=arguments_hash,
            tool_call_id=tool_call_id,
            is_open=is_open,
            after=after,
            before=before,
            newest_first=newest_first,
            limit=limit,
        )

    async def runs(
        self,
        ref: SessionRef,
        *,
        run_id: str | None = None,
        parent_run_id: str | None = None,
        status: RunStatus | None = None,
        after_number: int = 0,
        before_number: int | None = None,
        newest_first: bool = True,
        limit: int,
    ) -> RunPage:
        return await self._reading.runs(
            self._fetch,
            self._read_clock,
            ref,
            run_id=run_id,
            parent_run_id=parent_run_id,
            status=status,
            after_number=after_number,
            before_number=before_number,
            newest_first=newest_first,
            limit=limit,
        )

    async def partial(
        self, ref: SessionRef, run_id: str, *, attempt: int, message: int, offset: int = 0, limit: int
    ) -> PartialPage:
        key = StreamKey(run_id, attempt, message)
        return await self._reading.partial(self._fetch, self._read_clock, ref, key=key, offset=offset, limit=limit)

    # Across sessions

    async def sessions(
        self,
        tenant_id: str,
        *,
        user_id: str | None = None,
        status: SessionStatus | None = None,
        updated_from: int | None = None,
        updated_before: int | None = None,
        after: tuple[int, str] | None = None,
        limit: int,
    ) -> SessionPage:
        return await self._reading.sessions(
            self._fetch,
            self._read_clock,
            None if self._clock is None else self._clock().now,
            tenant_id,
            user_id=user_id,
            status=status,
            updated_from=updated_from,
            updated_before=updated_before,
            after=after,
            limit=limit,
        )

    async def due(
        self, queue: Literal["ready", "sweep"], *, agent: str | None = None, after: SessionRef | None = None, limit: int
    ) -> list[SessionRef]:
        clock = None if self._clock is None else self._clock()
        return await self._reading.due(
            self._fetch,
            now=None if clock is None else clock.now,
            lease_now=None if clock is None else clock.lease_now,
            lease_clock=LEASE_CLOCK if clock is None else clock.lease_clock,
            queue=queue,
            agent=agent,
            after=after,
            limit=limit,
        )

    async def refs(self, *, after: SessionRef | None = None, limit: int) -> list[SessionRef]:
        return await self._reading.refs(self._fetch, after=after, limit=limit)

    async def wait(self, ref: SessionRef, after: int, timeout: float, *, revision: int | None = None) -> None:
        hints = self._live().hints
        waiter = hints.enter(ref, after, revision)  # before the look: a commit between the two wakes it
        try:
            async with asyncio.timeout(timeout):
                await hints.ready()
                if not await self._reading.may_look(self._fetch, ref, after, revision):
                    await asyncio.wait((waiter.future,))
        except TimeoutError:
            pass
        finally:
            hints.leave(ref, waiter)

    # Housekeeping

    async def erase(self, ref: SessionRef, limit: int) -> int:
        opened = self._live()
        return await self._apart(opened, self._erase(opened.pool, ref, limit))

    async def scrub(self, *, most: int | None = None) -> bool:
        """True: there is nothing that this store can do. See ``capabilities.erases_traces``."""
        self._live()
        return True

    async def setting(self, name: str, *, base: int | None = None, value: bytes | None = None) -> Setting | None:
        opened = self._live()
        return await self._apart(opened, self._set(opened.pool, name, base, value))
