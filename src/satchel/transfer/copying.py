"""One session from one store to another, whole and under its own id. The operator's: a copy asks nobody's limits again.

It is replayed from its log, as an import is, so that a copy which broke off is gone on with: into a hidden session, or behind
what a former copy left, which is seen all along. What stands at the destination is never written over: it is the same, or the
beginning of the same, or something else, which is left. One thing gives way: an end that nobody wrote there, but a former copy, which
ended what was open, or time.
"""

from __future__ import annotations

import os
from typing import Literal

import msgspec

from satchel.access import Access
from satchel.domain.bodies import SessionTransferred, read_body
from satchel.domain.decisions.imports import PLACED, GiveUpCopy, GiveUpImport, PlaceTombstone, was_abandoned
from satchel.domain.ids import SessionRef
from satchel.domain.principal import Principal
from satchel.domain.record import SessionRecord
from satchel.domain.replay import Replay
from satchel.errors import SatchelError, SessionDeleted, StoreBusy, StoreCorrupt
from satchel.opened import OpenStore
from satchel.store import Snapshot, Store
from satchel.sweeper import erase
from satchel.transfer.beside import first_difference, is_nobodys_end
from satchel.transfer.exporting import log, waiting_inputs
from satchel.transfer.portrait import HEADER, Frame, Portrait, frame_of, portrait, tombstone_portrait
from satchel.transfer.writing import Writer

TRIES = 3  # of a session whose half copy turned out to be another's, or was taken away

Result = Literal["copied", "continued", "exists", "tombstone", "differs", "unfinished"]


