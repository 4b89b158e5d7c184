"""What a server's settings do to our promises: each finding names the line of `redis.conf` that mends it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from redis.exceptions import ResponseError

from satchel.errors import SatchelError, StoreNotDurable, StoreUnavailable
from satchel.store import Finding
from satchel.stores.redis.address import Address, Place
from satchel.stores.redis.connection import DRIVER_ERRORS, Line, Reply, meaning_of
from satchel.stores.redis.servers import Servers

OLDEST = (7, 0)  # the oldest server that is tested and still maintained: scripts with flags, sharded channels
LOOK_PATIENCE = 5.0  # seconds that a server may take to say how it is
SKEW = 1.0  # seconds that the clocks of a cluster's masters may differ

# What must be so for what was acknowledged to survive, and why.
_LINES: Sequence[tuple[str, str, str]] = (
    ("appendonly", "yes", "nothing is written to the disk before it is acknowledged"),
    ("appendfsync", "always", "a power cut loses writes that were acknowledged just before"),
    ("no-appendfsync-on-rewrite", "no", "while the file is rewritten, a power cut loses writes that were acknowledged"),
    ("maxmemory-policy", "noeviction", "when the memory is full, the server drops parts of sessions and says nothing"),
)


async def require_durability(servers: Servers, address: Address) -> None:
    """Raises StoreNotDurable, naming the line that mends it, unless the address says `durability=relaxed`. A replica may be a
    master tomorrow; one that is down is looked at by nobody."""
    for place in [*servers.masters(), *servers.replicas()]:
        try:
            info, settings = await _look(servers, place)
        except StoreUnavailable:
            if place in servers.masters():
                raise
            continue
        version = _version(info)
        if version < OLDEST:
            raise StoreNotDurable(
                f"the server's version is {'.'.join(map(str, version))}",
                line=f"redis {'.'.join(map(str, OLDEST))} or later",
            )
        if address.durability == "relaxed":
            continue
        if settings is None:
            raise StoreNotDurable("the account may not read the server's settings", line="user … +config|get")
        for name, wanted, why in _LINES:
            if settings.get(name) != wanted:
                raise StoreNotDurable(f"{name} is {settings.get(name)}: {why}", line=f"{name} {wanted}")


async def check(servers: Servers, address: Address) -> list[Finding]:
    found: list[Finding] = []
    times: list[float] = []
    if address.durability == "relaxed":
        found.append(
            Finding(
                is_fatal=False,
                what="durability=relaxed",
                why="the store's address allows to lose what was acknowledged",
            )
        )
    masters = servers.masters()
    for place in [*masters, *servers.replicas()]:
        try:
            info, settings = await _look(servers, place)
        except StoreUnavailable as error:
            if place in masters:
                raise
            found.append(Finding(is_fatal=False, what=f"replica {place[0]}:{place[1]}", why=error.reason))
            continue
        times.append(float(info["server_time"]))
        found += _of_server(info, settings)
        replicas = int(info.get("connected_slaves", "0"))
        if replicas > 0 and servers.needed_replicas(place) == 0:
            why = f"{replicas} replicas are there and nobody waits for them: a failover loses writes (?replicas={replicas})"
            found.append(Finding(is_fatal=False, what="replicas=0", why=why))
    if times and max(times) - min(times) > SKEW:
        why = f"the servers' clocks differ by {max(times) - min(times):.1f} s; leases and expiries count on them"
        found.append(Finding(is_fatal=False, what="TIME", why=why))
    return list({(one.what, one.why): one for one in found}.values())


def _of_server(info: Mapping[str, str], settings: Mapping[str, str] | None) -> list[Finding]:
    found: list[Finding] = []
    if settings is None:
        found.append(Finding(is_fatal=False, what="CONFIG GET", why="the account may not read the server's settings"))
    else:
        found += [
            Finding(is_fatal=True, what=f"{name} {settings.get(name)}", why=f"{why}; it should be: {name} {wanted}")
            for name, wanted, why in _LINES
            if settings.get(name) != wanted
        ]
    if info.get("aof_last_write_status", "ok") != "ok":
        found.append(Finding(is_fatal=True, what="aof_last_write_status", why="the server cannot write to its disk"))
    return found


async def _look(servers: Servers, place: Place) -> tuple[dict[str, str], Mapping[str, str] | None]:
    """INFO, and the settings where they may be read; ``server_time`` is how far its clock is from ours."""
    heard: list[Reply] = []
    names = [name for name, _, _ in _LINES]
    try:
        async with asyncio.timeout(LOOK_PATIENCE), servers.pool(place).use() as line:
            await _ask(line, names, heard)
    except DRIVER_ERRORS as error:
        raise meaning_of(error) from error
    info, settings, time = heard
    for reply in (info, time):
        if isinstance(reply, Exception):
            raise reply if isinstance(reply, SatchelError) else meaning_of(reply)
    told = dict(line.split(":", 1) for line in info.decode().splitlines() if ":" in line and not line.startswith("#"))
    told["server_time"] = str(int(time[0]) + int(time[1]) / 1e6 - asyncio.get_running_loop().time())
    if isinstance(settings, ResponseError):
        return told, None
    texts = [text.decode() for text in settings]
    return told, dict(zip(texts[::2], texts[1::2], strict=True))


async def _ask(line: Line, names: Sequence[str], heard: list[Reply]) -> None:
    await line.ask([("INFO", "everything"), ("CONFIG", "GET", *names), ("TIME",)], heard)


def _version(info: Mapping[str, str]) -> tuple[int, int]:
    parts = info.get("redis_version", "0.0").split(".")
    return int(parts[0]), int(parts[1])
