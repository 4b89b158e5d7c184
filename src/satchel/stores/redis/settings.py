"""What is kept beside all sessions, by name."""

from __future__ import annotations

from satchel.errors import OutcomeUnknown, SatchelError
from satchel.store import Setting
from satchel.stores.redis.connection import LOST, Command, Reply, call, meaning_of
from satchel.stores.redis.names import Keys
from satchel.stores.redis.servers import Servers, slot_of

TRIES = 3


async def setting(servers: Servers, keys: Keys, name: str, base: int | None, value: bytes | None) -> Setting | None:
    """With ``value``: written first, if the setting is at revision ``base``. What is kept then."""
    slot = slot_of(keys.settings)
    if value is None:
        (reply,) = await servers.run([Command(slot, ("HGET", keys.settings, name.encode()))])
        return _kept(reply)
    arguments = (name.encode(), b"" if base is None else base, value)
    for _ in range(TRIES):
        (reply,) = await servers.run([call(slot, "setting", [keys.settings], arguments)], writes=True)
        if reply is not LOST:  # else again: if it was written, it is found
            return _kept(reply)
    raise OutcomeUnknown("the connection was lost")


def _kept(reply: Reply) -> Setting | None:
    if isinstance(reply, Exception):
        raise reply if isinstance(reply, SatchelError) else meaning_of(reply)
    if reply is None:
        return None
    revision, _, value = reply.partition(b" ")
    return Setting(int(revision), value)
