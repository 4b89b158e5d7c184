"""How many tokens a model reads: by a counter that the caller gives, else by an estimate that needs no vocabulary."""

from __future__ import annotations

import inspect
import logging
import operator
from collections.abc import Mapping
from typing import Any, Protocol

import msgspec

from satchel.domain.spelling import Written
from satchel.errors import InvalidInput

_log = logging.getLogger("satchel.tokens")

MESSAGE_TOKENS = 4  # what frames a message: its role, its beginning and end
CALL_TOKENS = 4  # the same of one tool call that it asks for
PART_TOKENS = 1000  # a part that is no text (an image, a recording) counts as its JSON, and at most as this


class TokenCounter(Protocol):
    """Tokens of a text as a model counts them: a plain function, quick, giving the same for the same text.

    It is called on the event loop, once for each message that is written, with what a model reads of it: its text, the names
    and the arguments of its calls, a line each. Four tokens for each message and each call are added to what it says. If
    it raises, or gives anything but a whole number that this text can have, the estimate is taken in its place, and a
    warning logged once: no write is lost by it.
    """

    def __call__(self, text: str, /) -> int: ...


_LETTERS = bytes([*range(ord("A"), ord("Z") + 1), *range(ord("a"), ord("z") + 1)])
_ALL = bytes(range(0x100))
_DIGITS = b"0123456789"
_NOT_ASCII = bytes(range(0x80, 0x100))


def _all_but(first: int, last: int) -> bytes:
    return bytes([byte for byte in _ALL if not first <= byte <= last])


# By the first byte of a character: most alphabets; Chinese, Japanese, Korean and their punctuation; emoji.
_NO_ALPHABET = _all_but(0xC3, 0xE1)
_NO_IDEOGRAPH = _all_but(0xE2, 0xEF)
_NO_EMOJI = _all_but(0xF0, 0xF4)
_UNBROKEN = 20  # letters and digits to one of anything else: no words, but a hash or an encoded file


def estimate_tokens(text: str) -> int:
    """Roughly what current models count. Weights in thousandths of a token, fitted to o200k on real conversations
    (``python -m benchmarks --only context.tokens`` measures the error)."""
    data = text.encode("utf-8", "replace")
    weight = 0
    if not data.isascii():
        weight = 350 * len(data.translate(None, _NO_ALPHABET))
        weight += 740 * len(data.translate(None, _NO_IDEOGRAPH))
        weight += 2500 * len(data.translate(None, _NO_EMOJI))
        data = data.translate(None, _NOT_ASCII)
    rest = data.translate(None, _LETTERS)
    letters = len(data) - len(rest)
    spaces, lines = rest.count(b" "), rest.count(b"\n")
    digits = len(rest) - len(rest.translate(None, _DIGITS))
    signs = len(rest) - spaces - lines - digits
    if letters + digits > _UNBROKEN * (spaces + lines + signs + 1):
        return (weight + 600 * (letters + digits)) // 1000 + 1
    weight += 147 * letters + 403 * digits + 627 * signs + 406 * spaces
    if lines:  # indentation is cheap: a run of spaces is one token
        weight += 1005 * lines - 588 * data.count(b"  ")
    return max(0, weight) // 1000 + 1


class GuardedCounter:
    """A caller's counter that may fail: then the estimate counts."""

    def __init__(self, count: TokenCounter) -> None:
        self._count = count
        self._has_failed = False

    def __call__(self, text: str, /) -> int:
        try:
            said: object = self._count(text)
            if type(said) is bool:
                raise TypeError(f"it gave {said}")
            tokens = operator.index(said)  # type: ignore[arg-type]  # what has no index is the TypeError that is meant
            if not 0 <= tokens <= 4 * len(text) + 16:  # no byte of a text is two tokens; a few may frame it
                raise ValueError(f"it gave {tokens} for {len(text)} characters")
        except Exception as wrong:  # noqa: BLE001  # whatever is wrong with it, the write is somebody else's
            self._tell(wrong)
            return estimate_tokens(text)
        return tokens

    def _tell(self, wrong: Exception) -> None:
        if not self._has_failed:  # once: it may fail for each message
            self._has_failed = True
            _log.warning("count_tokens failed, tokens are estimated: %s: %s", type(wrong).__name__, wrong)


def checked_counter(count: object) -> TokenCounter:
    """``count_tokens`` as it was given; None is the estimate. Raises InvalidInput."""
    if count is None:
        return estimate_tokens
    if not callable(count) or inspect.iscoroutinefunction(count):
        raise InvalidInput("must be a plain function from a text to its tokens", field="count_tokens")
    return GuardedCounter(count)


def _shown(value: object) -> object:
    return msgspec.Raw(value.text) if isinstance(value, Written) else str(value)


_encode = msgspec.json.Encoder(enc_hook=_shown).encode


def message_tokens(message: object, count: TokenCounter) -> int:
    """Of a chat message. What the model does not read as text (the role, the labels of calls) is in its frame."""
    if type(message) is not dict and not isinstance(message, Mapping):
        return text_tokens(_json(message), count)
    if len(message) == 2 and type(text := message.get("content")) is str:  # nearly all: a role and a text
        return MESSAGE_TOKENS + count(text)
    texts: list[str] = []
    tokens = MESSAGE_TOKENS
    for name, value in message.items():
        if name in ("role", "tool_call_id") or value is None:
            continue
        if isinstance(value, str):
            texts.append(value)
        elif name == "content" and isinstance(value, (list, tuple)):
            tokens += sum([_part(part, texts) for part in value])
        elif name == "tool_calls" and isinstance(value, (list, tuple)):
            tokens += sum([_call(call, texts) for call in value])
        else:
            texts.append(_json(value))
    return tokens + (count(texts[0] if len(texts) == 1 else "\n".join(texts)) if texts else 0)


def text_tokens(text: str, count: TokenCounter) -> int:
    """Of a message that is this text."""
    return MESSAGE_TOKENS + count(text)


def body_tokens(body: bytes, count: TokenCounter) -> int:
    """Of a body whose format is not ours to read."""
    return text_tokens(body.decode("utf-8", "replace"), count)


def _part(part: Any, texts: list[str]) -> int:
    """The tokens of a part of a content; what it has as text goes to ``texts``."""
    text = part.get("text") if isinstance(part, Mapping) else None
    if isinstance(text, str):
        texts.append(text)
        return 0
    return min(PART_TOKENS, estimate_tokens(_json(part)))


def _call(call: Any, texts: list[str]) -> int:
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping):
        texts.append(_json(call))
        return CALL_TOKENS
    given = (function.get("name"), function.get("arguments"))
    texts.extend([value if isinstance(value, str) else _json(value) for value in given if value is not None])
    return CALL_TOKENS


def _json(value: object) -> str:
    return _encode(value).decode()
