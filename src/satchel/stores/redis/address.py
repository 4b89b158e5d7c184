"""The store's address: `redis://user:password@host:6379/0?pool_size=8`, `rediss://` with TLS, and of a cluster
`redis+cluster://host1:7000,host2:7000`, `rediss+cluster://`."""

from __future__ import annotations

import re
from typing import Literal
from urllib.parse import parse_qsl, unquote, urlsplit

import msgspec

from satchel.errors import InvalidInput
from satchel.stores.sql.address import checked_port, number, seconds, unknown_option

SCHEMES = ("redis", "rediss", "redis+cluster", "rediss+cluster")
DEFAULT_PORT = 6379
Durability = Literal["full", "relaxed"]
Place = tuple[str, int]  # host and port

_PREFIX = re.compile(r"[A-Za-z0-9_.-]{1,32}")
_TLS = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile")


class Address(msgspec.Struct, frozen=True, kw_only=True):
    """``pool_size``: connections to each server at most; ``pool_wait``: seconds until a call that finds none free is told so;
    ``connect_timeout``: seconds that a server may be away, or a failover take. ``replicas``: how many must have a write before it
    is acknowledged; None: in a cluster all of its master's. ``replica_wait``: seconds that they may take."""

    places: tuple[Place, ...]
    is_cluster: bool
    has_tls: bool
    username: str | None
    password: str | None
    database: int
    prefix: str
    durability: Durability
    pool_size: int
    pool_wait: float
    connect_timeout: float
    replicas: int | None
    replica_wait: float
    tls: tuple[tuple[str, str], ...]


def parse_address(url: str) -> Address:
    """Raises InvalidInput; never shows the address, which may hold a password."""
    parts = urlsplit(url)
    if parts.scheme not in SCHEMES:
        raise InvalidInput(f"must begin with one of {', '.join(f'{scheme}://' for scheme in SCHEMES)}", field="url")
    is_cluster = parts.scheme.endswith("+cluster")
    credentials, _, hosts = parts.netloc.rpartition("@")
    username, _, password = credentials.partition(":")
    places = tuple(_place(host) for host in hosts.split(","))
    if len(places) > 1 and not is_cluster:
        raise InvalidInput("names several hosts; those of a cluster begin with redis+cluster://", field="url")
    given = dict(parse_qsl(parts.query, keep_blank_values=True))
    known = {"pool_size", "pool_wait", "connect_timeout", "prefix", "durability", "replicas", "replica_wait", *_TLS}
    for name in given:
        if name not in known:
            raise unknown_option(name, known)
    has_tls = parts.scheme.startswith("rediss")
    if not has_tls and any(name in given for name in _TLS):
        raise InvalidInput(f"{', '.join(_TLS)} go with rediss:// alone", field="url")
    prefix = given.get("prefix", "satchel")
    if not _PREFIX.fullmatch(prefix):
        raise InvalidInput("prefix must be 1 to 32 characters of A-Z a-z 0-9 _ . -", field="url")
    durability = given.get("durability", "full")
    if durability not in ("full", "relaxed"):
        raise InvalidInput("durability must be full or relaxed", field="url")
    return Address(
        places=places,
        is_cluster=is_cluster,
        has_tls=has_tls,
        username=unquote(username) or None,
        password=unquote(password) or None,
        database=_database(parts.path, is_cluster=is_cluster),
        prefix=prefix,
        durability="relaxed" if durability == "relaxed" else "full",
        pool_size=number(given, "pool_size", 8, least=1, most=1000),
        pool_wait=seconds(given, "pool_wait", 5.0),
        connect_timeout=seconds(given, "connect_timeout", 15.0 if is_cluster else 5.0),
        replicas=number(given, "replicas", 0, least=0, most=100) if "replicas" in given else None,
        replica_wait=seconds(given, "replica_wait", 1.0),
        tls=tuple((name, given[name]) for name in _TLS if name in given),
    )


def _place(text: str) -> Place:
    host, port = text, ""
    if text.startswith("["):
        host, _, rest = text[1:].partition("]")
        port = rest.removeprefix(":")
    elif ":" in text:
        host, _, port = text.rpartition(":")
    return host or "localhost", checked_port(port) if port else DEFAULT_PORT


def _database(path: str, *, is_cluster: bool) -> int:
    text = path.strip("/")
    if not text:
        return 0
    if not text.isascii() or not text.isdigit() or (is_cluster and int(text) != 0):
        raise InvalidInput("ends with a database, which is a number (a cluster has only 0)", field="url")
    return int(text)
