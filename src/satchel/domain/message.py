"""What was said. The body is kept as received; Satchel's own fields stand beside it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec

from satchel.domain.clock import parse_rfc3339, rfc3339, to_datetime
from satchel.domain.event import CHAT_FORMAT, CORRUPT_FORMAT, Event, MessageStatus
from satchel.domain.frozen import in_brief
from satchel.domain.ids import checked_id
from satchel.domain.json_text import admit, decode, kind_of
from satchel.domain.limits import Limits
from satchel.domain.tokens import TokenCounter, body_tokens, estimate_tokens, message_tokens
from satchel.errors import InvalidInput, LimitExceeded

USER_ROLES = frozenset({"user"})
AGENT_ROLES = frozenset({"assistant", "tool"})
INSTRUCTION_ROLES = frozenset({"system", "developer"})
ROLES = USER_ROLES | AGENT_ROLES | INSTRUCTION_ROLES

# In JSON a chat message is flat, so its body may not hold the names of our fields.
OWN_KEYS = frozenset({"message_id", "seq", "version", "run_id", "status", "format", "created_at", "metadata", "body"})


class Message(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One message of a session.

    ``body`` is its JSON, byte for byte. ``role``, ``content``, ``tool_calls``, ``tool_call_id`` and ``name`` are read
    from it and are None where it has none. ``version`` is the session's version once this message was there.
    """

    seq: int
    version: int
    at: int
    body: bytes
    run_id: str | None = None
    status: MessageStatus = "complete"
    format: str = CHAT_FORMAT
    metadata_json: bytes | None = None
    replayed: bool = False

    @property
    def message_id(self) -> str:
        return message_id(self.seq)

    @property
    def created_at(self) -> datetime:
        return to_datetime(self.at)

    @property
    def data(self) -> Any:
        """The body as Python values, made anew at each call: an object, unless it is of another format."""
        return decode(self.body)

    def _member(self, name: str) -> Any:
        data = self.data
        return data.get(name) if isinstance(data, dict) else None

    @property
    def role(self) -> str | None:
        return self._member("role")  # type: ignore[no-any-return]  # admitted as text

    @property
    def content(self) -> Any:
        return self._member("content")

    @property
    def tool_calls(self) -> list[dict[str, Any]] | None:
        return self._member("tool_calls")  # type: ignore[no-any-return]  # admitted as a list of objects

    @property
    def tool_call_id(self) -> str | None:
        return self._member("tool_call_id")  # type: ignore[no-any-return]  # admitted as text

    @property
    def name(self) -> str | None:
        return self._member("name")  # type: ignore[no-any-return]  # admitted as text

    @property
    def metadata(self) -> dict[str, Any]:
        return {} if self.metadata_json is None else decode(self.metadata_json)

    def to_json(self) -> bytes:
        """Flat for a chat message, the body's own text spliced in; a body of another format stands under ``body``."""
        own = self._own_json()
        if self.format != CHAT_FORMAT:
            return own[:-1] + b',"body":' + self.body + b"}"
        members = self.body.strip()[1:-1]
        return own[:-1] + b"," + members + b"}" if members.strip() else own

    def _own_json(self) -> bytes:
        run_id = b"null" if self.run_id is None else _encode(self.run_id)
        form = _CHAT if self.format == CHAT_FORMAT else _encode(self.format)
        metadata = b"{}" if self.metadata_json is None else self.metadata_json.strip()
        facts = (
            self.seq,
            self.seq,
            self.version,
            run_id,
            self.status.encode(),
            form,
            rfc3339(self.at).encode(),
            metadata,
        )
        return _OWN % facts  # fifty of these are most of a page's time

    @classmethod
    def from_json(cls, text: bytes, *, replayed: bool = False) -> Message:
        """The inverse of :meth:`to_json`: the body comes back byte for byte, from its first brace to its last. Raises
        ValueError."""
        own = _decode_own(text)
        message = cls(
            seq=own.seq,
            version=own.version,
            at=parse_rfc3339(own.created_at),
            body=bytes(own.body),
            run_id=own.run_id,
            status=own.status,
            format=own.format,
            metadata_json=None if bytes(own.metadata) == b"{}" else bytes(own.metadata),
            replayed=replayed,
        )
        if own.format == CHAT_FORMAT:
            head = message._own_json()[:-1]
            if text.startswith(head):
                body = b"{" + text[len(head) :].removeprefix(b",")
            else:  # somebody on the way wrote it anew
                body = _encode({name: value for name, value in decode(text).items() if name not in OWN_KEYS})
            message = msgspec.structs.replace(message, body=body)
        return message

    def to_dict(self) -> dict[str, Any]:
        return decode(self.to_json())  # type: ignore[no-any-return]  # an object, written just above

    @classmethod
    def from_event(cls, event: Event, *, retracted: bool = False) -> Message:
        return cls(
            seq=event.seq,
            version=event.version,
            at=event.at,
            body=event.body,
            run_id=event.run_id,
            status="retracted" if retracted else event.status,
            format=event.format,
            metadata_json=event.metadata,
        )

    def __repr__(self) -> str:
        return f"Message(seq={self.seq}, role={self.role!r}, content={in_brief(self.content)}, status={self.status!r})"


