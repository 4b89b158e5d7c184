"""Looks after sessions that nobody meets: expiry, lost workers, retention, the rest of an erasure, abandoned imports."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable

import msgspec

from satchel.domain.decisions.housekeeping import AbandonImport, EndErasure, Sweep
from satchel.domain.ids import SessionRef
from satchel.domain.principal import Principal
from satchel.domain.record import SessionRecord
from satchel.errors import NotFound, SatchelError, StoreMisused, StoreUnavailable
from satchel.opened import OpenStore

INLINE_SCRUB = 32 * 1024 * 1024  # bytes of a store up to which a deletion removes its traces at once
ERASE_STEP = 500  # rows of one commit
PAGE = 100

_log = logging.getLogger("satchel.sweeper")


class SweepReport(msgspec.Struct, frozen=True, kw_only=True):
    """What one sweep did: sessions by what became of them, and rows erased. ``failed``: those that could not be looked
    after, each by itself (its record is corrupt, say); the log ``satchel.sweeper`` names them."""

    visited: int = 0
    expired: int = 0
    deleted: int = 0
    runs_settled: int = 0
    rows_erased: int = 0
    failed: int = 0


class Sweeper:
    """Several may sweep one store at once: each thing is done once."""

    def __init__(self, store: OpenStore) -> None:
        self._store = store
        self._named: set[SessionRef] = set()  # in the log: those that failed in this round or the last

    async def sweep_once(self) -> SweepReport:
        """Visit every session that has something due now; at the end, one scrub for all that was erased.

        A session that cannot be looked after is left, and those behind it are visited. Raises StoreUnavailable when it is
        the store that is away.
        """
        report = SweepReport()
        erased: list[SessionRef] = []
        failing: set[SessionRef] = set()
        after: SessionRef | None = None
        while True:
            refs = await self._store.store.due("sweep", after=after, limit=PAGE)
            for ref in refs:
                try:
                    report = await self._visit(ref, report, erased)
                except (StoreUnavailable, StoreMisused):
                    raise
                except Exception as error:  # noqa: BLE001  # whatever is wrong with one session, the others have a right to be visited
                    failing.add(ref)
                    self._name(ref, error)
                    report = msgspec.structs.replace(report, visited=report.visited + 1, failed=report.failed + 1)
                after = ref
            if len(refs) < PAGE:
                break
        self._named = failing
        if erased and await self._store.store.scrub():
            for ref in erased:
                await _end_erasure(self._store, ref)
        return report

    async def run_forever(self, *, interval: float = 10.0) -> None:
        """Sweep every ``interval`` seconds until cancelled. A store that is away is asked again: the next round finds what
        this one left."""
        while True:
            try:
                await self.sweep_once()
            except SatchelError as error:
                _log.warning("the sweep broke off: %s", error)
            except Exception:  # noqa: BLE001  # a fault of ours must not end the looking after
                _log.exception("the sweep broke off")
            await asyncio.sleep(interval)

    def _name(self, ref: SessionRef, error: Exception) -> None:
        """In the log, once: it will fail in every round."""
        if ref not in self._named:
            self._named.add(ref)
            what = error.code if isinstance(error, SatchelError) else type(error).__name__
            _log.error("session %r cannot be looked after: %s", ref.session_id, what)

    async def _visit(self, ref: SessionRef, report: SweepReport, erased: list[SessionRef]) -> SweepReport:
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
        rows = 0
        if after is not None and after.status == "DELETED":
            rows = await _erase_rows(self._store, ref)
            erased.append(ref)
        return _add(report, before, after, rows)


def _add(report: SweepReport, before: SessionRecord, after: SessionRecord | None, erased: int) -> SweepReport:
    status = before.status if after is None else after.status
    turn_settled = before.turn is not None and after is not None and after.turn != before.turn
    return msgspec.structs.replace(
        report,
        visited=report.visited + 1,
        expired=report.expired + (status == "EXPIRED" and before.status != "EXPIRED"),
        deleted=report.deleted + (status == "DELETED" and before.status != "DELETED"),
        runs_settled=report.runs_settled + turn_settled,
        rows_erased=report.rows_erased + erased,
    )


async def erase(store: OpenStore, ref: SessionRef) -> None:
    """Erase a tombstone's rows, step by step, and their traces if the store is small. The rest is the sweeper's."""
    await _erase_rows(store, ref)
    if await store.store.scrub(most=INLINE_SCRUB):
        await _end_erasure(store, ref)


async def erase_all(store: OpenStore, refs: Iterable[SessionRef]) -> int:
    """Erase the rows of these tombstones, and then the traces of all at once: a scrub takes as long for one as for a thousand.
    How many rows there were."""
    erased: list[SessionRef] = []
    total = 0
    for ref in refs:
        total += await _erase_rows(store, ref)
        erased.append(ref)
    if erased and await store.store.scrub():
        for start in range(0, len(erased), PAGE):  # together: they share a commit
            await asyncio.gather(*(_end_erasure(store, ref) for ref in erased[start : start + PAGE]))
    return total


async def _erase_rows(store: OpenStore, ref: SessionRef) -> int:
    """How many there were."""
    total = 0
    while erased := await store.store.erase(ref, ERASE_STEP):
        total += erased
        await asyncio.sleep(0)  # others may write between two steps
    return total


async def _end_erasure(store: OpenStore, ref: SessionRef) -> None:
    await store.committer.submit(EndErasure(ref=ref, principal=Principal.operator(tenant_id=ref.tenant_id)))
