"""The store's address: `mysql://user:password@host:3306/database?pool_size=8`."""

from __future__ import annotations

import re
from typing import Literal
from urllib.parse import parse_qsl, unquote, urlsplit

import msgspec

from satchel.errors import InvalidInput
from satchel.stores.sql.address import checked_port, number, seconds, unknown_option

SCHEMES = ("mysql", "mariadb")
PORT = 3306
Tls = Literal["off", "on", "verify"]
_OPTIONS = ("pool_size", "pool_wait", "connect_timeout", "durability", "unix_socket", "tls", "tls_ca")


class Address(msgspec.Struct, frozen=True, kw_only=True):
    """``is_relaxed``: a server is accepted that loses acknowledged writes at a power cut. ``tls``: "on" encrypts, "verify" also
    makes sure who answers, by the authorities of ``tls_ca`` (a file) or of the system."""

    host: str
    port: int
    user: str
    password: bytes
    database: str
    unix_socket: str | None = None
    tls: Tls = "off"
    tls_ca: str | None = None
    is_relaxed: bool = False
    pool_size: int = 8
    pool_wait: float = 5.0
    connect_timeout: float = 5.0


def parse_address(url: str) -> Address:
    """Raises InvalidInput; never shows the address, which may hold a password."""
    parts = urlsplit(url)
    if parts.scheme not in SCHEMES:
        raise InvalidInput("must begin with mysql://", field="url")
    if "\0" in unquote(url):
        raise InvalidInput("holds a NUL character", field="url")
    given: dict[str, str] = {}
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        if name not in _OPTIONS:
            raise unknown_option(name, _OPTIONS)
        given[name] = value
    port = re.search(r":([^]:]*)$", parts.netloc.rpartition("@")[2])
    database = unquote(parts.path.removeprefix("/"))
    if not database or "/" in database or "`" in database:
        raise InvalidInput("must name a database: mysql://user@host/database", field="url")
    return Address(
        host=unquote(parts.hostname or "localhost"),
        port=checked_port(port[1]) if port and port[1] else PORT,
        user=unquote(parts.username or ""),
        password=unquote(parts.password or "").encode(),
        database=database,
        unix_socket=given.get("unix_socket"),
        tls=_tls(given),
        tls_ca=given.get("tls_ca"),
        is_relaxed=_is_relaxed(given),
        pool_size=number(given, "pool_size", 8, least=1, most=1000),
        pool_wait=seconds(given, "pool_wait", 5.0),
        connect_timeout=seconds(given, "connect_timeout", 5.0),
    )


def _tls(given: dict[str, str]) -> Tls:
    for mode in ("off", "on", "verify"):
        if given.get("tls", "off") == mode:
            return mode
    raise InvalidInput("tls must be one of off, on, verify", field="url")


def _is_relaxed(given: dict[str, str]) -> bool:
    found = given.get("durability", "full")
    if found not in ("full", "relaxed"):
        raise InvalidInput("durability must be full or relaxed", field="url")
    return found == "relaxed"
