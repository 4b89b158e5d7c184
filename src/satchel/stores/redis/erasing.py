"""What is left of a deleted session goes: its rows, in steps. What the server keeps of them in its files until it writes these
anew (BGREWRITEAOF, BGSAVE) is beyond a client's reach."""

from __future__ import annotations

from satchel.domain.ids import SessionRef
from satchel.errors import SatchelError, StoreUnavailable
from satchel.stores.redis.connection import LOST, Command, call, meaning_of
from satchel.stores.redis.names import Keys
from satchel.stores.redis.servers import Servers

TRIES = 3


async def erase_rows(servers: Servers, keys: Keys, ref: SessionRef, limit: int) -> int:
    """One step, one script; 0 when there are no rows, or no tombstone."""
    names = keys.names(ref)
    slot = keys.slots[names.bucket]
    (streams,) = await servers.run([Command(slot, ("SMEMBERS", names.streams))])
    if isinstance(streams, Exception):
        raise streams if isinstance(streams, SatchelError) else meaning_of(streams)
    used = [
        names.session,
        names.events,
        names.messages,
        names.keys,
        names.calls,
        names.call_order,
        names.newest,
        names.runs,
        names.run_order,
        names.streams,
        *(keys.pieces(ref, stream) for stream in streams),
    ]
    for _ in range(TRIES):
        (reply,) = await servers.run([call(slot, "erase", used, [max(0, limit), *streams])], writes=True)
        if isinstance(reply, Exception):
            if reply is LOST:  # again: to erase twice is fine
                continue
            raise reply if isinstance(reply, SatchelError) else meaning_of(reply)
        return int(reply[0])
    raise StoreUnavailable("the connection was lost")
