"""The store's doors: each hands its work to the writing thread or to a reading one."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeVar

from satchel.domain.event import EventKind
from satchel.domain.ids import SessionRef
from satchel.domain.record import SessionStatus
from satchel.domain.run import RunStatus
from satchel.domain.state import Clock, Want
from satchel.domain.stream import StreamKey
from satchel.errors import InvalidInput, StoreCorrupt, StoreMisused, StoreUnavailable
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
from satchel.stores.sqlite import checking, erasing, reading, schema
from satchel.stores.sqlite.clock import machine_clock
from satchel.stores.sqlite.connection import connect, named, translated
from satchel.stores.sqlite.crew import Crew
from satchel.stores.sqlite.gathering import Reads, Work
from satchel.stores.sqlite.loading import load
from satchel.stores.sqlite.settings import read_setting, write_setting
from satchel.stores.sqlite.watch import Watch
from satchel.stores.sqlite.writer import Writer

T = TypeVar("T")

READERS = 3
SCRUB_PATIENCE = 2.0  # seconds in which a reader may keep the log from being emptied

_CAPABILITIES = Capabilities(
    name="sqlite", durable=True, shared=True, prefix_after_failover=True, clock="process", parallel_batches=1
)


class _Shared:
    """One read for several tasks."""

    __slots__ = ("future",)
    future: asyncio.Future[Any]


class _Open:
    """What an open store holds."""

    def __init__(self, path: Path, clock: Callable[[], Clock]) -> None:
        def reader() -> sqlite3.Connection:
            with translated():
                return connect(path, read_only=True)

        self.process = os.getpid()
        self.watch = Watch(partial(connect, path, read_only=True))
        self.writer = Crew(
            "satchel-sqlite-write", 1, lambda: Writer(path, clock, self.watch.committed), rest=Writer.rest
        )
        self.readers = Crew("satchel-sqlite-read", READERS, reader)
        self.reads = Reads(self.readers, clock)
        self.not_begun: dict[Hashable, _Shared] = {}

    async def close(self) -> None:
        try:
            await self.watch.close()
        finally:  # also when it is cancelled: nobody else would
            try:
                await self.readers.close()
            finally:
                await self.writer.close()  # the last: its connection empties the log


class SqliteStore(Store):
    """``path`` is the database file; its folder must be there. ``clock`` may be replaced, to test what time does."""

    def __init__(self, path: str | os.PathLike[str], *, clock: Callable[[], Clock] | None = None) -> None:
        name = os.fspath(path)
        if not name or name.startswith((":memory:", "file:")):
            raise InvalidInput("must be the path of a file; a store in memory is memory:", field="path")
        if "\0" in name:
            raise InvalidInput("holds a NUL character", field="path")
        self._path = Path(name).absolute()
        if not self._path.name:
            raise InvalidInput(f"{self._path} is a folder", field="path")
        self._clock = machine_clock if clock is None else clock
        self._opened: _Open | None = None
        self._opening = asyncio.Lock()
        self._scrubbing = asyncio.Lock()
        self._rewritten: erasing.Marks = {}

    @property
    def capabilities(self) -> Capabilities:
        return _CAPABILITIES

    async def open(self) -> None:
        async with self._opening:
            if self._opened is not None:
                self._live()
                return
            opened = _Open(self._path, self._clock)
            try:
                await opened.writer.run(lambda writer: None)  # noqa: ARG005  # to make it opens the file
            except BaseException as failed:
                await opened.close()
                if isinstance(failed, (StoreCorrupt, StoreUnavailable)):  # whoever opens a file named it
                    raise named(failed, self._path) from failed
                raise
            self._opened = opened

    async def check(self) -> Sequence[Finding]:
        """Also before it is open."""
        if self._opened is None:
            return await asyncio.to_thread(checking.check_unopened, self._path)
        return await self._live().writer.run(lambda writer: checking.check(writer.connection, self._path))

    async def schema(self) -> Schema:
        try:
            return await asyncio.to_thread(schema.look, self._path)
        except (StoreCorrupt, StoreUnavailable) as failed:
            raise named(failed, self._path) from failed

    async def close(self) -> None:
        async with self._opening:
            opened, self._opened = self._opened, None
            if opened is not None and opened.process == os.getpid():
                await opened.close()

    def _live(self) -> _Open:
        if self._opened is None:
            raise StoreMisused(
                "the store is not open: use `async with satchel.open(url) as store`, or await store.open()"
            )
        if self._opened.process != os.getpid():
            raise StoreMisused("the store was opened before this process was forked; open one here")
        return self._opened

    async def _read(self, work: Work[T], *, rows: int = 1) -> T:
        return await self._live().reads.ask(work, rows=rows)

    async def _read_together(self, key: tuple[Hashable, ...], work: Work[T], *, rows: int = 1) -> T:
        """Equal reads, those of one ``key``, are one while it has not begun: each is of a snapshot taken after it was asked
        for. So many followers of one session cost one read when something comes."""
        opened = self._live()
        asked = (asyncio.get_running_loop(), *key)
        shared = opened.not_begun.get(asked)
        if shared is None:
            shared = opened.not_begun[asked] = _Shared()

            def begun(_: object = None) -> None:
                if opened.not_begun.get(asked) is shared:
                    del opened.not_begun[asked]

            shared.future = opened.reads.ask(work, rows=rows, begun=begun)
            shared.future.add_done_callback(begun)  # also when no connection could be made
        answer: T = await asyncio.shield(shared.future)
        return answer

    # Writing

    async def load(self, wanted: Mapping[SessionRef, Want]) -> Loaded:
        return await self._read(lambda connection, clock: load(connection, clock, wanted, {}, look=True))

    async def commit(self, changes: Sequence[Change]) -> list[Outcome]:
        return await self._live().writer.run(lambda writer: writer.commit(changes))

    def transact(
        self, wanted: Mapping[SessionRef, Want], decide: Callable[[Loaded], Sequence[Change]]
    ) -> asyncio.Future[list[Outcome]]:
        return self._live().writer.submit(lambda writer: writer.transact(wanted, decide), Landing())

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
        return await self._read_together(
            ("snapshot", ref, working_memory, metadata, messages, tool_calls, runs),
            partial(
                reading.snapshot,
                ref=ref,
                working_memory=working_memory,
                metadata=metadata,
                messages=messages,
                tool_calls=tool_calls,
                runs=runs,
            ),
            rows=3 + messages + tool_calls + runs,
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
        return await self._read_together(
            ("events", ref, after, before, newest_first, kind, run_id, with_retracted, limit),
            partial(
                reading.events,
                ref=ref,
                after=after,
                before=before,
                newest_first=newest_first,
                kind=kind,
                run_id=run_id,
                with_retracted=with_retracted,
                limit=limit,
            ),
            rows=limit,
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
        return await self._read(
            partial(
                reading.tool_calls,
                ref=ref,
                run_id=run_id,
                tool=tool,
                arguments_hash=arguments_hash,
                tool_call_id=tool_call_id,
                is_open=is_open,
                after=after,
                before=before,
                newest_first=newest_first,
                limit=limit,
            ),
            rows=limit,
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
        return await self._read(
            partial(
                reading.runs,
                ref=ref,
                run_id=run_id,
                parent_run_id=parent_run_id,
                status=status,
                after_number=after_number,
                before_number=before_number,
                newest_first=newest_first,
                limit=limit,
            ),
            rows=limit,
        )

    async def partial(
        self, ref: SessionRef, run_id: str, *, attempt: int, message: int, offset: int = 0, limit: int
    ) -> PartialPage:
        key = StreamKey(run_id, attempt, message)
        return await self._read(partial(reading.partial, ref=ref, key=key, offset=offset, limit=limit), rows=limit)

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
        return await self._read(
            partial(
                reading.sessions,
                tenant_id=tenant_id,
                user_id=user_id,
                status=status,
                updated_from=updated_from,
                updated_before=updated_before,
                after=after,
                limit=limit,
            ),
            rows=limit,
        )

    async def due(
        self, queue: Literal["ready", "sweep"], *, agent: str | None = None, after: SessionRef | None = None, limit: int
    ) -> list[SessionRef]:
        return await self._read(partial(reading.due, queue=queue, agent=agent, after=after, limit=limit), rows=limit)

    async def refs(self, *, after: SessionRef | None = None, limit: int) -> list[SessionRef]:
        return await self._read(partial(reading.refs, after=after, limit=limit), rows=limit)

    async def wait(self, ref: SessionRef, after: int, timeout: float, *, revision: int | None = None) -> None:
        watch = self._live().watch
        waiter = watch.enter(ref, after, revision)  # before the look: a commit between the two wakes it
        try:
            found = await self._read_together(("newest", ref), partial(reading.newest, ref=ref))
            if found is not None and not waiter.is_behind(*found):
                await asyncio.wait((waiter.future,), timeout=timeout)
        finally:
            watch.leave(ref, waiter)

    # Housekeeping

    async def erase(self, ref: SessionRef, limit: int) -> int:
        return await self._live().writer.run(lambda writer: erasing.erase_rows(writer, ref, limit))

    async def setting(self, name: str, *, base: int | None = None, value: bytes | None = None) -> Setting | None:
        if value is None:
            return await self._read(lambda connection, clock: read_setting(connection, name))  # noqa: ARG005  # no time in it
        return await self._live().writer.run(lambda writer: write_setting(writer, name, base, value))

    async def scrub(self, *, most: int | None = None) -> bool:
        """Writes the file anew (see ``erasing``), and is in the way of a reader's snapshot until it ends."""
        writer = self._live().writer
        async with self._scrubbing:
            left = await self._read(lambda connection, clock: erasing.marks(connection))  # noqa: ARG005  # marks have no time
            if not left:
                return True
            if most is not None and self._path.stat().st_size > most:
                return False
            if any(self._rewritten.get(ref) != mark for ref, mark in left.items()):
                self._rewritten = await writer.run(erasing.rewrite)
            covered = self._rewritten
            deadline = asyncio.get_running_loop().time() + SCRUB_PATIENCE
            while not await writer.run(lambda opened: erasing.empty_log(opened, covered)):
                if asyncio.get_running_loop().time() >= deadline:
                    return False  # a reader keeps old pages in the log
                await asyncio.sleep(0.02)
            self._rewritten = {}
        return True
