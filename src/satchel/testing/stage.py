"""A store on stage: opened, with a clock that stands still, and everybody who may come to it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import msgspec

from satchel.domain.event import Event
from satchel.domain.ids import SessionRef
from satchel.domain.limits import DEFAULT_LIMITS, Limits
from satchel.domain.policy import DEFAULT_POLICY, Policy
from satchel.domain.principal import Principal
from satchel.domain.record import SessionRecord
from satchel.domain.run import Attempt, Run
from satchel.errors import SatchelError
from satchel.opened import OpenStore
from satchel.runs import RunManager
from satchel.sessions import SessionManager
from satchel.store import Store
from satchel.sweeper import Sweeper, SweepReport
from satchel.testing.clock import SettableClock

TENANT = "acme"
ADA = Principal.user("ada", tenant_id=TENANT)
BOB = Principal.user("bob", tenant_id=TENANT)
ADAS_AGENT = Principal.agent("shop", tenant_id=TENANT, acting_for="ada")
BOBS_AGENT = Principal.agent("shop", tenant_id=TENANT, acting_for="bob")
AGENT = Principal.agent("shop", tenant_id=TENANT)
ADMIN = Principal.admin("root", tenant_id=TENANT)
OPERATOR = Principal.operator(tenant_id=TENANT)
ADA_ELSEWHERE = Principal.user("ada", tenant_id="umbrella")
ADMIN_ELSEWHERE = Principal.admin("root", tenant_id="umbrella")

STRANGERS = (BOB, BOBS_AGENT, ADA_ELSEWHERE, ADMIN_ELSEWHERE)


def said(content: Any, role: str = "user", **more: Any) -> dict[str, Any]:
    """A chat message."""
    return {"role": role, "content": content, **more}


def asking(*labels: str) -> dict[str, Any]:
    """An assistant's message that asks for tool calls under these labels."""
    calls = [{"id": label, "type": "function", "function": {"name": "run", "arguments": "{}"}} for label in labels]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def lasting(
    *, idle: float | None = None, max_lifetime: float | None = None, retention: float | None = None, **restore: Any
) -> Policy:
    """A policy in seconds; None is never."""

    def duration(seconds: float | None) -> timedelta | None:
        return None if seconds is None else timedelta(seconds=seconds)

    return Policy(idle=duration(idle), max_lifetime=duration(max_lifetime), retention=duration(retention), **restore)


class Stage:
    """One open store, and managers for whoever calls.

    ``draws_keys``: its managers give each write an idempotency key, so that what changes nothing leaves its key: the record's
    revision moves, and nothing that anybody sees.
    """

    draws_keys = False

    def __init__(self, store: Store, clock: SettableClock, *, limits: Limits = DEFAULT_LIMITS) -> None:
        self.store = store
        self.clock = clock
        self.opened = OpenStore(store, limits=limits, policy=Policy().over(DEFAULT_POLICY))

    def sessions(self, who: Principal = ADA) -> SessionManager:
        return SessionManager(self.opened, who)

    def runs(self, who: Principal = ADAS_AGENT) -> RunManager:
        return RunManager(self.opened, who)

    async def session(self, who: Principal = ADA, **options: Any) -> str:
        """A new session of Ada's (or of whom ``who`` is bound to); its id."""
        if who.user_id is None:
            options.setdefault("user_id", "ada")
        return (await self.sessions(who).create_session(**options)).session_id

    async def started_run(self, session_id: str, who: Principal = ADAS_AGENT, **options: Any) -> tuple[Run, Attempt]:
        run = await self.runs(who).add_run(session_id, start=True, **options)
        return run, Attempt(run.run_id, run.attempt)

    async def sweep(self) -> SweepReport:
        return await Sweeper(self.opened).sweep_once()

    async def record(self, session_id: str, tenant_id: str = TENANT) -> SessionRecord:
        """The record as it is kept, whoever may see it, with nothing settled first."""
        snapshot = await self.store.snapshot(SessionRef(tenant_id, session_id))
        assert snapshot.record is not None
        return snapshot.record

    async def log(self, session_id: str, tenant_id: str = TENANT) -> tuple[Event, ...]:
        """All of the log, as it is kept."""
        return (await self.store.events(SessionRef(tenant_id, session_id), limit=1_000)).events

    async def kinds(self, session_id: str) -> list[str]:
        return [event.kind for event in await self.log(session_id)]


@asynccontextmanager
async def unchanged(stage: Stage, session_id: str) -> AsyncIterator[None]:
    """What happens in this block leaves the session as it was: record (and its revision), log, and rows."""
    before = await everything(stage, session_id)
    yield
    after = await everything(stage, session_id)
    if stage.draws_keys and before[0] is not None and after[0] is not None:
        after = (msgspec.structs.replace(after[0], revision=before[0].revision), *after[1:])
    assert after == before


async def everything(stage: Stage, session_id: str, tenant_id: str = TENANT) -> tuple[Any, ...]:
    ref = SessionRef(tenant_id, session_id)
    snapshot = await stage.store.snapshot(ref, messages=1_000, tool_calls=1_000, runs=1_000)
    runs = tuple((run, bytes(run.input)) for run in snapshot.runs)
    return (
        snapshot.record,
        snapshot.working_memory,
        snapshot.metadata,
        snapshot.messages,
        snapshot.tool_calls,
        runs,
        await stage.log(session_id, tenant_id),
    )


@asynccontextmanager
async def refused(
    stage: Stage, session_id: str, error: type[SatchelError], /, **facts: Any
) -> AsyncIterator[list[SatchelError]]:
    """The block raises ``error`` with these attributes, and changes nothing."""
    caught: list[SatchelError] = []
    before = await everything(stage, session_id)
    try:
        yield caught
    except error as met:
        caught.append(met)
        for name, value in facts.items():
            assert getattr(met, name) == value, f"{name} is {getattr(met, name)!r}"
    else:
        raise AssertionError(f"{error.__name__} was not raised")
    assert await everything(stage, session_id) == before
