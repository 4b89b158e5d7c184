"""One spelling for equal values, by which arguments are told to be the same.

RFC 8785 (sorted keys, no spaces), less its rules for numbers: it makes doubles of them, and then 1e-400 is 0 and two ids of
twenty digits are one. Here a number is the decimal that its text says. A whole one is written in digits, another one as the
shortest text of its double where that says the same decimal, else as its digits and an exponent: 1e-400, 12345678901234567891e-20.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any

import msgspec

from satchel.domain.spelling import Written, as_written

_NUMBER = re.compile(r"(-?)([0-9]+)(?:\.([0-9]+))?(?:[eE]([-+]?)0*([0-9]+))?")
_DIGITS = 400  # of a whole number that was written with an exponent or a point: as many as a double may have, and some
_EXACT = 1 << 53  # from here on a double is not the only one that is nearest to a whole number


class _Exact:
    """A number that no double holds."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text


def canonical(value: object) -> bytes:
    """``value``: Python values, in which a ``msgspec.Raw`` is JSON text."""
    exact: list[_Exact] = []
    made = _made(value, exact)
    if exact:
        return _written(made).encode()
    return json.dumps(made, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def _made(value: object, exact: list[_Exact]) -> object:
    if isinstance(value, Mapping):
        return {key: _made(inner, exact) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_made(inner, exact) for inner in value]
    if isinstance(value, msgspec.Raw):
        return _made(as_written(bytes(value)), exact)
    if not isinstance(value, float):
        return value
    if not isinstance(value, Written):
        return _of_double(value)
    try:
        number = _number(value.text)
    except ValueError:  # an exponent of thousands of digits
        exact.append(_Exact(value.text))
        return exact[-1]
    if math.isfinite(value) and number == _number(repr(float(value))):
        return _of_double(value)
    whole = _as_whole(*number)
    if whole is not None:
        return whole
    exact.append(_Exact(f"{number[0]}{number[1]}e{number[2]}"))
    return exact[-1]


def _of_double(value: float) -> object:
    if not value.is_integer():
        return float(value)
    if abs(value) < _EXACT:
        return int(value)
    return _as_whole(*_number(repr(float(value))))


def _number(text: str) -> tuple[str, str, int]:
    """Sign, digits and the power of ten that they count: equal for equal numbers."""
    found = _NUMBER.fullmatch(text)
    assert found is not None  # a decoder read it
    sign, whole, fraction, turn, power = found.groups("")
    digits = (whole + fraction).lstrip("0")
    kept = digits.rstrip("0")
    if not kept:
        return "", "0", 0
    return sign, kept, int(turn + (power or "0")) - len(fraction) + len(digits) - len(kept)


def _as_whole(sign: str, digits: str, power: int) -> int | None:
    return int(sign + digits + "0" * power) if power >= 0 and len(digits) + power <= _DIGITS else None


def _written(value: Any) -> str:
    if type(value) is _Exact:
        return value.text
    if type(value) is dict:
        return "{" + ",".join(f"{_written(key)}:{_written(value[key])}" for key in sorted(value)) + "}"
    if type(value) is list:
        return "[" + ",".join(map(_written, value)) + "]"
    return json.dumps(value, ensure_ascii=False)
