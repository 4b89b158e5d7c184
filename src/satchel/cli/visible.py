"""Stored text on its way to a terminal. Whoever wrote it may not move the cursor, change the title or hide a word."""

from __future__ import annotations

import re

# C0 and C1 controls and DEL; marks that reorder what follows them; separators that only look like a line's end; surrogates.
_UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")
_UNSAFE_BUT_LINES = re.compile(_UNSAFE.pattern.replace("\x00-\x1f", "\x00-\x09\x0b-\x1f"))
_ENDS_OF_LINE = re.compile("\r\n?")

# The same in UTF-8 JSON, where C0 controls are escaped already.
_UNSAFE_IN_JSON = re.compile(
    b"\x7f|\xc2[\x80-\x9f]|\xd8\x9c|\xe2\x80[\x8e\x8f\xa8-\xae]|\xe2\x81[\xa6-\xa9]|\xef\xbb\xbf"
)


def one_line(text: str) -> str:
    """``text`` on one line: unsafe characters as ``\\x1b`` or ``\\u202e``, line breaks as ⏎, tabs as spaces."""
    text = _ENDS_OF_LINE.sub("\n", text).replace("\n", "⏎").replace("\t", " ")
    return _UNSAFE.sub(_escaped, text)


def lines_kept(text: str) -> str:
    """``text`` with its line breaks, unsafe characters escaped, tabs as four spaces."""
    text = _ENDS_OF_LINE.sub("\n", text).replace("\t", "    ")
    return _UNSAFE_BUT_LINES.sub(_escaped, text)


def safe_json(data: bytes) -> bytes:
    """The same JSON, with unsafe characters written as ``\\u009b``."""
    return _UNSAFE_IN_JSON.sub(_escaped_in_json, data)


def shortened(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"


def _escaped(found: re.Match[str]) -> str:
    number = ord(found[0])
    return f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}"


def _escaped_in_json(found: re.Match[bytes]) -> bytes:
    return f"\\u{ord(found[0].decode()):04x}".encode()
