"""The form of an exported line, beside its five keys: the ``satchel`` object and its events."""

from __future__ import annotations

import re

import msgspec

from satchel.domain.bodies import Ordinal
from satchel.domain.event import CHAT_FORMAT, CallOutcome, Event, EventKind, MessageStatus
from satchel.domain.json_text import NO_JSON
from satchel.domain.policy import SessionPolicy
from satchel.domain.record import SessionStatus
from satchel.errors import InvalidInput

FORMAT = 1

_encode = msgspec.json.Encoder().encode


class ExportedEvent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """An event. A chat message has no body here if it stands under ``messages``."""

    seq: int
    version: int
    kind: EventKind
    at: str
    actor: str
    run_id: str | None = None
    refers_to: int | None = None
    status: MessageStatus = "complete"
    format: str = CHAT_FORMAT
    outcome: CallOutcome | None = None
    streamed: Ordinal | None = None
    metadata: msgspec.Raw = NO_JSON
    body: msgspec.Raw = NO_JSON


class Header(msgspec.Struct, frozen=True, kw_only=True):
    """What is in no event. ``status``, ``version`` and ``updated_at`` are for readers: an import takes them from the log.

    ``waiting`` holds the inputs of runs that have not started, by run.
    """

    format: int
    session_id: str = ""
    user_id: str = ""
    external_id: str | None = None
    title: str = ""
    status: SessionStatus = "ACTIVE"
    version: int = 0
    created_at: str = ""
    updated_at: str = ""
    policy: SessionPolicy | None = None
    metadata: msgspec.Raw = msgspec.Raw(b"{}")
    waiting: dict[str, msgspec.Raw] = {}
    events: list[msgspec.Raw] = []


def stands_in_messages(event: Event, retracted: set[int]) -> bool:
    return event.kind == "message" and event.format == CHAT_FORMAT and event.seq not in retracted


_SPACE = re.compile(rb"[ \t\r\n]*")
_KEY = re.compile(rb'[ \t\r\n]*("(?:[^"\\]|\\.)*")[ \t\r\n]*:[ \t\r\n]*', re.DOTALL)
_STEP = 1 << 20


def members_once(text: bytes, *, field: str) -> dict[str, msgspec.Raw]:
    """The members of a JSON object as text. Raises InvalidInput when it is none, or has a key twice: a decoder would keep
    the last and say nothing."""
    try:
        members = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    except RecursionError:
        raise InvalidInput("is nested too deep", field=field) from None
    except msgspec.DecodeError as wrong:
        raise InvalidInput(f"is not a JSON object ({wrong})", field=field) from None
    repeated = _repeated(text, members)
    if repeated is not None:
        raise InvalidInput("is there twice", field=field, pointer=f"/{repeated}")
    return members


def _repeated(text: bytes, members: dict[str, msgspec.Raw]) -> str | None:
    """Members come in the order in which their keys were first met, each with its last value. Where no key is there
    twice, one follows on the other in the text, and nothing is left."""
    spelled = sum([len(_encode(name)) + 2 + memoryview(value).nbytes for name, value in members.items()])
    if len(text) == 1 + spelled:  # without a space: all of the text is these members, and there is room for no other
        return None
    at = text.index(b"{") + 1
    for name, value in members.items():
        found, at = _key_at(text, at)
        if found != name:
            return found
        if not _is_at(text, at, memoryview(value)):
            return name
        at = _skipped(text, at + memoryview(value).nbytes) + 1  # also the comma, or the brace at the end
    return _key_at(text, at)[0] if members and text[at - 1 : at] == b"," else None


def _key_at(text: bytes, at: int) -> tuple[str, int]:
    """The key that begins at ``at``, and where its value begins."""
    key = _KEY.match(text, at)
    assert key is not None  # it was decoded before
    return msgspec.json.decode(key[1], type=str), key.end()


def _skipped(text: bytes, at: int) -> int:
    space = _SPACE.match(text, at)
    return at if space is None else space.end()


def _is_at(text: bytes, at: int, value: memoryview) -> bool:
    return all(
        text.startswith(bytes(value[start : start + _STEP]), at + start) for start in range(0, value.nbytes, _STEP)
    )
