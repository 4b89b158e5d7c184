"""The store's address: `postgresql://user:password@host:5432,host2/database?pool_size=8`."""

from __future__ import annotations

from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import msgspec

from satchel.errors import InvalidInput
from satchel.stores.sql.address import number, seconds

SCHEMES = ("postgresql", "postgres")
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
        if name in ("pool_size", "pool_wait", "connect_timeout", "target_session_attrs"):
            ours[name] = value
        else:
            theirs.append((name, value))
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
