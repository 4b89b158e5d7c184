"""Numbers as they were spelled. Python makes 1.1 of 1.10, and of a decimal with twenty digits another number: where JSON of
somebody else's is shown as JSON, its own text is shown."""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

from satchel.domain.json_text import decode

# Patterns that begin with a letter of their own are looked for several times faster than one for all.
_DECIMALS = tuple(re.compile(pattern).search for pattern in (rb"\.[0-9]", rb"e[-+0-9]", rb"E[-+0-9]"))
_encode = msgspec.json.Encoder().encode
_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode

Spellings = dict[str, msgspec.Raw]


def may_change(text: bytes) -> bool:
    """Whether it may hold a number that Python would spell otherwise. Most JSON says no at once."""
    return b"-0" in text or any(search(text) for search in _DECIMALS)


def spelled(text: bytes) -> msgspec.Raw | None:
    """JSON text, if it would not come out again after it was read as Python values, and may hold a decimal."""
    if not may_change(text):
        return None
    text = text.strip()
    return None if _encode(decode(text)) == text else msgspec.Raw(text)


def spellings(texts: Iterable[tuple[str, bytes]]) -> Spellings:
    """By name, those that are ``spelled``."""
    found: Spellings = {}
    for name, text in texts:
        if text and (kept := spelled(text)) is not None:
            found[name] = kept
    return found


def spellings_in(text: bytes, names: Iterable[str]) -> Spellings:
    """Of the members of an object."""
    if not may_change(text):
        return {}
    members = _members(text)
    return spellings((name, bytes(members[name])) for name in names if name in members)
