"""The schema's version: how keys and rows are written. It is claimed once, by whoever comes first to an empty database."""

from __future__ import annotations

from satchel.errors import SatchelError, SchemaMismatch, StoreCorrupt
from satchel.store import Schema, SchemaStep
from satchel.stores.redis.connection import LOST, Command, call, meaning_of
from satchel.stores.redis.names import Keys
from satchel.stores.redis.servers import Servers, slot_of

KNOWN = 1

_CLAIM = (
    """EVAL "local t = redis.call('TIME') return redis.call('SET', KEYS[1], '1 ' .. t[1] .. string.format('%06d', t[2]),"""
    """ 'NX')" 1 {key}"""
)


async def prepare(servers: Servers, keys: Keys) -> None:
    """Raises SchemaMismatch: the database is newer than this program."""
    while not (found := await _version(servers, keys))[0]:
        (claimed,) = await servers.run([call(slot_of(keys.schema), "claim", [keys.schema], [KNOWN])], writes=True)
        if isinstance(claimed, Exception) and claimed is not LOST:
            raise claimed if isinstance(claimed, SatchelError) else meaning_of(claimed)
    if found[0] > KNOWN:
        raise SchemaMismatch(found=found[0], known=KNOWN)


async def look(servers: Servers, keys: Keys) -> Schema:
    """What the database has, and what is to come. Nothing is changed."""
    found, since = await _version(servers, keys)
    step = SchemaStep(
        number=1,
        name="0001_initial",
        about="The first layout of keys and rows; there is no older code that could meet it.",
        sql=_CLAIM.format(key=keys.schema.decode()) + "\n",
        applied_at=since if found else None,
    )
    return Schema(found=found, known=KNOWN, steps=(step,), comment="")


async def _version(servers: Servers, keys: Keys) -> tuple[int, int]:
    """And since when, in microseconds. 0 for a new database."""
    (kept,) = await servers.run([Command(slot_of(keys.schema), ("GET", keys.schema))])
    if isinstance(kept, Exception):
        raise kept if isinstance(kept, SatchelError) else meaning_of(kept)
    if kept is None:
        return 0, 0
    version, _, since = kept.partition(b" ")
    if not version.isdigit() or not (since.isdigit() or not since):
        raise StoreCorrupt("the schema's version")
    return int(version), int(since or 0)
