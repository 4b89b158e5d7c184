"""A lease, and a record's entries in the queues of workers and of the sweeper."""

from __future__ import annotations

import msgspec

from satchel.domain.clock import SECOND
from satchel.domain.record import Lease, SessionRecord
from satchel.domain.state import Clock

EACH = 30 * SECOND


def new_lease(clock: Clock, each: int) -> Lease:
    return Lease(each=each, until=clock.lease_now + each, clock=clock.lease_clock)


def lost_lease(clock: Clock) -> Lease:
    """One that is over: of a run that came from elsewhere, and that nobody executes here. ``EACH`` if its attempt turns up."""
    return Lease(each=EACH, until=clock.lease_now, clock=clock.lease_clock)


def needed_sweep(record: SessionRecord) -> int | None:
    """The instant from which the sweeper has work here. Leases are found by ``lease_until``."""
    if record.erasing or record.hidden:
        return record.sweep_at
    return record.due_at


def with_entries(record: SessionRecord) -> SessionRecord:
    """The record with its entries in the sweeper's queue: ``sweep_at`` (it may be early, never late: activity does not move
    it) and the lease that ends first."""
    if record.turn is not None or record.lease_until is not None:
        record = _with_lease(record)
    needed = needed_sweep(record)
    if needed is None and record.status == "ACTIVE" and record.sweep_at is not None:
        return record  # a busy session: whoever comes too early moves it on
    if record.sweep_at is not None and needed is not None and record.sweep_at <= needed:
        return record
    if record.sweep_at == needed:
        return record
    return msgspec.structs.replace(record, sweep_at=needed)


def _with_lease(record: SessionRecord) -> SessionRecord:
    leases = record.leases()
    if not leases:
        return msgspec.structs.replace(record, lease_until=None, lease_clock="")
    newest = leases[-1].clock
    # A lease on a clock that is no more is over: its entry must not hide behind one that lives.
    first = min(leases, key=lambda lease: (lease.clock == newest, lease.until))
    if record.lease_until == first.until and record.lease_clock == first.clock:
        return record
    return msgspec.structs.replace(record, lease_until=first.until, lease_clock=first.clock)
