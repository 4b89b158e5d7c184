"""Text that streams: what is said of a message before it is final. It stands beside the log, in pieces, and goes in the commit
of its final or interrupted message.

A streamed message is named by its run, the attempt that says it, and its number in that attempt. Offsets count
characters (Unicode code points).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from satchel.domain.event import CHAT_FORMAT
from satchel.domain.message import Draft
from satchel.domain.tokens import estimate_tokens, text_tokens

if TYPE_CHECKING:
    from satchel.domain.edit.log import LogEdit

OVERHEAD = 64  # bytes that the message of an interrupted text has beside it, at most
CALL_BYTES = 64 * 1024  # of JSON that one piece may have

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(str).decode


class StreamKey(NamedTuple):
    run_id: str
    attempt: int
    message: int


class OpenStream(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A message that is being said: ``offset`` characters of it are stored, ``size`` bytes as JSON."""

    run_id: str
    attempt: int
    message: int
    offset: int
    size: int

    @property
    def key(self) -> StreamKey:
        return StreamKey(self.run_id, self.attempt, self.message)


class Piece(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Some of a streamed message, as a store keeps it. ``body`` is JSON: a text. The first piece has the message's
    ``metadata``."""

    run_id: str
    attempt: int
    message: int
    offset: int
    body: bytes
    metadata: bytes | None = None

    @property
    def key(self) -> StreamKey:
        return StreamKey(self.run_id, self.attempt, self.message)


class TextPosition(NamedTuple):
    """How much of a streamed message somebody has: the characters before ``offset``."""

    run_id: str
    attempt: int
    message: int
    offset: int


class TextDelta(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Some text of a message that is being said: it is stored, and not final.

    It begins at character ``offset`` of message number ``message`` of this attempt of the run. The event of kind
    ``message`` that ends it has the same ``run_id`` and, as ``streamed``, the same number: it holds the whole text, or
    what there was of it.
    """

    run_id: str
    attempt: int
    message: int
    offset: int
    text: str

    @property
    def end(self) -> int:
        """Where the next one begins."""
        return self.offset + len(self.text)

    @property
    def position(self) -> TextPosition:
        """Of who has it, to follow on from there."""
        return TextPosition(self.run_id, self.attempt, self.message, self.end)

    def to_dict(self) -> dict[str, Any]:
        """As JSON shows it; ``end`` for those whose texts do not count in characters."""
        return {
            "kind": "text_delta",
            "run_id": self.run_id,
            "attempt": self.attempt,
            "message": self.message,
            "offset": self.offset,
            "end": self.end,
            "text": self.text,
        }


def text_of(pieces: Iterable[Piece], *, start: int | None = None) -> str:
    """What the pieces say, from the first one's offset on (or from ``start``, which they must hold). It ends where one is
    missing, or cannot be read any more: what is behind it follows on nothing."""
    parts: list[str] = []
    at: int | None = None
    for piece in pieces:
        try:
            text = _decode(piece.body)
        except (ValueError, RecursionError):
            break
        if at is None:
            at = piece.offset
            if start is not None:
                if not at <= start <= at + len(text):
                    break
                parts.append(text[start - at :])
                at += len(text)
                continue
        elif piece.offset != at:
            break
        parts.append(text)
        at += len(text)
    return "".join(parts)


def body_size(text: str) -> int:
    """Bytes of the text inside its JSON. Raises UnicodeEncodeError for what is no Unicode."""
    return len(_encode(text)) - 2


def find_stream(streams: Sequence[OpenStream], key: StreamKey) -> OpenStream | None:
    return next((stream for stream in streams if stream.key == key), None)


def interrupt_streams(edit: LogEdit, run_id: str) -> None:
    """Nobody goes on with what this run was saying: its partial texts become interrupted messages, and their pieces go."""
    for stream in edit.get("streams"):
        if stream.run_id != run_id:
            continue
        pieces = edit.state.partials.get(stream.key, ())
        text = text_of(pieces) if pieces and pieces[0].offset == 0 else ""
        if text:
            body = b'{"role":"assistant","content":' + _encode(text) + b"}"
            draft = Draft(
                body=body,
                format=CHAT_FORMAT,
                metadata=pieces[0].metadata,
                role="assistant",
                asks=(),
                answers=None,
                tokens=text_tokens(text, estimate_tokens),
            )
            edit.message(draft, run_id=run_id, status="interrupted", streamed=stream.message)
        edit.end_stream(stream.key)
