"""The store's doors: each is one script, or one for each session, on the server that has it."""

from __future__ import annotations

import asyncio
import os
import secrets
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any, Literal, TypeVar

import msgspec

from satchel.domain.event import EventKind
from satchel.domain.ids import SessionRef
from satchel.domain.record import SessionStatus
from satchel.domain.run import RunStatus
from satchel.domain.state import Clock, Want
from satchel.domain.stream import StreamKey
from satchel.errors import StoreMisused
from satchel.store import (
    CallPage,
    Capabilities,
    Change,
    EventPage,
    Finding,
    Landing,
    Loaded,
    Outcome,
    PartialPage,
    RunPage,
    Schema,
    SessionPage,
    Setting,
    Snapshot,
    Store,
)
from satchel.stores.redis import checking, erasing, schema, settings
from satchel.stores.redis.address import parse_address
from satchel.stores.redis.connection import Command, Reply, meant
from satchel.stores.redis.hints import Hints
from satchel.stores.redis.listing import Lister
from satchel.stores.redis.loading import load
from satchel.stores.redis.names import Keys
from satchel.stores.redis.opened import Opened
from satchel.stores.redis.reading import Reader
from satchel.stores.redis.rows import OWN_CLOCK
from satchel.stores.redis.servers import Servers
from satchel.stores.redis.transacting import Transactions
from satchel.stores.redis.writing import Writer
from satchel.stores.sql.opened import finish

T = TypeVar("T")

READY_PAUSE = 0.1  # seconds between two looks into all buckets of a cluster that found nothing to do
LOOK = 2.0  # seconds after which whoever waits looks for himself

_STRICT = Capabilities(
    name="redis",
    durable=True,
    shared=True,
    prefix_after_failover=False,
    clock="server",
    erases_traces=False,
    parallel_batches=2,
)
_RELAXED = msgspec.structs.replace(_STRICT, durable=False)


