"""Same key, same request: the first answer. Same key, other request: refused.

IETF draft-ietf-httpapi-idempotency-key-header names the header; here the record is part of the commit of the effect.
"""

from __future__ import annotations

import hashlib

import msgspec

from satchel.domain.limits import Limits
from satchel.errors import InvalidInput, LimitExceeded


class Answer(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What a commit fixed: enough to give the first answer again without a second copy of the data."""

    version: int
    at: int
    seqs: tuple[int, ...] = ()
    ids: tuple[str, ...] = ()
    status: str = ""


class IdempotencyRecord(msgspec.Struct, frozen=True, gc=False):
    """``key_hash`` and ``fingerprint`` are 16 bytes each."""

    key_hash: bytes
    fingerprint: bytes
    answer: Answer


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Answer).decode
_pack = msgspec.msgpack.Encoder().encode


def encode_answer(answer: Answer) -> bytes:
    """A JSON array without the fields at its end that say nothing: there is one of these for every write."""
    if answer.status:
        return _encode(answer)
    if answer.ids:
        return _encode((answer.version, answer.at, answer.seqs, answer.ids))
    return _encode((answer.version, answer.at, answer.seqs) if answer.seqs else (answer.version, answer.at))


def decode_answer(data: bytes | str) -> Answer:
    return _decode(data)


def checked_key(key: object, *, limits: Limits) -> str:
    """1 to 255 visible ASCII characters. Raises InvalidInput."""
    if not isinstance(key, str):
        raise InvalidInput(f"must be text, not {type(key).__name__}", field="idempotency_key")
    if not key:
        raise InvalidInput("must not be empty", field="idempotency_key")
    if len(key) > limits.idempotency_key:
        raise LimitExceeded(
            field="idempotency_key",
            size=len(key),
            limit=limits.idempotency_key,
            setting="limits.idempotency_key",
            unit="characters",
        )
    if not key.isascii() or not key.isprintable() or " " in key:
        raise InvalidInput("must be visible ASCII characters", field="idempotency_key")
    return key


def key_hash(key: str, side: bytes) -> bytes:
    """The key within its side (``join_parts`` of it): two sides never meet, whatever keys they draw."""
    return hashlib.sha256(side + key.encode()).digest()[:16]


def fingerprint(*parts: bytes | str | int | None) -> bytes:
    """16 bytes over all that makes a request this request; expected_version is no part of it."""
    try:
        packed = _pack(parts)  # each with its type and length: no two requests are written alike
    except OverflowError:  # a number beyond 64 bits
        packed = _pack([str(part) if isinstance(part, int) else part for part in parts])
    return hashlib.sha256(packed).digest()[:16]
