"""Server-sent events, taken apart as their bytes come."""

from __future__ import annotations

from collections.abc import AsyncIterator

import msgspec

from satchel.client.understanding import not_understood


class Frame(msgspec.Struct, frozen=True):
    """``data`` is JSON. ``retry``: milliseconds."""

    event: str = "message"
    data: bytes = b""
    retry: int | None = None


LONGEST_LINE = 64 * 1024 * 1024  # bytes: several times the largest event


async def frames_of(chunks: AsyncIterator[bytes]) -> AsyncIterator[Frame]:
    """Whole frames alone: what is cut off in the middle comes again. An empty frame is a sign of life.

    Raises ServiceRefused for a line without an end."""
    rest = bytearray()
    looked = 0
    fields: dict[bytes, bytes] = {}
    async for chunk in chunks:
        rest += chunk
        begin = 0
        while (end := rest.find(b"\n", max(begin, looked))) >= 0:
            line = bytes(rest[begin:end]).removesuffix(b"\r")
            begin = looked = end + 1
            if line:
                name, _, value = line.partition(b":")
                fields[name] = value.removeprefix(b" ")
                continue
            yield _frame(fields)
            fields = {}
        del rest[:begin]
        if len(rest) > LONGEST_LINE:
            raise not_understood("stream")
        looked = len(rest)


def _frame(fields: dict[bytes, bytes]) -> Frame:
    retry = fields.get(b"retry", b"")
    return Frame(
        event=fields.get(b"event", b"message").decode(errors="replace"),
        data=fields.get(b"data", b""),
        retry=int(retry) if retry.isdigit() and len(retry) < 9 else None,
    )
