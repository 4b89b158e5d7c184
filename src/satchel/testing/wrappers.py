"""Stores that behave in the worst way that the contract allows, around any other store.

Of the two ways to write, ``YieldingStore`` and ``RivalStore`` take away the embedded store's one (all under its writer's
lock): they load, decide, commit, so that others come between. ``UnknownStore`` is about what comes after the decision.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Literal

from satchel.domain.event import EventKind
from satchel.domain.ids import SessionRef
from satchel.domain.record import SessionStatus
from satchel.domain.run import RunStatus
from satchel.domain.state import Want
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


class StoreWrapper(Store):
    """Hands everything on to ``inner``, except ``transact``: that is load, decide, commit here."""

    def __init__(self, inner: Store) -> None:
        self.inner = inner

    @property
    def capabilities(self) -> Capabilities:
        return self.inner.capabilities

    async def open(self) -> None:
        await self.inner.open()

    async def close(self) -> None:
        await self.inner.close()

    async def check(self) -> Sequence[Finding]:
        return await self.inner.check()

    async def schema(self) -> Schema | None:
        return await self.inner.schema()

    async def load(self, wanted: Mapping[SessionRef, Want]) -> Loaded:
        return await self.inner.load(wanted)

    async def commit(self, changes: Sequence[Change]) -> list[Outcome]:
        return await self.inner.commit(changes)

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
        return await self.inner.snapshot(
            ref, working_memory=working_memory, metadata=metadata, messages=messages, tool_calls=tool_calls, runs=runs
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
        return await self.inner.events(
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
        return await self.inner.tool_calls(
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
        return await self.inner.runs(
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
        return await self.inner.partial(ref, run_id, attempt=attempt, message=message, offset=offset, limit=limit)

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
        return await self.inner.sessions(
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
        return await self.inner.due(queue, agent=agent, after=after, limit=limit)

    async def refs(self, *, after: SessionRef | None = None, limit: int) -> list[SessionRef]:
        return await self.inner.refs(after=after, limit=limit)

    async def wait(self, ref: SessionRef, after: int, timeout: float, *, revision: int | None = None) -> None:
        await self.inner.wait(ref, after, timeout, revision=revision)

    async def erase(self, ref: SessionRef, limit: int) -> int:
        return await self.inner.erase(ref, limit)

    async def scrub(self, *, most: int | None = None) -> bool:
        return await self.inner.scrub(most=most)

    async def setting(self, name: str, *, base: int | None = None, value: bytes | None = None) -> Setting | None:
        return await self.inner.setting(name, base=base, value=value)


class YieldingStore(StoreWrapper):
    """Lets every other task run ``turns`` times between load and commit, and again before the answer."""

    def __init__(self, inner: Store, *, turns: int = 3) -> None:
        super().__init__(inner)
        self.turns = turns

    async def load(self, wanted: Mapping[SessionRef, Want]) -> Loaded:
        loaded = await self.inner.load(wanted)
        await self._give_way()
        return loaded

    async def commit(self, changes: Sequence[Change]) -> list[Outcome]:
        await self._give_way()
        outcomes = await self.inner.commit(changes)
        await self._give_way()
        return outcomes

    async def _give_way(self) -> None:
        for _ in range(self.turns):
            await asyncio.sleep(0)


class RivalStore(StoreWrapper):
    """Lets a rival commit between somebody's load and commit.

    Set ``rival``: it is called once, before the next commit that holds a change, and then forgotten. It writes through
    another door to the same data, or moves the clock; what was decided before it is then STALE, if the two touch.
    """

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.rival: Callable[[], Awaitable[object]] | None = None

    async def commit(self, changes: Sequence[Change]) -> list[Outcome]:
        rival = self.rival
        if rival is not None and changes:
            self.rival = None
            await rival()
        return await self.inner.commit(changes)


class UnknownStore(StoreWrapper):
    """Answers UNKNOWN for some changes, about half of them applied and half of them not. ``share`` of all changes, by
    ``seed``; the same change handed in again gets a new draw, so that it lands in the end."""

    def __init__(self, inner: Store, *, seed: int = 0, share: float = 0.4) -> None:
        super().__init__(inner)
        self._random = random.Random(seed)  # noqa: S311  # repeatable, not secret
        self.share = share
        self.unknown_applied = 0
        self.unknown_lost = 0

    async def transact(
        self, wanted: Mapping[SessionRef, Want], decide: Callable[[Loaded], Sequence[Change]]
    ) -> list[Outcome]:
        fates: list[Literal["told", "applied", "lost"]] = []

        def decide_and_lose(loaded: Loaded) -> Sequence[Change]:
            changes = decide(loaded)
            fates[:] = [self._fate() for _ in changes]
            return [change for change, fate in zip(changes, fates, strict=True) if fate != "lost"]

        told = iter(await self.inner.transact(wanted, decide_and_lose))
        return self._outcomes(fates, told)

    async def commit(self, changes: Sequence[Change]) -> list[Outcome]:
        fates = [self._fate() for _ in changes]
        kept = [change for change, fate in zip(changes, fates, strict=True) if fate != "lost"]
        return self._outcomes(fates, iter(await self.inner.commit(kept)))

    def _fate(self) -> Literal["told", "applied", "lost"]:
        drawn = self._random.random()
        return "told" if drawn >= self.share else "applied" if drawn < self.share / 2 else "lost"

    def _outcomes(self, fates: Sequence[str], told: Iterator[Outcome]) -> list[Outcome]:
        outcomes: list[Outcome] = []
        for fate in fates:
            outcome = Outcome.UNKNOWN if fate == "lost" else next(told)
            if fate == "lost":
                self.unknown_lost += 1
            elif fate == "applied" and outcome is Outcome.APPLIED:
                self.unknown_applied += 1
                outcome = Outcome.UNKNOWN
            outcomes.append(outcome)
        return outcomes
