"""JSON Schemas that somebody brings along: what a question's answer must fit.

Nothing that a schema names is ever fetched, and no regular expression in it takes longer than the text that it is held against.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from satchel.domain.json_text import kind_of
from satchel.errors import ExtraMissing, InvalidInput, SatchelError

if TYPE_CHECKING:
    from jsonschema_rs import Validator

EXTRA = "questions"
LONGEST_REASON = 500  # characters
_MASK = "it"  # stands in errors where the rejected value would
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")


def check_schema(schema: dict[str, Any], *, field: str) -> None:
    """Raises InvalidInput when it is no JSON Schema that can be held against a value here, with a pointer to the place;
    ExtraMissing without the library."""
    dialect = schema.get("$schema")
    if dialect is not None and not isinstance(dialect, str):
        raise InvalidInput(f"must be text, not {kind_of(dialect)}", field=field, pointer="/$schema")
    for pointer, reference in _references(schema, ()):
        if not reference.startswith("#"):
            reason = f"refers to {reference!r}: only references within the schema are followed, nothing is fetched"
            raise InvalidInput(_short(reason), field=field, pointer=_pointer(pointer))
    _validator(schema, field)


def refusal(schema: dict[str, Any], value: Any, *, field: str) -> SatchelError | None:
    """Why ``value`` does not fit, or None."""
    try:
        validator = _validator(schema, "schema")
    except SatchelError as wrong:
        return wrong
    found = next(iter(validator.iter_errors(value)), None)
    if found is None:
        return None
    return InvalidInput(_short(found.message), field=field, pointer=_pointer(found.instance_path))


def _validator(schema: dict[str, Any], field: str) -> Validator:
    try:
        import jsonschema_rs
    except ModuleNotFoundError as missing:
        raise ExtraMissing(EXTRA, action="a question with a schema") from missing
    try:
        return jsonschema_rs.validator_for(
            schema,
            mask=_MASK,
            offline=True,
            # In time that grows with the text alone: a user's answer must not keep the server busy, whatever an agent asks.
            pattern_options=jsonschema_rs.RegexOptions(),
        )
    except jsonschema_rs.ValidationError as wrong:
        place = _pointer(wrong.instance_path)
        if wrong.message.startswith("Unknown meta-schema"):
            raise InvalidInput("is a dialect that is not known", field=field, pointer="/$schema") from None
        if "regex" in wrong.message:
            reason = "is no regular expression that is taken here (without look-around and back references)"
            raise InvalidInput(reason, field=field, pointer=place) from None
        raise InvalidInput(_short(f"is no JSON Schema: {wrong.message}"), field=field, pointer=place) from None
    except Exception as wrong:  # whatever a schema makes of the library, it is the schema's fault
        raise InvalidInput(_short(f"is no JSON Schema ({type(wrong).__name__})"), field=field) from wrong


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
