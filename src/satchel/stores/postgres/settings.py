"""What is kept beside all sessions, by name."""

from __future__ import annotations

from satchel.store import Setting
from satchel.stores.postgres.connection import Line
from satchel.stores.postgres.queries import SQL
from satchel.stores.sql.pool import Pool, in_transaction


async def setting(pool: Pool[Line], name: str, base: int | None, value: bytes | None) -> Setting | None:
    """With ``value``: written first, if the setting is at revision ``base``. What is kept then."""

    async def write_and_read(line: Line) -> Setting | None:
        if value is not None and base is None:
            await line.run_inside(SQL["insert_setting"], name, value.decode())
        elif value is not None:
            await line.run_inside(SQL["update_setting"], name, value.decode(), base)
        rows = await line.fetch_inside(SQL["setting"], name)
        return Setting(rows[0][0], str(rows[0][1]).encode()) if rows else None

    return await in_transaction(pool, write_and_read, counts=value is not None)
