"""What is wrong with a setting, in a sentence that says which, where it was said, and what it may be."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches

import msgspec

from satchel.errors import InvalidInput

ALIKE = 0.75  # of the letters: less is no slip of a finger

_PLACE = re.compile(r"^(?P<reason>.*?)(?: - at `\$\.?(?P<place>[^`]*)`)?$", re.DOTALL)
_UNKNOWN = re.compile(r"Object contains unknown field `(.*)`", re.DOTALL)
_MISSING = re.compile(r"Object missing required field `(.*)`", re.DOTALL)
_TYPE = re.compile(r"`([^`]*)`")
_KINDS = {
    "int": "a whole number",
    "float": "a number",
    "str": "text",
    "bool": "true or false",
    "object": "a table",
    "array": "a list",
    "null": "nothing",
}
_GOT = re.compile(r", got `(.*)`$")


class Said:
    """``file`` and what it held; each setting that a variable or a flag gave goes before it."""

    def __init__(self, file: str) -> None:
        self._file = file
        self._later: dict[str, str] = {}

    def by(self, name: str, source: str) -> None:
        self._later[name] = source

    def where(self, name: str) -> str:
        return "said " + self._later.get(name, f"in {self._file}")

    def wrong(self, name: str, reason: str) -> InvalidInput:
        return InvalidInput(f"{reason} ({self.where(name)})", field=name)

    def misshapen(self, error: msgspec.ValidationError, known: Iterable[str]) -> InvalidInput:
        """``known``: names of all settings and groups."""
        found = _PLACE.fullmatch(str(error))
        assert found is not None  # it fits any text
        reason, place = found["reason"], found["place"] or ""
        for pattern, verb in ((_UNKNOWN, "is unknown"), (_MISSING, "is missing")):
            named = pattern.fullmatch(reason)
            if named is not None:
                name = f"{place}.{named[1]}" if place else named[1]
                near = near_to(name, known) if pattern is _UNKNOWN else ""
                return self.wrong(name, verb + near)
        return self.wrong(place or "settings", in_words(reason))


def in_words(reason: str) -> str:
    """``must be a whole number up to 65535`` for "Expected `int` <= 65535"."""
    reason = _GOT.sub(r", not `\1`", reason.replace("Expected", "must be", 1))
    reason = _TYPE.sub(lambda found: " or ".join(_KINDS.get(one, one) for one in found[1].split(" | ")), reason)
    for sign, word in (("<=", "up to"), (">=", "from"), (">", "above"), ("<", "below")):
        reason = reason.replace(f" {sign} ", f" {word} ")
    return reason[:1].lower() + reason[1:]


def near_to(name: str, known: Iterable[str]) -> str:
    near = get_close_matches(name, list(known), n=1, cutoff=ALIKE)
    return f"; did you mean {near[0]}?" if near else ""


def unknown_variables(environment: Mapping[str, str], known: Iterable[str], *, prefix: str) -> list[str]:
    """A sentence for each variable that begins like one of ours and is none."""
    names = set(known)
    return [
        f"the variable {name} is not known and is ignored{near_to(name, sorted(names))}"
        for name in sorted(environment)
        if name.startswith(prefix) and name not in names
    ]