class Copied(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one session. ``continued``: a former copy of it was there, and has what was said since. ``unfinished``:
    an import that is not whole, which nobody sees, or the tombstone of one. ``reason`` says in what it ``differs``. ``frame`` and ``portrait`` are of the source; a
    tombstone has no frame."""

    ref: SessionRef
    result: Result
    reason: str = ""
    was_open: bool = False  # what was open in it arrives as failed
    frame: Frame | None = None
    portrait: Portrait | None = None


class Proof(msgspec.Struct, frozen=True, kw_only=True):
    """What the destination holds of what was copied. ``is_ahead``: all of it, and something that was said there since."""

    holds: bool
    is_ahead: bool = False
    portrait: Portrait | None = None


def access_for(opened: OpenStore, tenant_id: str) -> Access:
    return Access(opened, Principal.operator(tenant_id=tenant_id), opened.policy)


async def copy_session(source: OpenStore, target: OpenStore, ref: SessionRef) -> Copied:
    """What is overdue in it is committed at the source first, as for everybody who meets it. Raises StoreCorrupt,
    StoreBusy, StoreUnavailable."""
    access = access_for(source, ref.tenant_id)
    found = await source.store.snapshot(ref)
    if found.record is None or found.record.hidden:
        return Copied(ref=ref, result="unfinished")
    if was_abandoned(found.record):
        if found.record.origin is None:  # an import's: its name may have gone on behind it
            there = access_for(target, ref.tenant_id)
            await there.submit(PlaceTombstone(ref=ref, principal=there.principal, tombstone=found.record))
        return Copied(ref=ref, result="unfinished")
    try:

        async def fetch() -> Snapshot:
            return await source.store.snapshot(ref)

        snapshot, record = await access.read(ref, fetch)
    except SessionDeleted:
        return await _copy_tombstone(source, target, ref)
    copied = await _Copy(access, access_for(target, ref.tenant_id), snapshot, record).run()
    if copied.result == "differs":
        return copied
    frame = frame_of(record)
    return msgspec.structs.replace(
        copied, was_open=not frame.is_whole, frame=frame, portrait=await portrait(source.store, snapshot, frame)
    )


async def prove(target: Store, copied: Copied) -> Proof:
    """Reads the session again where it was copied to. Raises StoreCorrupt, StoreUnavailable."""
    snapshot = await target.snapshot(copied.ref)
    record, wanted = snapshot.record, copied.portrait
    if (
        record is None
        or record.hidden
        or record.arriving
        or wanted is None
        or (record.status == "DELETED") != (copied.frame is None)
    ):
        return Proof(holds=False)
    if copied.frame is None:
        found = tombstone_portrait(record)
        return Proof(holds=found == wanted, portrait=found)
    found = await portrait(target, snapshot, copied.frame)
    if found == wanted:
        return Proof(holds=True, portrait=found)
    went_on = record.version > copied.frame.version and found.log == wanted.log and found.events == wanted.events
    return Proof(holds=went_on, is_ahead=went_on, portrait=wanted if went_on else found)


async def _copy_tombstone(source: OpenStore, target: OpenStore, ref: SessionRef) -> Copied:
    record = (await source.store.snapshot(ref, working_memory=False, metadata=False)).record
    assert record is not None  # a tombstone stays
    access = access_for(target, ref.tenant_id)
    placed = await access.submit(PlaceTombstone(ref=ref, principal=access.principal, tombstone=record))
    if placed.value != PLACED:
        return Copied(ref=ref, result="differs", reason="it was deleted at the source, and lives at the destination")
    there = (await target.store.snapshot(ref, working_memory=False, metadata=False)).record
    if there is not None and there.erasing:
        await erase(target, ref)
    return Copied(ref=ref, result="tombstone", portrait=tombstone_portrait(record))


class _Copy:
    """A session that lives, on its way."""

    def __init__(self, source: Access, target: Access, snapshot: Snapshot, record: SessionRecord) -> None:
        self._source = source
        self._target = target
        self._snapshot = snapshot
        self._record = record
        self._ref = record.ref
        self._result: Literal["copied", "continued"] = "copied"

    async def run(self) -> Copied:
        for _ in range(TRIES):
            found = await self._target.store.snapshot(self._ref, working_memory=False)
            there = found.record
            if there is None:
                return await self._write(found, None, over=None, result=self._result)
            if was_abandoned(there):
                if there.erasing:
                    await erase(self._target.opened, self._ref)
                    found = await self._target.store.snapshot(self._ref, working_memory=False, metadata=False)
                    there = found.record or there
                return await self._write(found, None, over=there.revision, result=self._result)
            if there.hidden:
                if there.user_id == self._record.user_id and await self._has_beginning(there):
                    return await self._write(found, there, over=None, result=self._result)
                await self._target.submit(GiveUpImport(ref=self._ref, principal=self._target.principal))
            elif (known := await self._beside(found, there)) is not None:
                return known
        raise StoreBusy("somebody else writes this session at the destination; repeat the copy later")

    async def _beside(self, found: Snapshot, there: SessionRecord) -> Copied | None:
        """Something is there already. None: it gave way, and the session is to be copied anew."""
        if there.status == "DELETED":
            return self._differs("it was deleted at the destination, and its id is not used again")
        ours, shared = self._record, min(there.last_seq, self._record.last_seq)
        differing = [name for name in HEADER if name != "title" and getattr(there, name) != getattr(ours, name)]
        parts_at = await first_difference(self._source.store, self._target.store, self._ref, shared)
        if (
            parts_at is not None
            and differing in ([], ["user_id"])
            and await is_nobodys_end(self._target.store, there, parts_at)
        ):
            self._result = "continued"
            await self._target.submit(
                GiveUpCopy(ref=self._ref, principal=self._target.principal, revision=there.revision)
            )
            return None
        if differing == ["user_id"] and await self._was_transferred(there, after=shared):
            differing = []
        if differing:
            return self._differs(f"another {' and '.join(differing)}")
        if parts_at is not None:
            return self._differs(f"its log says something else from seq {parts_at} on")
        if there.last_seq > ours.last_seq or (there.last_seq == ours.last_seq and not there.arriving):
            return Copied(ref=self._ref, result="exists")
        if there.has_open_work if not there.arriving else there.streams or there.leases():
            return self._differs("it went on at both sides")
        return await self._write(found, there, over=there.revision, result="continued")

    async def _was_transferred(self, there: SessionRecord, *, after: int) -> bool:
        """Whether the side that went on says how its owner came from the other's."""
        longer, owner = (self._source, there.user_id), self._record.user_id
        if there.last_seq > self._record.last_seq:
            longer, owner = (self._target, self._record.user_id), there.user_id
        access, now = longer
        async for event in log(access, self._ref, max(there.last_seq, self._record.last_seq)):
            if event.seq > after and event.kind == "session_transferred":
                body = read_body(event.body, SessionTransferred)
                if body.former != now:
                    return False
                now = body.to
        return now == owner

    def _differs(self, reason: str) -> Copied:
        return Copied(ref=self._ref, result="differs", reason=reason)

    async def _has_beginning(self, there: SessionRecord) -> bool:
        """Whether what is there is how this session begins."""
        if there.last_seq > self._record.last_seq:
            return False
        return await first_difference(self._source.store, self._target.store, self._ref, there.last_seq) is None

    async def _write(
        self,
        found: Snapshot,
        written: SessionRecord | None,
        *,
        over: int | None,
        result: Literal["copied", "continued"],
    ) -> Copied:
        record, metadata = self._record, self._snapshot.metadata
        replay = Replay(self._blank(found), metadata=metadata)
        writer = Writer(
            self._target,
            replay,
            metadata=metadata,
            written=written,
            clock=found.clock,
            over=over,
            former=found.metadata,
        )
        try:
            async for event in log(self._source, self._ref, record.last_seq):
                await writer.add(event)
            replay.check_end()
            waiting_runs = [
                row.run_id for row in replay.state.runs.values() if row.status == "READY" and row.input_seq is None
            ]
            inputs = await waiting_inputs(self._source, self._ref, waiting_runs, record.last_seq)
            waiting = {run_id: bytes(text) for run_id, text in inputs.items()}
            await writer.finish(waiting=waiting, title=record.title)
        except SatchelError as error:
            if isinstance(error, ValueError):  # also InvalidInput: what stands there was admitted once
                raise StoreCorrupt(f"the log of session {self._ref.session_id}") from error
            raise
        except ValueError as wrong:
            raise StoreCorrupt(f"the log of session {self._ref.session_id}") from wrong
        if writer.replayed:
            raise StoreBusy("somebody else writes this session at the destination; repeat the copy later")
        return Copied(ref=self._ref, result=result)

    def _blank(self, found: Snapshot) -> SessionRecord:
        """As it was created, but for what its log does not say."""
        record = self._record
        return SessionRecord(
            tenant_id=record.tenant_id,
            session_id=record.session_id,
            user_id=record.user_id,
            revision=int.from_bytes(os.urandom(6), "big"),
            created_at=record.created_at,
            updated_at=record.created_at,
            active_at=found.clock.now,
            clock_from=found.clock.now,
            title=record.title,
            external_id=record.external_id,
            generation=record.generation,
            policy=record.policy,
            origin=record.origin,
        )
