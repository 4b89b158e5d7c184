"""What is left of a deleted session goes: its rows, in steps. What the server keeps of them in its files until it writes over
it (dead rows, the write-ahead log) is beyond a client's reach."""

from __future__ import annotations

from satchel.domain.ids import SessionRef
from satchel.stores.postgres.connection import DRIVER_ERRORS, is_worth_another_try, meaning_of
from satchel.stores.postgres.pool import Again, Pool
from satchel.stores.postgres.queries import SQL

_STATEMENTS = tuple(SQL[name] for name in SQL if name.startswith("erase_"))
TRIES = 5


async def erase_rows(pool: Pool, ref: SessionRef, limit: int) -> int:
    """One step, one transaction; 0 when there are no rows, or no tombstone."""
    again = Again(TRIES)
    while True:
        try:
            async with pool.use() as line, line.transaction():
                rows = await line.fetch_inside(SQL["tombstone"], *ref)
                if not rows or not rows[0][0]:
                    return 0
                erased = 0
                for statement in _STATEMENTS:
                    erased += await line.run_inside(statement, *ref, max(0, limit - erased))
                return erased
        except DRIVER_ERRORS as error:
            if is_worth_another_try(error) and await again.pause():
                continue
            raise meaning_of(error) from error
