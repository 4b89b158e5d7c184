"""The store's doors: each is one script, or one for each session, on the server that has it."""

from __future__ import annotations

import asyncio
import os
import random
import secrets
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any, Literal, TypeVar

from satchel.domain.event import EventKind
from satchel.domain.ids import SessionRef
from satchel.domain.record import SessionStatus
from satchel.domain.run import RunStatus
from satchel.domain.state import Clock, SessionState, Want
from satchel.domain.stream import StreamKey
from satchel.errors import SatchelError, StoreBusy, StoreCorrupt, StoreMisused
from satchel.store import (
    CallPage,
    Capabilities,
    Change,
    EventPage,
    Finding,
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
from satchel.stores.redis.applying import NO_BASIS, Basis
from satchel.stores.redis.connection import Command, Reply, meaning_of
from satchel.stores.redis.hints import Hints
from satchel.stores.redis.listing import Lister
from satchel.stores.redis.loading import load
from satchel.stores.redis.names import Keys
from satchel.stores.redis.reading import Reader
from satchel.stores.redis.recent import Recent
from satchel.stores.redis.rows import OWN_CLOCK, record_of
from satchel.stores.redis.servers import Servers
from satchel.stores.redis.writing import HELD_FOR, Contention, Writer, Written

T = TypeVar("T")

TRIES = 5  # to answer without a commit about a session that changes meanwhile
HOLD_PAUSE = 0.005  # seconds between two tries to have a session held, at most
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
_RELAXED = Capabilities(
    name="redis",
    durable=False,
    shared=True,
    prefix_after_failover=False,
    clock="server",
    erases_traces=False,
    parallel_batches=2,
)


class _Open:
    """What an open store holds."""

    def __init__(self, servers: Servers, writer: Writer, hints: Hints, recent: Recent) -> None:
        self.process = os.getpid()
        self.loop = asyncio.get_running_loop()
        self.servers = servers
        self.writer = writer
        self.hints = hints
        self.recent = recent
        self.contention = Contention()
        self.nothing_ready: dict[str | None, float] = {}  # for which agent, and until when that is believed
        self.tasks: set[asyncio.Task[Any]] = set()


class RedisStore(Store):
    """``url`` is described at ``satchel.open``. ``clock`` may replace the servers', to test what time does."""

    def __init__(self, url: str, *, clock: Callable[[], Clock] | None = None) -> None:
        self._address = parse_address(url)
        self._keys = Keys(self._address.prefix)
        self._clock = clock
        self._opened: _Open | None = None
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
            self._opened = _Open(
                servers,
                Writer(servers, self._keys, holder=secrets.token_hex(8)),
                Hints(self._address, servers, self._keys),
                Recent(self._read_clock),
            )

    async def close(self) -> None:
        opened, self._opened = self._opened, None
        if opened is None or opened.process != os.getpid():
            return
        while opened.tasks:
            await asyncio.wait(opened.tasks)
        await opened.hints.close()
        await opened.servers.close()

    async def schema(self) -> Schema:
        servers = Servers(self._address)
        try:
            await servers.open()
            return await schema.look(servers, self._keys)
        finally:
            await servers.close()

    async def check(self) -> Sequence[Finding]:
        opened = self._live()
        return await self._apart(opened, checking.check(opened.servers, self._address))

    def _live(self) -> _Open:
        if self._opened is None:
            raise StoreMisused(
                "the store is not open: use `async with satchel.open(url) as store`, or await store.open()"
            )
        if self._opened.process != os.getpid():
            raise StoreMisused("the store was opened before this process was forked; open one here")
        if self._opened.loop is not asyncio.get_running_loop():
            raise StoreMisused("the store was opened on another event loop; open one here")
        return self._opened

    def _kept(self, opened: _Open, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """``close`` waits for it."""
        task = opened.loop.create_task(work)
        opened.tasks.add(task)
        task.add_done_callback(opened.tasks.discard)
        return task

    def _apart(self, opened: _Open, work: Coroutine[Any, Any, T]) -> Awaitable[T]:
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
        return await self._apart(opened, self._write(opened, changes))

    def transact(
        self, wanted: Mapping[SessionRef, Want], decide: Callable[[Loaded], Sequence[Change]]
    ) -> Awaitable[list[Outcome]]:
        """A task of its own already: whoever cancels it loses the connection that it was using."""
        opened = self._live()
        return self._kept(opened, self._transact(opened, wanted, decide))

    async def _transact(
        self, opened: _Open, wanted: Mapping[SessionRef, Want], decide: Callable[[Loaded], Sequence[Change]]
    ) -> list[Outcome]:
        met = opened.contention.met(wanted)
        if not met and (recalled := opened.recent.recall(wanted)) is not None:
            basis = Basis(_records(recalled), wanted)
            changes = decide(recalled)
            if len(changes) == len(wanted):  # else something was answered that the commit does not bear out
                return await self._write(opened, changes, basis)
        for _ in range(TRIES):
            loaded = await self._load_held(opened, wanted, met)
            basis = Basis(_records(loaded), {})
            changes = decide(loaded)
            if len(changes) == len(wanted) or await opened.writer.confirm(
                loaded, wanted.keys() - {change.ref for change in changes}
            ):
                return await self._write(opened, changes, basis)
        raise StoreBusy

    async def _load_held(self, opened: _Open, wanted: Mapping[SessionRef, Want], met: Sequence[SessionRef]) -> Loaded:
        """Held for this store are those that were ``met`` by others too often, if they can be had in time."""
        patience = time.monotonic() + HELD_FOR
        while True:
            held: list[Reply] = []
            ask = partial(self._ask_held, opened, met, held)
            loaded = await load(ask, self._keys, self._read_clock, self._own_now(), wanted)
            if all(reply == 1 for reply in held) or time.monotonic() > patience:
                return loaded
            await asyncio.sleep(HOLD_PAUSE * random.random())  # noqa: S311  # spreads the tries

    async def _ask_held(
        self, opened: _Open, met: Sequence[SessionRef], held: list[Reply], commands: Sequence[Command]
    ) -> list[Reply]:
        """To hold is no round trip more: it is in the pipeline of the first look."""
        if not met or held:
            return await opened.servers.run(commands)
        replies = await opened.servers.run([*opened.writer.hold(met, self._own_now()), *commands])
        held.extend(replies[: len(met)])
        return replies[len(met) :]

    async def _write(self, opened: _Open, changes: Sequence[Change], basis: Basis = NO_BASIS) -> list[Outcome]:
        if not changes:
            return []
        clock = None if self._clock is None else self._clock()
        try:
            written = await opened.writer.write(changes, clock, basis)
        except BaseException:
            opened.recent.forget([change.ref for change in changes])
            raise
        opened.contention.note(changes, written.outcomes)
        return _settle(opened, changes, written)

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
        return await _meant(
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
        return await _meant(
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
        return await _meant(
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
        return await _meant(
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
        return await _meant(self._reader().partial(ref, key, offset=offset, limit=limit))

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
        return await _meant(
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
            return await _meant(self._lister().due(queue, agent=agent, after=after, limit=limit))
        quiet = self._live().nothing_ready
        if time.monotonic() < quiet.get(agent, 0.0):
            return []
        quiet.pop(agent, None)
        found = await _meant(self._lister().due(queue, agent=agent, after=None, limit=limit))
        if not found and limit > 0 and len(quiet) < 1_000:
            quiet[agent] = time.monotonic() + READY_PAUSE
        return found

    async def refs(self, *, after: SessionRef | None = None, limit: int) -> list[SessionRef]:
        return await _meant(self._lister().refs(after=after, limit=limit))

    async def wait(self, ref: SessionRef, after: int, timeout: float, *, revision: int | None = None) -> None:
        hints = self._live().hints
        waiter = hints.enter(ref, after, revision)  # before the look: a commit between the two wakes it
        try:
            async with asyncio.timeout(timeout):
                while not waiter.future.done():
                    await hints.ready(ref)
                    if await self._may_look(ref, after, revision):
                        return
                    await asyncio.wait((waiter.future,), timeout=LOOK)
        except TimeoutError:
            pass
        finally:
            hints.leave(ref, waiter)

    async def _may_look(self, ref: SessionRef, after: int, revision: int | None) -> bool:
        """There is an event after ``after``, or another revision, or nothing to wait for: the session is gone, or was never there."""
        names = self._keys.names(ref)
        (row,) = await self._ask([Command(self._keys.slots[names.bucket], ("HGET", names.session, "record"))])
        if isinstance(row, Exception):
            raise row if isinstance(row, SatchelError) else meaning_of(row)
        if row is None:
            return True
        try:
            record = record_of(ref.session_id, row)
        except StoreCorrupt:
            return True  # who looks hears of it
        moved = revision is not None and record.revision != revision
        return moved or record.last_seq > after or record.status == "DELETED"

    # Housekeeping

    async def erase(self, ref: SessionRef, limit: int) -> int:
        opened = self._live()
        return await self._apart(opened, erasing.erase_rows(opened.servers, self._keys, ref, limit))

    async def scrub(self, *, most: int | None = None) -> bool:
        """True: there is nothing that this store can do. See ``capabilities.erases_traces``."""
        self._live()
        return True

    async def setting(self, name: str, *, base: int | None = None, value: bytes | None = None) -> Setting | None:
        opened = self._live()
        return await self._apart(opened, settings.setting(opened.servers, self._keys, name, base, value))


async def _meant(reading: Awaitable[T]) -> T:
    """What is asked for by a value that is no text is the caller's to weigh."""
    try:
        return await reading
    except UnicodeError as error:
        raise meaning_of(error) from error


def _records(loaded: Loaded) -> dict[SessionRef, Any]:
    """To be taken before deciding, which lays effects over the states."""
    return {ref: state.record for ref, state in loaded.sessions.items() if isinstance(state, SessionState)}


def _settle(opened: _Open, changes: Sequence[Change], written: Written) -> list[Outcome]:
    """Remember it, and tell those who wait."""
    outcomes = written.outcomes
    if opened.nothing_ready and any(change.record.ready_agent is not None for change in changes):
        opened.nothing_ready.clear()
    opened.recent.note(changes, outcomes, written.now)
    opened.hints.committed(
        [change.record for change, outcome in zip(changes, outcomes, strict=True) if outcome is Outcome.APPLIED]
    )
    return outcomes
