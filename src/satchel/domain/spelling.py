"""Numbers as they were spelled. Python makes 1.1 of 1.10, and of a decimal with twenty digits another number: where JSON of
somebody else's is shown as JSON, its own text is shown."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

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


def member(text: bytes, name: str) -> bytes:
    """The text of an object's member. Raises KeyError."""
    return bytes(_members(text)[name])


def spellings_in(text: bytes, names: Iterable[str]) -> Spellings:
    """Of the members of an object."""
    if not may_change(text):
        return {}
    members = _members(text)
    return spellings((name, bytes(members[name])) for name in names if name in members)


def all_spellings(text: bytes) -> Spellings:
    """Of every member of an object."""
    return spellings((name, bytes(value)) for name, value in _members(text).items()) if may_change(text) else {}


def value_given(text: str) -> Any:
    """What is JSON is that value, anything else a text: the values of metadata in an address, and on the command line. JSON
    that Python would spell otherwise stays JSON text."""
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return text
    return spelled(text.encode()) or value


class Written(float):
    """A number that Python would spell otherwise, with its text. Nobody outside is given one: ``as_read`` makes it plain."""

    __slots__ = ("text",)
    text: str

    def __new__(cls, text: str) -> Written:
        made = super().__new__(cls, text)
        made.text = text
        return made


def as_written(text: bytes) -> Any:
    """JSON as Python values in which no number loses its spelling: ``json_as_written`` gives it again. Raises ValueError."""
    if not may_change(text):
        return decode(text)
    return json.loads(text, parse_float=_decimal, parse_int=_whole)


def json_as_written(value: object) -> bytes:
    return _encode_written(value)


def as_read(value: Any) -> Any:
    """What ``decode`` would have made of the same text."""
    if type(value) is Written:
        return decode(value.text)
    if type(value) is dict:
        return {name: as_read(inner) for name, inner in value.items()}
    if type(value) is list:
        return [as_read(inner) for inner in value]
    return value


def has_written(value: Any) -> bool:
    if type(value) is dict:
        return any(has_written(inner) for inner in value.values())
    if type(value) is list:
        return any(has_written(inner) for inner in value)
    return type(value) is Written


def _decimal(text: str) -> float:
    value = float(text)
    return value if _encode(value) == text.encode() else Written(text)


def _whole(text: str) -> int | Written:
    return Written(text) if text == "-0" else int(text)


def _raw(value: object) -> msgspec.Raw:
    if type(value) is Written:
        return msgspec.Raw(value.text)
    raise TypeError(f"{type(value).__name__} is no JSON")


_encode_written = msgspec.json.Encoder(enc_hook=_raw).encode
