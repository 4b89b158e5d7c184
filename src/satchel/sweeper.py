"""Looks after sessions that nobody meets: expiry, lost workers, retention, the rest of an erasure, abandoned imports."""

from __future__ import annotations

import asyncio

import msgspec

from satchel.commit import OpenStore
from satchel.domain.decisions.housekeeping import AbandonImport, EndErasure, Sweep
from satchel.domain.ids import SessionRef
from satchel.domain.principal import Principal
from satchel.domain.record import SessionRecord
from satchel.errors import NotFound, StoreError

ERASE_STEP = 500  # rows of one commit
PAGE = 100


class SweepReport(msgspec.Struct, frozen=True, kw_only=True):
    """What one sweep did: sessions by what became of them, and rows erased."""

    visited: int = 0
    expired: int = 0
    deleted: int = 0
    runs_settled: int = 0
    rows_erased: int = 0


class Sweeper:
    """Several may sweep one store at once: each thing is done once."""

    def __init__(self, store: OpenStore) -> None:
        self._store = store

    async def sweep_once(self) -> SweepReport:
        """Visit every session that has something due now."""
        report = SweepReport()
        after: SessionRef | None = None
        while True:
            refs = await self._store.store.due("sweep", after=after, limit=PAGE)
            for ref in refs:
                report = await self._visit(ref, report)
                after = ref
            if len(refs) < PAGE:
                return report

    async def run_forever(self, *, interval: float = 10.0) -> None:
        """Sweep every ``interval`` seconds until cancelled. A store that is away is asked again."""
        while True:
            try:
                await self.sweep_once()
            except StoreError:  # it is away or busy: the next round finds what this one left
                await asyncio.sleep(interval)
            await asyncio.sleep(interval)

    async def _visit(self, ref: SessionRef, report: SweepReport) -> SweepReport:
        before = (await self._store.store.snapshot(ref, working_memory=False, metadata=False)).record
        if before is None:
            return report
        operator = Principal.operator(tenant_id=ref.tenant_id)
        if before.hidden:
            await self._store.committer.submit(AbandonImport(ref=ref, principal=operator))
        elif before.status != "DELETED":
            try:
                await self._store.committer.submit(Sweep(ref=ref, principal=operator))
            except NotFound:
                return report
        after = (await self._store.store.snapshot(ref, working_memory=False, metadata=False)).record
        erased = await erase_rows(self._store, ref) if after is not None and after.status == "DELETED" else 0
        return _add(report, before, after, erased)


def _add(report: SweepReport, before: SessionRecord, after: SessionRecord | None, erased: int) -> SweepReport:
    status = before.status if after is None else after.status
    turn_settled = before.turn is not None and after is not None and after.turn != before.turn
    return SweepReport(
        visited=report.visited + 1,
        expired=report.expired + (status == "EXPIRED" and before.status != "EXPIRED"),
        deleted=report.deleted + (status == "DELETED" and before.status != "DELETED"),
        runs_settled=report.runs_settled + turn_settled,
        rows_erased=report.rows_erased + erased,
    )


async def erase_rows(store: OpenStore, ref: SessionRef) -> int:
    """Erase a tombstone's rows, step by step; how many there were. Whoever is interrupted leaves the rest to the sweeper."""
    total = 0
    while True:
        erased = await store.store.erase(ref, ERASE_STEP)
        if erased == 0:
            break
        total += erased
        await asyncio.sleep(0)  # others may write between two steps
    await store.committer.submit(EndErasure(ref=ref, principal=Principal.operator(tenant_id=ref.tenant_id)))
    return total
