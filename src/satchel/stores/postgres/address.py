"""The store's address: `postgresql://user:password@host:5432,host2/database?pool_size=8`."""

from __future__ import annotations

import re
from difflib import get_close_matches
from urllib.parse import parse_qs, parse_qsl, unquote, urlencode, urlsplit, urlunsplit

import msgspec

from satchel.errors import InvalidInput
from satchel.stores.sql.address import checked_port, number, seconds, unknown_option
from satchel.stores.sql.reaching import shown_place

SCHEMES = ("postgresql", "postgres")
PORT = 5432
_OURS = ("pool_size", "pool_wait", "connect_timeout", "target_session_attrs")
# The driver's, as libpq calls them. Whatever else stands in an address is a setting of the server's, for our connections.
_DRIVERS = (
    *("host", "port", "dbname", "database", "user", "password", "passfile", "service", "krbsrvname", "gsslib"),
    *("sslmode", "sslcert", "sslkey", "sslrootcert", "sslcrl", "sslpassword", "sslnegotiation"),
    *("ssl_min_protocol_version", "ssl_max_protocol_version"),
)
_KNOWN = (*_OURS, *_DRIVERS)
_SETTING = re.compile(r"[A-Za-z_][A-Za-z0-9_$]*(\.[A-Za-z_][A-Za-z0-9_$]*)?")
_PLACE = re.compile(r"(\[[^]]*\]|[^:]*)(?::(.*))?")
_ALIKE = 0.8  # of two names: one is a slip of the other
ATTRIBUTES = ("any", "primary", "read-write")  # of libpq's those that make sense for who writes


class Address(msgspec.Struct, frozen=True, kw_only=True):
    """``dsn`` is the driver's part. ``pool_size``: connections at most; ``pool_wait``: seconds until a call that finds none
    free is told so; ``connect_timeout``: seconds until a server that does not answer is given up."""

    dsn: str
    target_session_attrs: str
    pool_size: int = 8
    pool_wait: float = 5.0
    connect_timeout: float = 5.0


def parse_address(url: str) -> Address:
    """Raises InvalidInput; never shows the address, which may hold a password."""
    parts = urlsplit(url)
    if parts.scheme not in SCHEMES:
        raise InvalidInput("must begin with postgresql://", field="url")
    if "\0" in url:
        raise InvalidInput("holds a NUL character", field="url")
    ours: dict[str, str] = {}
    theirs: list[tuple[str, str]] = []
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        if name in _OURS:
            ours[name] = value
            continue
        if name not in _DRIVERS and (not _SETTING.fullmatch(name) or get_close_matches(name, _KNOWN, 1, _ALIKE)):
            raise unknown_option(name, _KNOWN)
        theirs.append((name, value))
    for host in parts.netloc.rpartition("@")[2].split(","):
        if (port := _parted(host)[1]) and not host.startswith("/"):
            checked_port(port)
    dsn = urlunsplit((parts.scheme, parts.netloc, parts.path, urlencode(theirs), ""))
    attributes = ours.get("target_session_attrs")
    if attributes is not None and attributes not in ATTRIBUTES:
        raise InvalidInput(f"target_session_attrs must be one of {', '.join(ATTRIBUTES)}", field="url")
    several = "," in parts.netloc.rpartition("@")[2]
    return Address(
        dsn=dsn,
        # One host is what was meant, whatever it is; of several the one that takes writes.
        target_session_attrs=attributes or ("read-write" if several else "any"),
        pool_size=number(ours, "pool_size", 8, least=1, most=1000),
        pool_wait=seconds(ours, "pool_wait", 5.0),
        connect_timeout=seconds(ours, "connect_timeout", 5.0),
    )


def refused_settings(dsn: str) -> InvalidInput | None:
    """What it means that a server takes none of the settings in ``dsn``; None: there are none."""
    names = [name for name, _ in parse_qsl(urlsplit(dsn).query, keep_blank_values=True) if name not in _DRIVERS]
    if not names:
        return None
    what = "an option" if len(names) == 1 else "options"
    return InvalidInput(
        f"has {what} that this server does not take as a setting of a connection, or not with that value:"
        f" {', '.join(repr(name[:40]) for name in names)}; there are {', '.join(sorted(_KNOWN))}, and the server's settings",
        field="url",
    )


class Target(msgspec.Struct, frozen=True):
    """Of one host's dsn, what sentences say about it. ``place``: host and port, or the folder of a socket."""

    host: str
    place: str
    database: str
    has_password: bool


def target_of(dsn: str) -> Target:
    parts = urlsplit(dsn)
    given = parse_qs(parts.query)
    account, _, place = parts.netloc.rpartition("@")
    user, colon, _ = account.partition(":")
    place = unquote(place) or _first(given, "host") or "localhost"
    host, port = _parted(place)
    if not place.startswith("/"):
        port = port or _first(given, "port")
        place = shown_place(host, int(port) if port.isdigit() else PORT)
    database = unquote(parts.path.removeprefix("/")) or _first(given, "dbname", "database")
    return Target(
        host=host,
        place=place,
        database=database or unquote(user) or _first(given, "user"),
        has_password=bool(colon) or "password" in given,
    )


def _parted(place: str) -> tuple[str, str]:
    """Host and port."""
    found = _PLACE.fullmatch(place)
    return (found[1].strip("[]"), found[2] or "") if found else (place, "")


def _first(given: dict[str, list[str]], *names: str) -> str:
    return next((given[name][-1] for name in names if name in given), "")
