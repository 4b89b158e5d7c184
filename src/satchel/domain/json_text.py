"""JSON as it is stored: byte for byte what was given, after a full decode and a walk.

No decoder alone sees every fault: ``msgspec`` keeps the last of two equal keys and writes NaN as null, ``json`` accepts
lone surrogates. So text is decoded with ``json`` under hooks, then walked; Python values are walked, then encoded once.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, NoReturn

import msgspec

from satchel.domain.limits import DEFAULT_LIMITS, Limits
from satchel.errors import InvalidInput, LimitExceeded

type_names = {str: "text", int: "a number", float: "a number", bool: "a boolean", list: "a list", dict: "an object"}

NO_JSON = msgspec.Raw(b"")  # where there is no value; the very object, so that omit_defaults leaves it out


def raw_json(text: bytes | None) -> msgspec.Raw:
    """JSON text to be written as it is; NO_JSON for none."""
    return msgspec.Raw(text) if text else NO_JSON


_LINE_BREAKS = bytes.maketrans(b"\r\n", b"  ")
_MAX_DIGITS = 4300


def kind_of(value: object) -> str:
    """How errors call a value: its JSON type, else its Python type."""
    return "null" if value is None else type_names.get(type(value), f"a Python {type(value).__name__}")


def admit(value: object, *, field: str, limits: Limits = DEFAULT_LIMITS) -> tuple[bytes, Any]:
    """``value`` as the bytes that will be stored, and decoded.

    ``bytes`` and ``str`` are JSON text and are kept as received (line breaks between tokens become spaces); anything else
    is a Python value and is encoded once, compact. Raises InvalidInput with a JSON Pointer to the place.
    """
    if isinstance(value, (bytes, bytearray, memoryview, str)):
        return _admit_text(value, field, limits)
    return _admit_value(value, field, limits)


def admit_value(value: object, *, field: str, limits: Limits = DEFAULT_LIMITS) -> bytes:
    """A Python value as JSON, encoded once; a str is a text here, not JSON. Of a ``msgspec.Raw`` the text is kept."""
    if isinstance(value, msgspec.Raw):
        return _admit_text(bytes(value), field, limits)[0]
    return _admit_value(value, field, limits)[0]


def _admit_text(text: bytes | bytearray | memoryview | str, field: str, limits: Limits) -> tuple[bytes, Any]:
    try:
        data = text.encode() if isinstance(text, str) else bytes(text)
        decoded_text = text if isinstance(text, str) else data.decode()
    except UnicodeEncodeError:
        raise InvalidInput("holds a lone surrogate, which is not text", field=field) from None
    except UnicodeDecodeError as wrong:
        raise InvalidInput(f"is not UTF-8 (byte {wrong.start})", field=field) from None
    try:
        value = _DECODER.decode(decoded_text)
    except _Refused as refused:
        raise InvalidInput(refused.reason, field=field) from None
    except RecursionError:
        raise LimitExceeded(
            field=field, size=_depth(data), limit=limits.depth, setting="limits.depth", unit="levels"
        ) from None
    except ValueError as wrong:
        where = f" (character {wrong.pos})" if isinstance(wrong, json.JSONDecodeError) else ""
        hint = '; a str is taken as JSON text: give a dict, or JSON like {"role": "user", "content": "…"}'
        raise InvalidInput(f"is not JSON{where}{hint if field == 'message' else ''}", field=field) from None
    walk(value, field=field, limits=limits)
    if b"\n" in data or b"\r" in data:  # only between tokens: inside a string they would not be JSON
        data = data.translate(_LINE_BREAKS)
    return data, value


def _admit_value(value: object, field: str, limits: Limits) -> tuple[bytes, Any]:
    if _is_plain(value, limits):
        return msgspec.json.encode(value), value
    _walk(value, field, limits)
    try:
        return msgspec.json.encode(value), value
    except TypeError:  # a Mapping or a sequence that is no dict, list or tuple
        plain = _builtin(value)
        return msgspec.json.encode(plain), plain


def _builtin(value: object) -> Any:
    if isinstance(value, Mapping):
        return {key: _builtin(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_builtin(inner) for inner in value]
    return value


class _Refused(Exception):
    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise _Refused(f"has the key {_shown(key)} twice in one object")
            seen.add(key)
    return made


def _no_constant(name: str) -> NoReturn:
    raise _Refused(f"holds {name}, which is not JSON")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise _Refused("holds a number that is too large for a double")
    return number


def _short_int(text: str) -> int:
    if len(text) > _MAX_DIGITS:
        raise _Refused(f"holds a number of {len(text)} digits, the limit is {_MAX_DIGITS}")
    return int(text)


_DECODER = json.JSONDecoder(
    object_pairs_hook=_unique_keys, parse_constant=_no_constant, parse_float=_finite, parse_int=_short_int
)


def _shown(key: str) -> str:
    short = key if len(key) <= 40 else key[:40] + "…"
    return json.dumps(short)


def _depth(data: bytes) -> int:
    """The nesting of text that is too deep to decode; brackets inside strings do not count."""
    depth = deepest = 0
    in_string = escaped = False
    for byte in data:
        if in_string:
            if escaped:
                escaped = False
            elif byte == 0x5C:
                escaped = True
            elif byte == 0x22:
                in_string = False
        elif byte == 0x22:
            in_string = True
        elif byte in b"[{":
            depth += 1
            deepest = max(deepest, depth)
        elif byte in b"]}":
            depth -= 1
    return deepest


def walk(value: object, *, field: str, limits: Limits = DEFAULT_LIMITS) -> None:
    """Refuse what JSON text cannot hold, or may not: types, NaN, surrogates, depth, number of values."""
    if not _is_plain(value, limits):
        _walk(value, field, limits)


def _walk(value: object, field: str, limits: Limits) -> None:
    nodes = 0
    # Each entry: the value, its depth, and its place as a chain of (parent place, key).
    stack: list[tuple[object, int, Any]] = [(value, 1, None)]
    while stack:
        item, depth, place = stack.pop()
        nodes += 1
        if isinstance(item, Mapping):
            _check_depth(depth, field, limits)
            for key, inner in item.items():
                if type(key) is not str:
                    raise InvalidInput(f"has {kind_of(key)} as a key", field=field, pointer=_pointer(place))
                _check_text(key, field, place)
                stack.append((inner, depth + 1, (place, key)))
        elif isinstance(item, (list, tuple)):
            _check_depth(depth, field, limits)
            stack.extend((inner, depth + 1, (place, index)) for index, inner in enumerate(item))
        else:
            _check_scalar(item, field, place)
        if nodes + len(stack) > limits.nodes:
            raise LimitExceeded(
                field=field, size=nodes + len(stack), limit=limits.nodes, setting="limits.nodes", unit="values"
            )


def _is_plain(value: object, limits: Limits) -> bool:
    """One level of ASCII texts, which is what most messages are: nothing in it can be wrong."""
    if type(value) is not dict or len(value) >= limits.nodes:
        return False
    for key, inner in value.items():
        if type(key) is not str or type(inner) is not str or not (key.isascii() and inner.isascii()):
            return False
    return True


def _check_depth(depth: int, field: str, limits: Limits) -> None:
    if depth > limits.depth:
        raise LimitExceeded(field=field, size=depth, limit=limits.depth, setting="limits.depth", unit="levels")


def _check_scalar(item: object, field: str, place: Any) -> None:
    if item is None or type(item) is bool:
        return
    if type(item) is str:
        _check_text(item, field, place)
    elif type(item) is int:
        if item.bit_length() > 14_000:
            raise InvalidInput("is a number of too many digits", field=field, pointer=_pointer(place))
    elif type(item) is float:
        if not math.isfinite(item):
            raise InvalidInput(f"is {item}, which JSON cannot hold", field=field, pointer=_pointer(place))
    else:
        raise InvalidInput(f"is {kind_of(item)}, which JSON cannot hold", field=field, pointer=_pointer(place))


def _check_text(text: str, field: str, place: Any) -> None:
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise InvalidInput(
                "holds a lone surrogate, which is not text", field=field, pointer=_pointer(place)
            ) from None


def _pointer(place: Any) -> str:
    """RFC 6901; keys that are themselves not text are shown escaped."""
    parts: list[str] = []
    while place is not None:
        place, key = place
        shown = str(key).encode("utf-8", "backslashreplace").decode()
        parts.append(shown.replace("~", "~0").replace("/", "~1"))
    return "".join(f"/{part}" for part in reversed(parts))


def decode(data: bytes | str) -> Any:
    """Stored JSON as Python values. Raises ValueError when what is stored is not JSON any more."""
    try:
        return msgspec.json.decode(data)
    except msgspec.DecodeError as wrong:
        # Numbers beyond 64 bits and the like, which msgspec will not read: they are stored as they came.
        try:
            return json.loads(data)
        except ValueError:
            raise ValueError(str(wrong)) from wrong
