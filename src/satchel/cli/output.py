"""What a command prints: data on stdout, everything else on stderr; nothing stored reaches a terminal as it is."""

from __future__ import annotations

import sys
from typing import IO, TYPE_CHECKING, Any

import msgspec

from satchel.cli.visible import lines_kept, one_line, safe_json

if TYPE_CHECKING:
    from satchel.cli.consoles import PlainConsole

encoded = msgspec.json.Encoder().encode


def is_terminal(stream: IO[Any]) -> bool:
    return not stream.closed and stream.isatty()


def console(stream: IO[str] | None = None) -> PlainConsole:
    """For tables; stdout unless another stream is given. Loaded here: JSON needs none of it."""
    from satchel.cli.consoles import PlainConsole

    return PlainConsole(sys.stdout if stream is None else stream)


def write_bytes(data: bytes) -> None:
    """JSON to stdout, byte for byte; on a terminal unsafe characters are escaped, which is the same JSON."""
    if is_terminal(sys.stdout):
        data = safe_json(data)
    sys.stdout.flush()
    sys.stdout.buffer.write(data)


def write_text(text: str) -> None:
    """Text and a line's end to stdout; on a terminal unsafe characters are escaped."""
    if is_terminal(sys.stdout):
        text = lines_kept(text)
    sys.stdout.flush()
    sys.stdout.buffer.write(text.encode() + b"\n")


def write_json(document: object) -> None:
    """One line. ``msgspec.Raw`` inside it is written as it stands."""
    write_bytes(encoded(document) + b"\n")


def write_error(document: object) -> None:
    """One line of JSON on stderr."""
    data = encoded(document)
    sys.stderr.write((safe_json(data) if is_terminal(sys.stderr) else data).decode() + "\n")
    sys.stderr.flush()


def flush() -> None:
    sys.stdout.flush()
    sys.stdout.buffer.flush()


def say(text: str) -> None:
    """A sentence beside the data."""
    sys.stderr.write(one_line(text) + "\n")
    sys.stderr.flush()
