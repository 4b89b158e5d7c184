"""The file folder of one long piece of work, as its readers see it: a frozen snapshot."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any, NoReturn, TypeVar

import msgspec

from satchel.domain.clock import to_datetime
from satchel.domain.frozen import Items, Members
from satchel.domain.json_text import decode
from satchel.domain.memory import WorkingMemory, memory_from
from satchel.domain.message import Message
from satchel.domain.record import Origin, SessionRecord, SessionStatus
from satchel.domain.run import Run, Usage
from satchel.domain.spelling import Spellings, spellings
from satchel.domain.tool_call import ToolCall
from satchel.errors import FrozenSnapshot

T = TypeVar("T")


_WRITERS = {
    "messages": "append_message",
    "tool_history": "append_tool_history",
    "runs": "add_run",
    "working_memory": "update_working_memory",
    "metadata": "update_session",
    "title": "rename_session",
    "status": "close_session, restore_session or delete_session",
    "user_id": "transfer_session",
}


class Transitioned(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of the lifecycle history."""

    at: datetime
    to: SessionStatus
    actor: str
    reason: str


class Session(msgspec.Struct, kw_only=True, eq=True):
    """One session at one instant.

    ``messages``, ``tool_history`` and ``runs`` are the newest 50 of each, oldest first, where they were asked for;
    ``message_count``, ``tool_call_count`` and ``run_count`` are the totals. In lists ``working_memory`` is None.
    ``status`` is the one that holds at the instant of reading. ``existed``: ``create_session`` found it by its
    ``external_id``, and did not make it.
    """

    session_id: str
    tenant_id: str
    user_id: str
    title: str
    status: SessionStatus
    version: int
    last_seq: int
    created_at: datetime
    updated_at: datetime
    closed_at: datetime | None
    expires_at: datetime | None
    external_id: str | None
    working_memory: WorkingMemory | None
    metadata: dict[str, Any]
    messages: tuple[Message, ...]
    tool_history: tuple[ToolCall, ...]
    runs: tuple[Run, ...]
    message_count: int
    tool_call_count: int
    run_count: int
    context_tokens: int
    usage: Usage
    active_run_id: str | None
    queued_run_ids: tuple[str, ...]
    lifecycle: tuple[Transitioned, ...]
    transition_count: int
    forked_from: Origin | None = None
    replayed: bool = False
    existed: bool = False
    spelt: Spellings = {}  # JSON of other people's that Python's numbers would spell otherwise: for to_json

    def __setattr__(self, name: str, value: object) -> NoReturn:
        how = _WRITERS.get(name)
        hint = f"; use manager.{how}(session_id, …)" if how else ""
        raise FrozenSnapshot(f"Session.{name} is part of a snapshot and cannot be set{hint}")

    def __delattr__(self, name: str) -> NoReturn:
        self.__setattr__(name, None)

    def __repr__(self) -> str:
        return (
            f"Session(session_id={self.session_id!r}, title={self.title!r}, messages={tuple(self.messages)!r},"
            f" status={self.status!r}, version={self.version}, user_id={self.user_id!r})"
        )

    @property
    def etag(self) -> str:
        return f'"v{self.version}"'

    def to_dict(self) -> dict[str, Any]:
        """As JSON shows it."""
        return self._own() | {
            "messages": [message.to_dict() for message in self.messages],
            "tool_history": [call.to_dict() for call in self.tool_history],
            "runs": [run.to_dict() for run in self.runs],
        }

    def to_json(self) -> bytes:
        """:meth:`to_dict` as JSON; messages keep the bytes of their bodies, and numbers are spelled as they were given."""
        held = {
            "messages": [msgspec.Raw(message.to_json()) for message in self.messages],
            "tool_history": [msgspec.Raw(call.to_json()) for call in self.tool_history],
            "runs": [msgspec.Raw(run.to_json()) for run in self.runs],
        }
        return msgspec.json.encode(self.own_as_spelled() | held)

    def own_as_spelled(self) -> dict[str, Any]:
        """:meth:`to_dict` of all but messages, tool calls and runs, with the JSON text of what Python would spell otherwise."""
        shown = self._own() | self.spelt
        if self.working_memory is not None:
            shown["working_memory"] = msgspec.Raw(self.working_memory.to_json())
        return shown

    def _own(self) -> dict[str, Any]:
        """All but what it holds."""

        def shown(moment: datetime | None) -> str | None:
            return None if moment is None else moment.isoformat(timespec="microseconds")[:-6] + "Z"  # always UTC

        return {
            "session_id": self.session_id,
            "external_id": self.external_id,
            "tenant_id": self.tenant_id,
            "user_id": self.user_id,
            "title": self.title,
            "status": self.status,
            "version": self.version,
            "last_seq": self.last_seq,
            "working_memory": None if self.working_memory is None else self.working_memory.to_dict(),
            "working_memory_version": None if self.working_memory is None else self.working_memory.version,
            "metadata": self.metadata,
            "created_at": shown(self.created_at),
            "updated_at": shown(self.updated_at),
            "closed_at": shown(self.closed_at),
            "expires_at": shown(self.expires_at),
            "message_count": self.message_count,
            "tool_call_count": self.tool_call_count,
            "run_count": self.run_count,
            "context_tokens": self.context_tokens,
            "usage": {name: getattr(self.usage, name) for name in Usage.__struct_fields__},
            "active_run_id": self.active_run_id,
            "queued_run_ids": list(self.queued_run_ids),
            "lifecycle": [
                {"at": shown(one.at), "to": one.to, "actor": one.actor, "reason": one.reason} for one in self.lifecycle
            ],
            "transition_count": self.transition_count,
            "forked_from": None
            if self.forked_from is None
            else {"session_id": self.forked_from.session_id, "seq": self.forked_from.seq},
        }


def session_from(
    record: SessionRecord,
    *,
    now: int,
    working_memory: bytes | None = b"",
    metadata: bytes = b"",
    messages: Iterable[Message] = (),
    tool_history: Iterable[ToolCall] = (),
    runs: Iterable[Run] = (),
    replayed: bool = False,
) -> Session:
    """The record at ``now``, with what was read beside it."""
    expires = record.expires_at
    status = record.status_at(now)
    return Session(
        session_id=record.session_id,
        tenant_id=record.tenant_id,
        user_id=record.user_id,
        title=record.title,
        status=status,
        version=record.version,
        last_seq=record.last_seq,
        created_at=to_datetime(record.created_at),
        updated_at=to_datetime(record.updated_at),
        closed_at=None if record.closed_at is None else to_datetime(record.closed_at),
        expires_at=None if expires is None or status != "ACTIVE" else to_datetime(expires),
        external_id=record.external_id,
        working_memory=None
        if working_memory is None
        else memory_from(working_memory, version=record.changed.working_memory),
        metadata=Members(decode(metadata) if metadata else {}, "update_session"),
        spelt=spellings((("metadata", metadata),)),
        messages=Items(messages, "append_message"),
        tool_history=Items(tool_history, "append_tool_history"),
        runs=Items(runs, "add_run"),
        message_count=record.messages,
        tool_call_count=record.tool_calls,
        run_count=record.runs,
        context_tokens=record.context_tokens,
        usage=record.usage,
        active_run_id=None if record.turn is None else record.turn.run_id,
        queued_run_ids=tuple(waiting.run_id for waiting in record.queue),
        lifecycle=tuple(
            Transitioned(at=to_datetime(one.at), to=one.to, actor=one.actor, reason=one.reason)
            for one in record.lifecycle
        ),
        transition_count=record.transitions,
        forked_from=record.origin,
        replayed=replayed,
    )