class RedisStore(Store):
    """``url`` is described at ``satchel.open``. ``clock`` may replace the servers', to test what time does."""

    def __init__(self, url: str, *, clock: Callable[[], Clock] | None = None) -> None:
        self._address = parse_address(url)
        self._keys = Keys(self._address.prefix)
        self._clock = clock
        self._opened: Opened | None = None
        self._opening: asyncio.Lock | None = None

    @property
    def capabilities(self) -> Capabilities:
        return _RELAXED if self._address.durability == "relaxed" else _STRICT

    async def open(self) -> None:
        """Also raises StoreNotDurable, unless the address says `durability=relaxed`."""
        self._opening = self._opening or asyncio.Lock()
        async with self._opening:
            if self._opened is not None:
                self._live()
                return
            servers = Servers(self._address)
            try:
                await servers.open()
                await checking.require_durability(servers, self._address)
                await schema.prepare(servers, self._keys)
            except BaseException:
                await servers.close()
                raise
            opened = Opened(servers, Hints(self._address, servers, self._keys))
            opened.transactions = Transactions(
                servers,
                self._keys,
                Writer(servers, self._keys, holder=secrets.token_hex(8)),
                read_clock=self._read_clock,
                own_clock=self._clock,
                settled=opened.settled,
            )
            self._opened = opened

    async def close(self) -> None:
        opened, self._opened = self._opened, None
        if opened is None or opened.process != os.getpid():
            return
        await finish(opened.tasks, opened.hints.close, opened.servers.close)

    async def schema(self) -> Schema:
        return await self._apart_from_all(lambda servers: schema.look(servers, self._keys))

    async def _apart_from_all(self, ask: Callable[[Servers], Awaitable[T]]) -> T:
        """On connections of its own."""
        servers = Servers(self._address)
        try:
            await servers.open()
            return await ask(servers)
        finally:
            await servers.close()

    async def check(self) -> Sequence[Finding]:
        """Also before it is open, and of a server that ``open`` refuses."""
        if self._opened is None:
            return await self._apart_from_all(lambda servers: checking.check(servers, self._address, self._keys))
        opened = self._live()
        return await self._apart(opened, checking.check(opened.servers, self._address, self._keys))

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
        """In a task of its own, which goes on when the caller is cancelled: a connection that is in use is not left."""
        return asyncio.shield(self._kept(opened, work))

    async def _ask(self, commands: Sequence[Command]) -> list[Reply]:
        """Reads."""
        opened = self._live()
        return await self._apart(opened, opened.servers.run(commands))

    def _read_clock(self, now: int) -> Clock:
        return Clock(now, now, OWN_CLOCK) if self._clock is None else self._clock()

    def _own_now(self) -> bytes | int:
        return b"" if self._clock is None else self._clock().now

    def _reader(self) -> Reader:
        return Reader(self._ask, self._keys, self._read_clock, self._own_now())

    def _lister(self) -> Lister:
        own = None if self._clock is None else self._clock()
        return Lister(self._ask, self._keys, self._read_clock, own, is_cluster=self._address.is_cluster)

    # Writing

    async def load(self, wanted: Mapping[SessionRef, Want]) -> Loaded:
        self._live()
        return await load(self._ask, self._keys, self._read_clock, self._own_now(), wanted)

    async def commit(self, changes: Sequence[Change]) -> list[Outcome]:
        opened = self._live()
        return await self._apart(opened, opened.transactions.write(changes))

    def transact(
        self, wanted: Mapping[SessionRef, Want], decide: Callable[[Loaded], Sequence[Change]]
    ) -> Awaitable[list[Outcome]]:
        opened = self._live()
        landing: Landing[list[Outcome]] = Landing()
        bringing = landing.bring(lambda: opened.transactions.transact(wanted, decide))
        self._kept(opened, bringing).add_done_callback(landing.left)
        return landing

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
        return await meant(
            self._reader().snapshot(
                ref,
                working_memory=working_memory,
                metadata=metadata,
                messages=messages,
                tool_calls=tool_calls,
                runs=runs,
            )
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
        return await meant(
            self._reader().events(
                ref,
                after=after,
                before=before,
                newest_first=newest_first,
                kind=kind,
                run_id=run_id,
                with_retracted=with_retracted,
                limit=limit,
            )
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
        return await meant(
            self._reader().tool_calls(
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
        return await meant(
            self._reader().runs(
                ref,
                run_id=run_id,
                parent_run_id=parent_run_id,
                status=status,
                after_number=after_number,
                before_number=before_number,
                newest_first=newest_first,
                limit=limit,
            )
        )

    async def partial(
        self, ref: SessionRef, run_id: str, *, attempt: int, message: int, offset: int = 0, limit: int
    ) -> PartialPage:
        key = StreamKey(run_id, attempt, message)
        return await meant(self._reader().partial(ref, key, offset=offset, limit=limit))

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
        return await meant(
            self._lister().sessions(
                tenant_id,
                user_id=user_id,
                status=status,
                updated_from=updated_from,
                updated_before=updated_before,
                after=after,
                limit=limit,
            )
        )

    async def due(
        self, queue: Literal["ready", "sweep"], *, agent: str | None = None, after: SessionRef | None = None, limit: int
    ) -> list[SessionRef]:
        """In a cluster each bucket is asked by itself: whoever found nothing to do is believed for READY_PAUSE, unless this
        store makes something ready."""
        if queue == "sweep" or after is not None or not self._address.is_cluster:
            return await meant(self._lister().due(queue, agent=agent, after=after, limit=limit))
        quiet = self._live().nothing_ready
        if time.monotonic() < quiet.get(agent, 0.0):
            return []
        quiet.pop(agent, None)
        found = await meant(self._lister().due(queue, agent=agent, after=None, limit=limit))
        if not found and limit > 0 and len(quiet) < 1_000:
            quiet[agent] = time.monotonic() + READY_PAUSE
        return found

    async def refs(self, *, after: SessionRef | None = None, limit: int) -> list[SessionRef]:
        return await meant(self._lister().refs(after=after, limit=limit))

    async def wait(self, ref: SessionRef, after: int, timeout: float, *, revision: int | None = None) -> None:
        await meant(self._wait(ref, after, timeout, revision))

    async def _wait(self, ref: SessionRef, after: int, timeout: float, revision: int | None) -> None:
        hints = self._live().hints
        waiter = hints.enter(ref, after, revision)  # before the look: a commit between the two wakes it
        try:
            async with asyncio.timeout(timeout):
                while not waiter.future.done():
                    await hints.ready(ref)
                    if await self._reader().may_look(ref, after, revision):
                        return
                    await asyncio.wait((waiter.future,), timeout=LOOK)
        except TimeoutError:
            pass
        finally:
            hints.leave(ref, waiter)

    # Housekeeping

    async def erase(self, ref: SessionRef, limit: int) -> int:
        opened = self._live()
        return await meant(self._apart(opened, erasing.erase_rows(opened.servers, self._keys, ref, limit)))

    async def scrub(self, *, most: int | None = None) -> bool:
        """True: there is nothing that this store can do. See ``capabilities.erases_traces``."""
        self._live()
        return True

    async def setting(self, name: str, *, base: int | None = None, value: bytes | None = None) -> Setting | None:
        opened = self._live()
        return await meant(self._apart(opened, settings.setting(opened.servers, self._keys, name, base, value)))
