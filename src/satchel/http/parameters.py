"""Parameters of a query, described once: how each is read, and how the OpenAPI document shows it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Literal
from urllib.parse import parse_qsl

import msgspec

from satchel.domain.spelling import value_given
from satchel.errors import InvalidInput
from satchel.http.problems import WrongParameter

Kind = Literal["text", "whole", "flag", "choice", "choices", "time", "members"]

MOST_PARAMETERS = 64
_encode = msgspec.json.Encoder().encode
_WHOLE = re.compile(r"[0-9]{1,19}")


class Parameter(msgspec.Struct, frozen=True, kw_only=True):
    """A choice is taken whatever its case. One of kind ``members`` stands for all ``name.KEY=VALUE``. ``least`` and ``most`` bound a whole number; of a text
    ``least`` is the length."""

    name: str
    kind: Kind
    about: str
    choices: tuple[str, ...] = ()
    default: Any = None
    least: int = 0
    most: int = 2**63 - 1
    note: str = ""  # behind the list of choices, in an error

    def read(self, text: str) -> Any:
        """Raises InvalidInput, which does not repeat the text."""
        match self.kind:
            case "text":
                if len(text) < self.least:
                    raise self._wrong("must not be empty")
                return text
            case "whole":
                if not _WHOLE.fullmatch(text) or not self.least <= int(text) <= self.most:
                    raise self._wrong(f"must be a whole number from {self.least} to {self.most}")
                return int(text)
            case "flag":
                if text not in ("true", "false"):
                    raise self._wrong("must be true or false")
                return text == "true"
            case "choice":
                return self._choice(text, f"must be one of {', '.join(self.choices)}{self.note}")
            case "choices":
                wrong = f"must be a list of {', '.join(self.choices)}, with commas between{self.note}"
                return tuple(self._choice(part, wrong) for part in text.split(",") if part)
            case "time":
                return self._time(text)
            case "members":
                return value_given(text)

    def _choice(self, text: str, wrong: str) -> str:
        found = next((one for one in self.choices if one.lower() == text.lower()), None)
        if found is None:
            raise self._wrong(wrong)
        return found

    def _time(self, text: str) -> datetime:
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            raise self._wrong("must be a time as in RFC 3339, for example 2026-01-31T08:30:00Z") from None
        if moment.tzinfo is None:
            raise self._wrong("needs an offset, for example Z (a + in an address is written %2B)")
        return moment

    def _wrong(self, reason: str) -> InvalidInput:
        return WrongParameter(reason, field=self.name)

    def schema(self) -> dict[str, Any]:
        match self.kind:
            case "whole":
                shown: dict[str, Any] = {"type": "integer", "minimum": self.least}
                if self.most < 2**63 - 1:
                    shown["maximum"] = self.most
            case "flag":
                shown = {"type": "boolean"}
            case "choice":
                shown = {"type": "string", "enum": list(self.choices)}
            case "choices":
                shown = {"type": "array", "items": {"type": "string", "enum": list(self.choices)}}
            case "time":
                shown = {"type": "string", "format": "date-time"}
            case "members":
                shown = {"type": "object", "additionalProperties": {"type": "string"}}
            case _:
                shown = {"type": "string"} | ({"minLength": self.least} if self.least else {})
        if self.default is not None:
            shown["default"] = self.default
        return shown


def read_query(query: bytes, parameters: Sequence[Parameter]) -> dict[str, Any]:
    """The arguments that were given. Raises InvalidInput for a parameter that is unknown, twice, or wrong."""
    if not query:
        return {}
    try:
        pairs = parse_qsl(
            query.decode("ascii"),
            keep_blank_values=True,
            strict_parsing=True,
            max_num_fields=MOST_PARAMETERS,
            errors="strict",
        )
    except ValueError:
        raise WrongParameter("must be NAME=VALUE, joined by &, in UTF-8", field="") from None
    known = {parameter.name: parameter for parameter in parameters}
    found: dict[str, Any] = {}
    for name, text in pairs:
        head, dot, key = name.partition(".")
        parameter = known.get(head if dot else name)
        if parameter is None or (parameter.kind == "members") != bool(dot):
            names = ", ".join(f"{one.name}.KEY" if one.kind == "members" else one.name for one in parameters)
            raise WrongParameter(f"is not known here; known: {names or 'none'}", field=name[:64])
        if parameter.kind == "members":
            members = found.setdefault(parameter.name, {})
            if key in members:
                raise WrongParameter("is given twice", field=parameter.name)
            members[key] = parameter.read(text)
            continue
        if name in found:
            raise WrongParameter("is given twice", field=name)
        found[name] = parameter.read(text)
    return {name: _encode(value) if type(value) is dict else value for name, value in found.items()}


# -- those that several routes share

LIMIT = Parameter(name="limit", kind="whole", about="Items of one page.", default=100, least=1, most=1000)
CURSOR = Parameter(name="cursor", kind="text", about="`next` of the page before: the list goes on there.")
ORDER = Parameter(name="order", kind="choice", about="By seq.", choices=("asc", "desc"), default="asc")
AFTER = Parameter(name="after", kind="whole", about="Only what has a greater seq.", default=0)
BEFORE = Parameter(name="before", kind="whole", about="Only what has a smaller seq.")
RUN_ID = Parameter(name="run_id", kind="text", about="Only what this run wrote.", least=1)
