"""Faults that are planted on purpose: a program that finds none of them proves nothing."""

from __future__ import annotations

import asyncio
import contextlib
import random
import sqlite3
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import msgspec

import satchel
from satchel import OpenStore
from satchel.domain.ids import SessionRef
from satchel.domain.record import SessionRecord
from satchel.domain.state import SessionState, Want
from satchel.errors import StoreError
from satchel.store import Change, Loaded, Outcome, Snapshot, Store
from satchel.testing.wrappers import StoreWrapper


class AnswersBeforeCommit(StoreWrapper):
    """Tells its callers that it is done, and does it afterwards."""

    DELAY = 0.02  # seconds

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self._later: set[asyncio.Task[object]] = set()

    async def commit(self, changes: Sequence[Change]) -> list[Outcome]:
        task: asyncio.Task[object] = asyncio.create_task(self._commit_later(changes))
        self._later.add(task)
        task.add_done_callback(self._later.discard)
        return [Outcome.APPLIED for _ in changes]

    async def _commit_later(self, changes: Sequence[Change]) -> None:
        await asyncio.sleep(self.DELAY)
        with contextlib.suppress(StoreError):  # whom could it tell?
            await self.inner.commit(changes)

    async def close(self) -> None:
        await asyncio.gather(*self._later, return_exceptions=True)
        await super().close()


class StaleReads(StoreWrapper):
    """Now and then a reader is given what a reader was given before."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self._random = random.Random(1)
        self._former: dict[SessionRef, Snapshot] = {}

    async def snapshot(self, ref: SessionRef, **options: Any) -> Snapshot:
        former = self._former.get(ref)
        if former is not None and self._random.random() < 0.05:
            return former
        found = await self.inner.snapshot(ref, **options)
        if not options.get("messages"):
            self._former[ref] = found
        return found


class AppliesTwice(StoreWrapper):
    """Now and then it tries again what it has done, and does not look whether it has."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self._random = random.Random(2)

    def transact(
        self, wanted: Mapping[SessionRef, Want], decide: Callable[[Loaded], Sequence[Change]]
    ) -> Awaitable[list[Outcome]]:
        return self._twice(wanted, decide)

    async def _twice(
        self, wanted: Mapping[SessionRef, Want], decide: Callable[[Loaded], Sequence[Change]]
    ) -> list[Outcome]:
        outcomes = await self.inner.commit(decide(await self.inner.load(wanted)))
        if self._random.random() < 0.2:
            blind = {ref: msgspec.structs.replace(want, keys=()) for ref, want in wanted.items()}
            again = decide(await self.inner.load(blind))
            outcomes = await self.inner.commit([msgspec.structs.replace(one, idempotency=()) for one in again])
        return outcomes


class DecidesOnStale(StoreWrapper):
    """Now and then it decides on the record as it was some time ago, and writes it over what is there."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self._random = random.Random(3)
        self._former: dict[SessionRef, SessionRecord] = {}

    async def load(self, wanted: Mapping[SessionRef, Want]) -> Loaded:
        loaded = await self.inner.load(wanted)
        for ref, state in loaded.sessions.items():
            if type(state) is not SessionState or state.record is None:
                continue
            former = self._former.get(ref)
            self._former[ref] = state.record
            if former is not None and former.version < state.record.version and self._random.random() < 0.05:
                state.record = msgspec.structs.replace(
                    state.record, version=former.version, messages=former.messages, changed=former.changed
                )
        return loaded


def _synchronous_off(url: str) -> OpenStore:
    """SQLite that does not wait for the disk."""
    from satchel.stores.sqlite import writer
    from satchel.stores.sqlite.connection import connect

    def weak(*arguments: Any, **options: Any) -> sqlite3.Connection:
        connection = connect(*arguments, **options)
        connection.execute("PRAGMA synchronous = OFF")
        return connection

    setattr(writer, "connect", weak)  # noqa: B010  # the module does not offer it to others
    return satchel.open(url)


WRAPPERS: dict[str, Callable[[Store], StoreWrapper]] = {
    "answers_before_commit": AnswersBeforeCommit,
    "stale_reads": StaleReads,
    "applies_twice": AppliesTwice,
    "decides_on_stale": DecidesOnStale,
}


def open_planted(url: str, planted: str) -> OpenStore:
    """``planted`` "": nothing is."""
    if planted == "synchronous_off":
        return _synchronous_off(url)
    opened = satchel.open(url)
    if planted:
        opened = OpenStore(WRAPPERS[planted](opened.store), limits=opened.limits, policy=opened.policy)
    return opened
