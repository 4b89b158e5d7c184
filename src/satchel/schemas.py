"""JSON Schemas that somebody brings along: what a question's answer must fit.

Nothing that a schema names is ever fetched, and no regular expression in it takes longer than the text that it is held against.
A schema can be small and its work without end all the same (references that branch double it with each step), so whatever may
be large is held against its answer in a process of its own, which has some seconds.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from typing import TYPE_CHECKING, Any

import msgspec

from satchel.domain.json_text import decode, kind_of
from satchel.errors import ExtraMissing, InvalidInput, SatchelError

if TYPE_CHECKING:
    from jsonschema_rs import Validator

EXTRA = "questions"
LONGEST_REASON = 500  # characters
_MASK = "it"  # stands in errors where the rejected value would
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
_MULTIPLYING = (b"$ref", b"$dynamicRef", b"$recursiveRef", b"uniqueItems", b"\\u")  # or a name that is spelt to hide
INLINE_WORK = 1_000_000  # bytes of a schema times bytes of a value that are held against each other at once
SECONDS = 5.0  # for the others
# Of their own: whoever sends many such answers makes them wait for each other, and not a store, or an agent's tools.
_THREADS = ThreadPoolExecutor(2, thread_name_prefix="satchel-schemas")
_encode_pair = msgspec.json.Encoder().encode


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


async def refusal_of(schema: bytes, value: bytes, *, field: str) -> SatchelError | None:
    """Why ``value`` does not fit ``schema``, or None; both are JSON."""
    if not _may_take_long(schema, value):
        return refusal(decode(schema), decode(value), field=field)
    try:
        _check_library()  # whoever lacks it hears that, and no other process is asked
    except ExtraMissing as missing:
        return missing
    return await asyncio.get_running_loop().run_in_executor(_THREADS, _refusal_apart, schema, value, field)


def _may_take_long(schema: bytes, value: bytes) -> bool:
    """References multiply work; so do a list of what may be and a list of what is; and whether all of a list differ."""
    if any(name in schema for name in _MULTIPLYING):
        return True
    return len(schema) * len(value) > INLINE_WORK


def _refusal_apart(schema: bytes, value: bytes, field: str) -> SatchelError | None:
    try:
        done = subprocess.run(  # this very program
            [sys.executable, "-P", "-m", "satchel.schemas"],
            input=_encode_pair((msgspec.Raw(schema), msgspec.Raw(value))),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=SECONDS,
            check=True,
        )
    except subprocess.TimeoutExpired:
        return InvalidInput(f"takes more than {SECONDS} seconds to be held against the question's schema", field=field)
    except (OSError, subprocess.SubprocessError):
        return InvalidInput("cannot be held against the question's schema", field=field)
    said: list[str] | None = decode(done.stdout)
    return None if said is None else InvalidInput(said[0], field=field, pointer=said[1])


def _main() -> None:
    """In a process of its own: a pair of schema and value comes in, null or the reason and its place goes out."""
    schema, value = decode(sys.stdin.buffer.read())
    found = refusal(schema, value, field="answer")
    said = None
    if found is not None:
        said = [found.reason, found.pointer] if isinstance(found, InvalidInput) else [str(found), ""]
    sys.stdout.buffer.write(msgspec.json.encode(said))


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


def _check_library() -> None:
    """Raises ExtraMissing."""
    try:
        import_module("jsonschema_rs")
    except ModuleNotFoundError as missing:
        raise ExtraMissing(EXTRA, action="a question with a schema") from missing


def _validator(schema: dict[str, Any], field: str) -> Validator:
    _check_library()
    import jsonschema_rs

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


if __name__ == "__main__":
    _main()
