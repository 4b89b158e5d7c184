"""One line of an import, checked by itself, less its events: those are read one at a time, as often as they are needed."""

from __future__ import annotations

from datetime import timedelta

import msgspec

from satchel.access import Access
from satchel.domain.clock import DAY, parse_rfc3339
from satchel.domain.ids import checked_id, checked_line
from satchel.domain.json_text import admit
from satchel.domain.limits import Limits
from satchel.domain.message import admit_metadata
from satchel.domain.policy import Policy, SessionPolicy
from satchel.errors import InvalidInput
from satchel.transfer.form import FORMAT, Header, members_once

LATEST = parse_rfc3339("9998-12-31T23:59:59Z")
AHEAD = DAY  # so much may the clock that wrote a log be ahead of ours

_encode = msgspec.json.Encoder().encode


class Conversation(msgspec.Struct, frozen=True, kw_only=True):
    """``header`` is None for a conversation of the five keys alone: messages without a log."""

    external_id: str
    messages: list[msgspec.Raw]
    metadata: bytes
    header: Header | None

    def owner(self, limits: Limits) -> str:
        """Whose it was. Raises InvalidInput."""
        if self.header is None or not self.header.user_id:
            raise InvalidInput(
                "is needed: the line does not name its owner; say whose it will be (user_id, on the command line --user)",
                field="user_id",
            )
        return checked_id(self.header.user_id, field="user_id", limits=limits)


def read_line(line: bytes | str, limits: Limits) -> Conversation:
    """Raises InvalidInput."""
    try:
        data = line.encode() if isinstance(line, str) else bytes(line)
    except UnicodeEncodeError:
        raise InvalidInput("holds a lone surrogate, which is not text", field="conversation") from None
    members = members_once(data, field="conversation")
    for name in ("session_id", "messages"):
        if name not in members:
            raise InvalidInput("is missing", field="conversation", pointer=f"/{name}")
    _, external_id = admit(bytes(members["session_id"]), field="session_id", limits=limits)
    checked_id(external_id, field="session_id", limits=limits)
    try:
        messages = msgspec.json.decode(members["messages"], type=list[msgspec.Raw])
    except (msgspec.DecodeError, RecursionError):
        raise InvalidInput("must be a list of messages", field="conversation", pointer="/messages") from None
    header = _read_header(members["satchel"], limits) if "satchel" in members else None
    if header is not None:
        metadata = admit_metadata(bytes(header.metadata), limits=limits, field="satchel.metadata")
    else:
        kept = {name: value for name, value in members.items() if name not in ("session_id", "messages")}
        metadata = admit_metadata(_encode(kept), limits=limits)
    return Conversation(external_id=external_id, messages=messages, metadata=metadata, header=header)


def _read_header(text: msgspec.Raw, limits: Limits) -> Header:
    members_once(bytes(text), field="satchel")
    try:
        header = msgspec.json.decode(text, type=Header)
    except (msgspec.DecodeError, RecursionError) as wrong:
        raise InvalidInput(f"is not readable ({wrong})", field="satchel") from None
    if header.format != FORMAT:
        raise InvalidInput(f"has format {header.format}, this program reads {FORMAT}", field="satchel")
    checked_line(header.title, field="satchel.title", limit=limits.title, setting="limits.title")
    return header


def read_time(text: str, *, now: int, field: str) -> int:
    """Microseconds, from 1970 to a day after ``now``. Raises InvalidInput."""
    try:
        at = parse_rfc3339(text)
    except (ValueError, OverflowError):
        raise InvalidInput("is no time in RFC 3339 with an offset", field=field) from None
    if not 0 <= at <= min(now + AHEAD, LATEST):
        raise InvalidInput(f"is {text}: before 1970, or more than a day from now", field=field)
    return at


def read_policy(policy: SessionPolicy | None, access: Access) -> SessionPolicy:
    """Checked as the policy of a session that is created here; without one, as that of this manager's sessions."""
    if policy is None:
        return access.policy
    durations = {}
    for name in ("idle", "max_lifetime", "retention"):
        micros = getattr(policy, name)
        try:
            durations[name] = None if micros is None else timedelta(microseconds=micros)
        except OverflowError:
            raise InvalidInput("is too long", field=f"policy.{name}") from None
    Policy(
        idle=durations["idle"],
        max_lifetime=durations["max_lifetime"],
        retention=durations["retention"],
        restore_closed=policy.restore_closed,
        restore_expired=policy.restore_expired,
        context_window=policy.context_window,
        context_share=policy.context_share,
    ).over(access.policy)
    return policy
