"""Request bodies: read within a size and a time, and taken apart without touching the bytes that will be stored."""

from __future__ import annotations

import re
from typing import Any, TypeVar

import msgspec
from msgspec.structs import fields

from satchel.domain.json_text import admit
from satchel.domain.limits import WRITTEN_HERE
from satchel.errors import InvalidInput, LimitExceeded
from satchel.http.asgi import Receive
from satchel.http.deadlines import Deadlines
from satchel.http.problems import BodyTooSlow, MalformedBody, UnsupportedMediaType

S = TypeVar("S")

CLOSE = ((b"connection", b"close"),)  # what is left of the body is not read
JSON_TYPES = ("application/json", "application/merge-patch+json")
LONGEST_NAME = 64  # characters of an unknown member's name that an error repeats
NO_RAW = msgspec.Raw(b"")

_PLACE = re.compile(r" - at `\$([^`]*)`$")
_UNKNOWN = re.compile(r"Object contains unknown field `(.*)`", re.DOTALL)
_STEP = re.compile(r"\.([^.\[]+)|\[(\d+|\.\.\.)\]")


async def read_body(receive: Receive, headers: dict[bytes, bytes], *, most: int, deadlines: Deadlines) -> bytes:
    """Raises LimitExceeded as soon as it is larger, BodyTooSlow when it is not there in time, MalformedBody when the client
    leaves in the middle."""
    length = headers.get(b"content-length")
    if length is not None and length.isdigit() and int(length[:19]) > most:
        raise _too_large(int(length[:19]), most)
    try:
        with deadlines.within():
            return await _read(receive, most)
    except TimeoutError:
        raise BodyTooSlow("the body took too long to come", headers=CLOSE) from None


async def _read(receive: Receive, most: int) -> bytes:
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise MalformedBody("the body ended before its end", headers=CLOSE)
        part = message.get("body", b"")
        size += len(part)
        if size > most:
            raise _too_large(size, most)
        parts.append(part)
        if not message.get("more_body"):
            return parts[0] if len(parts) == 1 else b"".join(parts)


class BodyTooLarge(LimitExceeded):
    """``headers``: what is left of the body is not read."""

    headers = CLOSE


def _too_large(size: int, most: int) -> LimitExceeded:
    return BodyTooLarge(field="body", size=size, limit=most, setting="server.body")


def check_media_type(headers: dict[bytes, bytes]) -> None:
    """Of a request with a body. Raises UnsupportedMediaType."""
    encoding = headers.get(b"content-encoding")
    if encoding is not None and encoding.strip().lower() != b"identity":
        raise UnsupportedMediaType("a compressed body is not taken here; send it as it is", headers=CLOSE)
    written = headers.get(b"content-type")
    if written is None or written == b"application/json":
        return
    media_type, _, parameters = written.decode("latin-1").partition(";")
    charset = re.search(r'charset\s*=\s*"?([^\s";]+)', parameters, re.IGNORECASE)
    if media_type.strip().lower() not in JSON_TYPES or (charset and charset[1].lower() not in ("utf-8", "utf8")):
        raise UnsupportedMediaType("the body must be JSON in UTF-8: Content-Type: application/json", headers=CLOSE)


def decode_as(decoder: msgspec.json.Decoder[S], body: bytes) -> S:
    """Raises MalformedBody for what is no JSON, InvalidInput with a pointer for what is of another shape."""
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as wrong:
        raise _misshapen(str(wrong), decoder.type) from None
    except msgspec.DecodeError:
        admit_envelope(body)  # it knows better what is wrong: half a character, say
        raise MalformedBody("the body is not JSON") from None
    except RecursionError:
        raise LimitExceeded(field="body", size=1000, limit=64, setting="limits.depth", unit="levels or more") from None


def admit_envelope(body: bytes) -> Any:
    """What the managers will not see of a body is checked here: duplicate keys, NaN, half characters, at any depth. The
    limits on what is stored are the managers' own. Returns it decoded."""
    try:
        return admit(body, field="body", limits=WRITTEN_HERE)[1]
    except LimitExceeded:
        raise
    except InvalidInput as wrong:
        if wrong.reason.startswith("is not JSON"):
            raise MalformedBody(f"the body {wrong.reason}") from None
        raise


def check_text(body: bytes) -> None:
    """Raises MalformedBody for what is not UTF-8."""
    if not body.isascii():
        try:
            body.decode()
        except UnicodeDecodeError as wrong:
            raise MalformedBody(f"the body is not UTF-8 (byte {wrong.start})") from None


def _misshapen(message: str, shape: Any) -> InvalidInput:
    """msgspec's sentence, without a value that it may quote, and its path as a JSON Pointer. ``shape``: what the body was to be;
    inside of it nothing else has members by name."""
    found = _PLACE.search(message)
    pointer = "" if found is None else _pointer(found[1])
    reason = message[: found.start()] if found else message
    unknown = _UNKNOWN.fullmatch(reason)
    if unknown is not None:  # the name is a place, told as far as a name may go
        pointer += _pointer_step(unknown[1][:LONGEST_NAME])
        reason = f"is not known here; known: {', '.join(field.encode_name for field in fields(shape))}"
    if reason.startswith("Invalid enum value"):
        reason = "is not one of the values that it may have"
    reason = reason.replace("`", "")
    return InvalidInput(reason[:1].lower() + reason[1:], field="body", pointer=pointer)


def _pointer(path: str) -> str:
    return "".join(_pointer_step(name or index) for name, index in _STEP.findall(path))


def _pointer_step(name: str) -> str:
    return "/" + name.replace("~", "~0").replace("/", "~1")
