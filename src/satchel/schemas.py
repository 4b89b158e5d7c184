"""JSON Schemas that somebody brings along: what a question's answer must fit. Nothing that a schema names is ever fetched."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from satchel.domain.json_text import kind_of
from satchel.errors import ExtraMissing, InvalidInput, SatchelError

if TYPE_CHECKING:
    from jsonschema.protocols import Validator

EXTRA = "questions"
LONGEST_REASON = 500  # characters
_UNKNOWN: Any = object()  # the dialect of a schema that nobody here speaks
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")


def check_schema(schema: dict[str, Any], *, field: str) -> None:
    """Raises InvalidInput when it is no JSON Schema that can be held against a value here, with a pointer to the place;
    ExtraMissing without the library."""
    validator = _validator(schema, field)
    from jsonschema.exceptions import SchemaError

    try:
        type(validator).check_schema(schema)
    except SchemaError as wrong:
        reason = f"is no JSON Schema: {wrong.message}"
        raise InvalidInput(_short(reason), field=field, pointer=_pointer(wrong.absolute_path)) from None
    except Exception as wrong:
        raise InvalidInput(f"is no JSON Schema ({type(wrong).__name__})", field=field) from wrong
    for pointer, reference in _references(schema, ()):
        if not reference.startswith("#"):
            reason = f"refers to {reference!r}: only references within the schema are followed, nothing is fetched"
            raise InvalidInput(_short(reason), field=field, pointer=_pointer(pointer))
    trouble = _trouble(validator, None)
    if trouble is not None:
        raise InvalidInput(f"cannot be held against a value ({trouble})", field=field)


def refusal(schema: dict[str, Any], value: Any, *, field: str) -> SatchelError | None:
    """Why ``value`` does not fit, or None."""
    try:
        validator = _validator(schema, "schema")
    except SatchelError as wrong:
        return wrong
    trouble = _trouble(validator, value)
    if trouble is not None:
        return InvalidInput(f"cannot be held against the question's schema ({trouble})", field=field)
    from jsonschema.exceptions import best_match

    found = best_match(validator.iter_errors(value))
    if found is None:
        return None
    return InvalidInput(_short(found.message), field=field, pointer=_pointer(found.absolute_path))


def _validator(schema: dict[str, Any], field: str) -> Validator:
    try:
        from jsonschema import Draft202012Validator
        from jsonschema.validators import validator_for
        from referencing import Registry
    except ModuleNotFoundError as missing:
        raise ExtraMissing(EXTRA, action="a question with a schema") from missing
    dialect = schema.get("$schema")
    if dialect is None:
        kind: Any = Draft202012Validator
    else:
        known: Any = validator_for(schema, default=_UNKNOWN) if isinstance(dialect, str) else _UNKNOWN
        if known is _UNKNOWN:
            shown = repr(dialect) if isinstance(dialect, str) else kind_of(dialect)
            raise InvalidInput(_short(f"is a dialect that is not known: {shown}"), field=field, pointer="/$schema")
        kind = known
    made: Validator = kind(schema, registry=Registry())  # an empty one: it fetches nothing
    return made


def _trouble(validator: Validator, value: Any) -> str | None:
    """What keeps the schema from being held against ``value`` at all: a reference to nothing, or to itself, or a pattern
    that is none."""
    try:
        validator.is_valid(value)
    except RecursionError:
        return "it refers to itself without end"
    except re.error as wrong:
        return _short(f"a pattern is no regular expression: {wrong}")
    except Exception as wrong:  # noqa: BLE001  # whatever a schema makes of the library, it is the schema's fault
        return _short(f"{type(wrong).__name__}: {wrong}")
    return None


def _references(value: object, place: tuple[str | int, ...]) -> Iterator[tuple[tuple[str | int, ...], str]]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            if key in _REFERENCES and isinstance(inner, str):
                yield (*place, key), inner
            else:
                yield from _references(inner, (*place, key))
    elif isinstance(value, (list, tuple)):
        for index, inner in enumerate(value):
            yield from _references(inner, (*place, index))


def _short(reason: str) -> str:
    return reason if len(reason) <= LONGEST_REASON else reason[: LONGEST_REASON - 1] + "…"


def _pointer(path: Iterable[object]) -> str:
    parts = (str(part).replace("~", "~0").replace("/", "~1") for part in path)
    return "".join(f"/{part}" for part in parts)
