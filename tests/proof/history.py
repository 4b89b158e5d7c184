"""What callers asked of one session, what they were told, and when."""

from __future__ import annotations

import msgspec


class Seen(msgspec.Struct, frozen=True, array_like=True):
    """A session as somebody was shown it."""

    version: int
    last_seq: int
    status: str
    title: str
    messages: int


class Line(msgspec.Struct, frozen=True, array_like=True):
    """An event: ``text`` is what its writer wrote by it, "" where that was nothing of its own."""

    seq: int
    version: int
    kind: str
    text: str = ""


class Call(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """``began`` and ``ended`` are nanoseconds of the machine's monotonic clock, which its processes share.

    ``texts``: what it was to write, each under a name that no other call writes, except under the same ``key``.
    ``told``: "done", "refused" (``code``), "unknown". ``version`` and ``seqs``: of what was written, where the answer says so.
    ``seen``: the session in the answer. ``lines``: events or messages in the answer, of which ``is_whole`` says that more
    were not there.
    """

    session: str
    verb: str
    began: int
    ended: int
    told: str
    code: str = ""
    texts: tuple[str, ...] = ()
    key: str = ""
    expected: int | None = None
    replayed: bool = False
    version: int | None = None
    seqs: tuple[int, ...] = ()
    current: int | None = None
    changed: tuple[str, ...] = ()
    seen: Seen | None = None
    after: int = 0
    lines: tuple[Line, ...] | None = None
    is_whole: bool = False


def read_history(data: bytes) -> list[Call]:
    """One JSON object a line; the last may be cut off by a kill."""
    decoder = msgspec.json.Decoder(Call)
    return [decoder.decode(line) for line in data.split(b"\n")[:-1]]
