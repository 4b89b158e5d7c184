"""What is left of a deleted session goes: its rows, in steps. What the server keeps of them in its files until it writes over
it (pages, the redo log, the binary log) is beyond a client's reach."""

from __future__ import annotations

from satchel.domain.ids import SessionRef
from satchel.stores.mysql.connection import Line
from satchel.stores.mysql.queries import SQL
from satchel.stores.sql.pool import Pool, in_transaction

_STATEMENTS = tuple(SQL[name] for name in SQL if name.startswith("erase_"))


async def erase_rows(pool: Pool[Line], ref: SessionRef, limit: int) -> int:
    """One step, one transaction; 0 when there are no rows, or no tombstone."""

    async def erase(line: Line) -> int:
        (found,) = await line.fetch_inside(SQL["tombstone"](*ref))
        if not found or not found[0][0]:
            return 0
        await line.run_inside(SQL["forget_retractions"](*ref, limit))
        erased = 0
        for statement in _STATEMENTS:
            if erased < limit:
                erased += (await line.run_inside(statement(*ref, limit - erased)))[0].changed
        return erased

    return await in_transaction(pool, erase)
