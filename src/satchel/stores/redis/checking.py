"""What a server's settings do to our promises, and the line of `redis.conf` that mends each."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from redis.exceptions import NoPermissionError, ResponseError

from satchel.errors import SatchelError, StoreNotDurable, StoreUnavailable
from satchel.store import Finding
from satchel.stores.redis.address import Address, Place
from satchel.stores.redis.connection import DRIVER_ERRORS, Line, Reply, meaning_of
from satchel.stores.redis.names import BUCKETS, Keys
from satchel.stores.redis.servers import Servers

OLDEST = (7, 0)  # the oldest server that is tested and still maintained: scripts with flags, sharded channels
LISTENERS = 1  # connections of an open store beside its pool
APART = 1.0  # seconds that two clocks may differ
LOOK_PATIENCE = 5.0  # seconds that a server may take to say how it is

# What must be so for what was acknowledged to survive, what it keeps, and what happens where it is not.
_LINES: Sequence[tuple[str, str, str, str]] = (
    (
        "appendonly",
        "yes",
        "what is acknowledged is in the server's file",
        "nothing is written to the disk before it is acknowledged",
    ),
    (
        "appendfsync",
        "always",
        "what is acknowledged is on the server's disk",
        "a power cut loses writes that were acknowledged just before",
    ),
    (
        "no-appendfsync-on-rewrite",
        "no",
        "also while the file is written anew",
        "while the file is written anew, a power cut loses writes that were acknowledged",
    ),
    (
        "maxmemory-policy",
        "noeviction",
        "when the memory is full, writes are refused and nothing is lost",
        "when the memory is full, the server drops parts of sessions and says nothing",
    ),
)


class _Seen(NamedTuple):
    """``settings``: None where the account may not read them. ``ahead``: seconds of its clock before ours, by so much ``uncertain``."""

    info: Mapping[str, str]
    settings: Mapping[str, str] | None
    ahead: float
    uncertain: float


async def require_durability(servers: Servers, address: Address) -> None:
    """Raises StoreNotDurable, naming the line that mends it, unless the address says `durability=relaxed`. A replica may be a
    master tomorrow; one that is down is looked at by nobody."""
    for place in [*servers.masters(), *servers.replicas()]:
        try:
            seen = await _look(servers, place)
        except StoreUnavailable:
            if place in servers.masters():
                raise
            continue
        version = _version(seen.info)
        if version < OLDEST:
            needed = ".".join(map(str, OLDEST))
            raise StoreNotDurable(
                f"the server's version is {seen.info.get('redis_version')}", line=f"redis {needed} or later"
            )
        if address.durability == "relaxed":
            continue
        if seen.settings is None:
            raise StoreNotDurable("the account may not read the server's settings", line="user … +config|get")
        for name, wanted, _, otherwise in _LINES:
            if seen.settings.get(name) != wanted:
                raise StoreNotDurable(f"{name} is {seen.settings.get(name)}: {otherwise}", line=f"{name} {wanted}")


async def check(servers: Servers, address: Address, keys: Keys) -> list[Finding]:
    """Of several servers what is the same of all is said once."""
    found: list[Finding] = [_durability(address)]
    all_seen: list[_Seen] = []
    masters = servers.masters()
    for place in [*masters, *servers.replicas()]:
        try:
            seen = await _look(servers, place)
        except StoreUnavailable as error:
            if place in masters:
                raise
            mend = "see that it runs, or CLUSTER FORGET it"
            found.append(Finding(what=f"replica {place[0]}:{place[1]}", why=error.reason, mend=mend))
            continue
        all_seen.append(seen)
        found += [_server_version(seen.info), *_settings(seen.settings), *_disk(seen.info)]
        found += _connections(seen.info, address)
        if place in masters:
            found += _replicas(seen.info, servers.needed_replicas(place))
            found += await _channels(servers, address, keys, place)
    found.append(_clock(max(all_seen, key=lambda seen: abs(seen.ahead))))
    if len(all_seen) > 1:
        found.append(_clocks(all_seen))
    return list({(one.level, one.what): one for one in found}.values())


def _durability(address: Address) -> Finding:
    what = f"durability={address.durability}"
    if address.durability == "full":
        return Finding(is_ok=True, what=what, why="a server that may lose what it acknowledged is not opened")
    why = "the store's address allows a server that may lose what it acknowledged"
    return Finding(what=what, why=why, mend="take ?durability=relaxed out of the address")


def _server_version(info: Mapping[str, str]) -> Finding:
    what = f"redis_version={info.get('redis_version')}"
    if _version(info) < OLDEST:
        oldest = ".".join(map(str, OLDEST))
        why = f"the oldest that is supported is {oldest}: an older one is not opened"
        return Finding(is_fatal=True, what=what, why=why, mend=f"upgrade to redis {oldest} or later")
    return Finding(is_ok=True, what=what, why="a version that is supported")


def _settings(settings: Mapping[str, str] | None) -> list[Finding]:
    if settings is None:
        why = "the account may not read the server's settings: whether they keep what is acknowledged is not known"
        return [Finding(what="CONFIG GET", why=why, mend="ACL SETUSER … +config|get")]
    found: list[Finding] = []
    for name, wanted, keeps, otherwise in _LINES:
        what = f"{name} {settings.get(name)}"
        if settings.get(name) == wanted:
            found.append(Finding(is_ok=True, what=what, why=keeps, promise="durable"))
        else:
            mend = f"CONFIG SET {name} {wanted}  (and in redis.conf: {name} {wanted})"
            found.append(Finding(is_fatal=True, what=what, why=otherwise, mend=mend, promise="durable"))
    return found


def _disk(info: Mapping[str, str]) -> list[Finding]:
    state = info.get("aof_last_write_status", "ok")
    if state == "ok":
        return []
    mend = "see that there is room on the server's disk"
    return [
        Finding(
            promise="durable",
            is_fatal=True,
            what=f"aof_last_write_status={state}",
            why="the server cannot write its file",
            mend=mend,
        )
    ]


def _replicas(info: Mapping[str, str], needed: int) -> list[Finding]:
    there = int(info.get("connected_slaves", "0"))
    if there and not needed:
        why = f"{there} replicas are there and nobody waits for them: a failover loses writes that were acknowledged"
        return [Finding(what="replicas=0", why=why, mend=f"?replicas={there}  (in the store's address)")]
    if needed:
        return [Finding(is_ok=True, what=f"replicas={needed}", why="a failover keeps what was acknowledged")]
    return []


def _connections(info: Mapping[str, str], address: Address) -> list[Finding]:
    most = int(info.get("maxclients", "0"))
    wanted = address.pool_size + LISTENERS
    what = f"pool_size+{LISTENERS}={wanted}, maxclients={most}"
    if most and wanted > most:
        why = "the server refuses connections before one process has its pool: calls hear StoreBusy"
        return [Finding(what=what, why=why, mend=f"CONFIG SET maxclients {2 * wanted}  (or a smaller ?pool_size=)")]
    return [Finding(is_ok=True, what=what, why=f"room for {most // wanted} processes with such a pool")] if most else []


async def _channels(servers: Servers, address: Address, keys: Keys, place: Place) -> list[Finding]:
    """Whether the account may tell, and hear, of a commit. What is told here is of no session."""
    bucket = next((one for one in range(BUCKETS) if servers.owner(keys.slots[one]) == place), None)
    if bucket is None:  # a master of nothing
        return []
    channel = keys.hint(bucket)
    heard: list[Reply] = []
    try:
        async with asyncio.timeout(LOOK_PATIENCE):
            line = await Line.open(address, place)
            try:
                await line.ask([("SPUBLISH", channel, b"0 0 0 "), ("SSUBSCRIBE", channel)], heard)
            finally:
                await line.close()
    except DRIVER_ERRORS as error:
        raise meaning_of(error) from error
    if not any(isinstance(reply, NoPermissionError) for reply in heard):
        return []
    why = "the account may not publish or hear hints: who waits for another process's events looks every two seconds instead"
    return [Finding(what="channels", why=why, mend=f"ACL SETUSER … &{address.prefix}:* +@pubsub")]


def _clock(seen: _Seen) -> Finding:
    what = f"clock difference={seen.ahead:+.3f} s"
    if abs(seen.ahead) > APART + seen.uncertain:
        return Finding(
            what=what,
            why="expiry and leases go by the server's clock; API keys and tokens expire by this machine's, too early or late",
            mend="timedatectl set-ntp true  (on both machines)",
        )
    return Finding(
        is_ok=True, what=what, why="keys, tokens and logs of this machine mean the time that the store means"
    )


def _clocks(all_seen: Sequence[_Seen]) -> Finding:
    apart = max(seen.ahead for seen in all_seen) - min(seen.ahead for seen in all_seen)
    what = f"clocks of the servers={apart:.3f} s apart"
    if apart > APART + 2 * max(seen.uncertain for seen in all_seen):
        why = "after a failover, expiries and leases come too early or too late by as much"
        return Finding(what=what, why=why, mend="timedatectl set-ntp true  (on all of them)")
    return Finding(is_ok=True, what=what, why="a failover moves no expiry and no lease")


async def _look(servers: Servers, place: Place) -> _Seen:
    """Raises StoreUnavailable."""
    heard: list[Reply] = []
    commands = [("TIME",), ("INFO", "everything"), ("CONFIG", "GET", *(line[0] for line in _LINES))]
    try:
        async with asyncio.timeout(LOOK_PATIENCE), servers.pool(place).use() as line:
            asked = time.time()
            await line.ask(commands, heard)
            answered = time.time()
    except DRIVER_ERRORS as error:
        raise meaning_of(error) from error
    now, info, settings = heard
    for reply in (now, info):
        if isinstance(reply, Exception):
            raise reply if isinstance(reply, SatchelError) else meaning_of(reply)
    ahead = int(now[0]) + int(now[1]) / 1e6 - (asked + answered) / 2
    told = dict(line.split(":", 1) for line in info.decode().splitlines() if ":" in line and not line.startswith("#"))
    if isinstance(settings, ResponseError):
        return _Seen(told, None, ahead, (answered - asked) / 2)
    texts = [text.decode() for text in settings]
    return _Seen(told, dict(zip(texts[::2], texts[1::2], strict=True)), ahead, (answered - asked) / 2)


def _version(info: Mapping[str, str]) -> tuple[int, int]:
    parts = info.get("redis_version", "0.0").split(".")
    return int(parts[0]), int(parts[1])
