"""What is kept beside all sessions, by name."""

from __future__ import annotations

from satchel.store import Setting
from satchel.stores.postgres.connection import DRIVER_ERRORS, is_worth_another_try, meaning_of
from satchel.stores.postgres.pool import Again, Pool
from satchel.stores.postgres.queries import SQL

TRIES = 5


async def setting(pool: Pool, name: str, base: int | None, value: bytes | None) -> Setting | None:
    """With ``value``: written first, if the setting is at revision ``base``. What is kept then."""
    again = Again(TRIES)
    while True:
        try:
            async with pool.use() as line, line.transaction():
                if value is not None and base is None:
                    await line.run_inside(SQL["insert_setting"], name, value.decode())
                elif value is not None:
                    await line.run_inside(SQL["update_setting"], name, value.decode(), base)
                rows = await line.fetch_inside(SQL["setting"], name)
                return Setting(rows[0][0], str(rows[0][1]).encode()) if rows else None
        except DRIVER_ERRORS as error:
            if is_worth_another_try(error) and await again.pause():
                continue
            raise meaning_of(error) from error
