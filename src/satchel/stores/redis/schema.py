"""The schema's version: how keys and rows are written. It is claimed once, by whoever comes first to an empty database."""

from __future__ import annotations

from satchel.errors import SchemaMismatch, StoreCorrupt
from satchel.stores.redis.connection import LOST, Command, meaning_of
from satchel.stores.redis.names import Keys
from satchel.stores.redis.servers import Servers, slot_of

KNOWN = 1


async def prepare(servers: Servers, keys: Keys) -> None:
    """Raises SchemaMismatch: the database is newer than this program."""
    slot = slot_of(keys.schema)
    version = Command(slot, ("GET", keys.schema))
    claim = Command(slot, ("SET", keys.schema, KNOWN, "NX"))
    (kept,) = await servers.run([version])
    while kept is None:
        (claimed,) = await servers.run([claim], writes=True)
        if isinstance(claimed, Exception) and claimed is not LOST:
            raise meaning_of(claimed)
        (kept,) = await servers.run([version])
    if isinstance(kept, Exception):
        raise meaning_of(kept)
    if not kept.isdigit():
        raise StoreCorrupt("the schema's version")
    if int(kept) > KNOWN:
        raise SchemaMismatch(found=int(kept), known=KNOWN)
