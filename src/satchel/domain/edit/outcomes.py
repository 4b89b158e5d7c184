"""What is said of the outcome of a tool call."""

from __future__ import annotations

import msgspec

from satchel.domain.tokens import TokenCounter, text_tokens
from satchel.domain.tool_call import ToolCallStatus

_encode = msgspec.json.Encoder().encode


def said_outcome(status: str, result: bytes | None, error: bytes | None) -> bytes:
    """What a message says of an outcome: one of the two, as JSON."""
    first, second = (error, result) if status == "failed" else (result, error)
    return first or second or b"null"


def outcome_tokens(said: bytes, count: TokenCounter) -> int:
    """Tokens of the tool message that says this JSON: a text as it is, another value as its JSON."""
    return text_tokens(msgspec.json.decode(said, type=str) if said.startswith(b'"') else said.decode(), count)


def outcome_body(status: ToolCallStatus, result: bytes | None, error: bytes | None) -> bytes:
    body = b'{"status":' + _encode(status)
    if result is not None:
        body += b',"result":' + result
    if error is not None:
        body += b',"error":' + error
    return body + b"}"
