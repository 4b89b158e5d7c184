"""Identifiers: what a valid one is, and how Satchel's own are made.

Ids compare byte by byte. Parts are joined by length, never by a separator, so that no two lists of parts meet.
"""

from __future__ import annotations

import base64
import hashlib
from typing import NamedTuple

from satchel.domain.limits import Limits
from satchel.errors import InvalidInput, LimitExceeded

RANDOM_BYTES = 15  # 120 bits, 24 characters of base32


class SessionRef(NamedTuple):
    """Where a session is kept. Both parts are needed everywhere: an id alone finds nothing."""

    tenant_id: str
    session_id: str


def encode_id(prefix: str, bits: bytes) -> str:
    """`sess_` + 24 lower-case characters. ``bits`` are RANDOM_BYTES random or hashed bytes."""
    return prefix + base64.b32encode(bits[:RANDOM_BYTES]).decode().lower()


def join_parts(*parts: str) -> bytes:
    """Length-prefixed, so that ("a:b", "c") is not ("a", "b:c")."""
    out = bytearray()
    for part in parts:
        data = part.encode()
        out += len(data).to_bytes(4, "big")
        out += data
    return bytes(out)


def digest(*parts: str) -> bytes:
    """16 bytes that stand for the parts."""
    return hashlib.sha256(join_parts(*parts)).digest()[:16]


def derived_session_id(kind: str, *parts: str) -> str:
    """The id of a session that its caller can name again: by external_id, or by the key that created it."""
    return encode_id("sess_", hashlib.sha256(join_parts("session", kind, *parts)).digest())


def derived_run_id(session_id: str, key: bytes) -> str:
    """The id of a run that its caller added under this key (its hash): the same call makes the same run, whoever decides it."""
    return encode_id("run_", digest("run", session_id, key.hex()))


def checked_id(value: object, *, field: str, limits: Limits) -> str:
    """``value`` if it can be an identity: text, not empty, no control characters, valid UTF-8.

    Raises InvalidInput or LimitExceeded.
    """
    if type(value) is not str:  # a class of its own could say anything, and cannot be stored
        raise InvalidInput(f"must be text, not {type(value).__name__}", field=field)
    if not value:
        raise InvalidInput("must not be empty", field=field)
    return checked_line(value, field=field, limit=limits.id, setting="limits.id")


def checked_line(value: object, *, field: str, limit: int, setting: str) -> str:
    """``value`` if it is one line of valid text of at most ``limit`` bytes. Raises InvalidInput or LimitExceeded."""
    if type(value) is not str:
        raise InvalidInput(f"must be text, not {type(value).__name__}", field=field)
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        raise InvalidInput("holds a lone surrogate, which is not text", field=field) from None
    if size > limit:
        raise LimitExceeded(field=field, size=size, limit=limit, setting=setting)
    if not value.isprintable():
        for char in value:
            if ord(char) < 32 or 127 <= ord(char) < 160 or char in "\u2028\u2029":
                raise InvalidInput(f"holds the control character U+{ord(char):04X}", field=field)
    return value
