"""Columns of this store: the driver gives bytes, of names too. What they mean is in ``satchel.stores.sql.rows``."""

from __future__ import annotations

from typing import Any

from satchel.domain.ids import SessionRef
from satchel.domain.record import SessionRecord, encode_record
from satchel.stores.mysql.connection import Row

# Of each kind of row the places of names; bodies stay bytes.
EVENT = (2, 4, 5, 7, 8, 9)
CALL = (2, 4, 7, 8, 10, 12)
RUN = (0, 2)
PIECE = (0,)


def named(row: Row, places: tuple[int, ...]) -> list[Any]:
    """With names as str. What is no UTF-8 cannot have been written here, and is shown as well as it can be."""
    columns = list(row)
    for place in places:
        name = columns[place]
        if name is not None:
            columns[place] = name.decode(errors="replace")
    return columns


def ref_of(tenant_id: bytes, session_id: bytes) -> SessionRef:
    """A key that is no text any more is given all the same: its visit fails, those behind it are served."""
    return SessionRef(tenant_id.decode(errors="surrogateescape"), session_id.decode(errors="surrogateescape"))


def session_row(record: SessionRecord) -> tuple[Any, ...]:
    """All columns of ``sessions``."""
    return (
        record.tenant_id,
        record.session_id,
        record.user_id,
        None if record.hidden or record.status == "DELETED" else record.user_id,
        record.status,
        record.updated_at,
        record.turns_at,
        record.policy.retention,
        record.revision,
        record.ready_agent,
        record.sweep_at,
        record.lease_until,
        None if record.lease_until is None else record.lease_clock,
        encode_record(record),
    )
