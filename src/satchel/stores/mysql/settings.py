"""What is kept beside all sessions, by name."""

from __future__ import annotations

from satchel.store import Setting
from satchel.stores.mysql.connection import Line
from satchel.stores.mysql.queries import SQL
from satchel.stores.sql.pool import Pool, in_transaction


async def setting(pool: Pool[Line], name: str, base: int | None, value: bytes | None) -> Setting | None:
    """With ``value``: written first, if the setting is at revision ``base``. What is kept then."""

    async def write_and_read(line: Line) -> Setting | None:
        statements = [SQL["setting"](name)]
        if value is not None and base is None:
            statements.insert(0, SQL["insert_setting"](name, value))
        elif value is not None:
            statements.insert(0, SQL["update_setting"](name, value, base))
        *_, found = await line.fetch_inside(*statements)
        return Setting(found[0][0], found[0][1]) if found else None

    return await in_transaction(pool, write_and_read, counts=value is not None)