class _Own(msgspec.Struct, kw_only=True):
    """Our members of a message in JSON."""

    seq: int
    version: int
    run_id: str | None
    status: MessageStatus
    format: str
    created_at: str
    metadata: msgspec.Raw
    body: msgspec.Raw = msgspec.Raw(b"{}")


_encode = msgspec.json.Encoder().encode
_decode_own = msgspec.json.Decoder(_Own).decode
_CHAT = _encode(CHAT_FORMAT)
_OWN = b'{"message_id":"msg_%d","seq":%d,"version":%d,"run_id":%b,"status":"%b","format":%b,"created_at":"%b","metadata":%b}'
_MESSAGE_ID = re.compile(r"msg_[1-9][0-9]{0,18}")


def message_id(seq: int) -> str:
    return f"msg_{seq}"


def parse_message_id(value: str | int, *, field: str = "message_id") -> int:
    """The seq in ``msg_<seq>``, or the seq itself. Raises InvalidInput."""
    seq = int(value[4:]) if isinstance(value, str) and _MESSAGE_ID.fullmatch(value) else value
    if type(seq) is int and 0 < seq < 2**63:
        return seq
    raise InvalidInput("must be a seq, or msg_ and a seq", field=field)


class Draft(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A message that was admitted and is not stored yet."""

    body: bytes
    format: str
    metadata: bytes | None
    role: str | None  # of a chat message; of another format only one that instructs
    asks: tuple[str, ...]  # labels of the tool calls it asks for
    answers: str | None  # label of the tool call it answers
    tokens: int
    counted: int | None = None  # the same, where a counter of the caller's own gave it: else nothing is stored of it


def admit_message(
    message: object,
    *,
    metadata: object = None,
    format: str | None = None,
    limits: Limits,
    field: str = "message",
    count: TokenCounter = estimate_tokens,
) -> Draft:
    """Check one message by itself: JSON, size, and for a chat message its shape.

    ``message`` is a mapping, or JSON text of an object (kept byte for byte). Raises InvalidInput, LimitExceeded.
    """
    chat = format is None or format == CHAT_FORMAT
    body, data = admit(message, field=field, limits=limits)
    if len(body) > limits.agent_message:  # a user's smaller limit is checked when it is known who writes
        raise LimitExceeded(field=field, size=len(body), limit=limits.agent_message, setting="limits.agent_message")
    kept = None if metadata is None else admit_metadata(metadata, limits=limits, field=f"{field}.metadata")
    if not chat:
        format = checked_id(format, field=f"{field}.format", limits=limits)
        if format == CORRUPT_FORMAT:
            raise InvalidInput("is kept for what cannot be read any more", field=f"{field}.format")
        return Draft(
            body=body,
            format=format,
            metadata=kept,
            role=_instructing_role(data),
            asks=(),
            answers=None,
            tokens=body_tokens(body, count),
        )
    if type(data) is not dict and not isinstance(data, Mapping):
        raise InvalidInput(f"must be an object, not {kind_of(data)}", field=field)
    role, asks, answers = _checked_chat(data, field, limits)
    tokens = message_tokens(data, count)
    return Draft(
        body=body,
        format=CHAT_FORMAT,
        metadata=kept,
        role=role,
        asks=asks,
        answers=answers,
        tokens=tokens,
        counted=None if count is estimate_tokens else tokens,
    )


def _instructing_role(data: object) -> str | None:
    """Roles of another format are not ours to read, but for those that instruct: they look alike everywhere."""
    role = data.get("role") if isinstance(data, Mapping) else None
    return role if isinstance(role, str) and role in INSTRUCTION_ROLES else None


def _checked_chat(data: Mapping[str, Any], field: str, limits: Limits) -> tuple[str, tuple[str, ...], str | None]:
    role = data.get("role")
    if len(data) == 2 and type(role) is str and role in ROLES and type(data.get("content")) is str:
        return role, (), None  # nearly all: a role and a text
    if not OWN_KEYS.isdisjoint(data):
        key = next(key for key in data if key in OWN_KEYS)
        raise InvalidInput("is one of Satchel's own fields", field=field, pointer=f"/{key}")
    if type(role) is not str or role not in ROLES:
        said = "is missing" if role is None else "is unknown" if type(role) is str else f"must not be {kind_of(role)}"
        raise InvalidInput(f"{said}; one of {', '.join(sorted(ROLES))}", field=field, pointer="/role")
    content = data.get("content")
    if "content" not in data and role != "assistant":
        raise InvalidInput("is missing", field=field, pointer="/content")
    if content is not None and type(content) is not str:
        parts = content if isinstance(content, (list, tuple)) else (None,)
        if not all(isinstance(part, Mapping) for part in parts):
            raise InvalidInput("must be text, null or a list of objects", field=field, pointer="/content")
    answers = data.get("tool_call_id")
    if answers is not None and type(answers) is not str:
        raise InvalidInput(f"must be text, not {kind_of(answers)}", field=field, pointer="/tool_call_id")
    name = data.get("name")
    if name is not None and type(name) is not str:
        raise InvalidInput(f"must be text, not {kind_of(name)}", field=field, pointer="/name")
    calls = data.get("tool_calls")
    asks = _asked_labels(calls, field, limits) if calls is not None else ()
    return role, asks if role == "assistant" else (), answers if role == "tool" else None


def _asked_labels(calls: object, field: str, limits: Limits) -> tuple[str, ...]:
    if not isinstance(calls, (list, tuple)):
        raise InvalidInput(f"must be a list, not {kind_of(calls)}", field=field, pointer="/tool_calls")
    labels: list[str] = []
    for index, call in enumerate(calls):
        if not isinstance(call, Mapping):
            raise InvalidInput(f"must be an object, not {kind_of(call)}", field=field, pointer=f"/tool_calls/{index}")
        label = call.get("id")
        if label is None:
            continue
        if type(label) is not str:
            raise InvalidInput(f"must be text, not {kind_of(label)}", field=field, pointer=f"/tool_calls/{index}/id")
        if len(label.encode()) <= limits.id:  # a longer one cannot be the label of a call of ours
            labels.append(label)
    return tuple(labels)


def admit_metadata(metadata: object, *, limits: Limits, field: str = "metadata") -> bytes:
    """A JSON object of at most ``limits.metadata`` bytes."""
    body, data = admit(metadata, field=field, limits=limits)
    if not isinstance(data, Mapping):
        raise InvalidInput(f"must be an object, not {kind_of(data)}", field=field)
    if len(body) > limits.metadata:
        raise LimitExceeded(field=field, size=len(body), limit=limits.metadata, setting="limits.metadata")
    return body


def tokens_of(event: Event) -> int:
    """Tokens of a stored message, as they were counted when it was admitted: what is not stored was estimated."""
    if event.tokens is not None:
        return event.tokens
    if event.format != CHAT_FORMAT:
        return body_tokens(event.body, estimate_tokens)
    return message_tokens(decode(event.body), estimate_tokens)
