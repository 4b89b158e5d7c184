"""What a service answers, as the library's own snapshots: equal to those of a manager on the store."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import msgspec

from satchel.client.understanding import understood
from satchel.context import Context
from satchel.domain.clock import parse_rfc3339, to_datetime
from satchel.domain.event import CHAT_FORMAT, CallOutcome, Event, EventKind, MessageStatus
from satchel.domain.frozen import Items, Members
from satchel.domain.json_text import NO_JSON, decode
from satchel.domain.memory import WorkingMemory, memory_from
from satchel.domain.message import Message
from satchel.domain.page import Page
from satchel.domain.question import Question
from satchel.domain.record import Origin
from satchel.domain.run import Run, RunError, Usage
from satchel.domain.session import Session, Transitioned
from satchel.domain.spelling import as_written, has_written, json_as_written, may_change, spellings_in
from satchel.domain.tool_call import ToolCall

T = TypeVar("T")


class _Page(msgspec.Struct):
    items: list[msgspec.Raw]
    next: str | None = None


class _Held(msgspec.Struct):
    """What a session holds, as its bytes."""

    messages: list[msgspec.Raw]
    tool_history: list[msgspec.Raw]
    runs: list[msgspec.Raw]


class _Event(msgspec.Struct, kw_only=True):
    seq: int
    version: int
    kind: EventKind
    at: str
    actor: str
    run_id: str | None
    body: msgspec.Raw
    refers_to: int | None = None
    status: MessageStatus = "complete"
    format: str = CHAT_FORMAT
    outcome: CallOutcome | None = None
    streamed: int | None = None
    metadata: msgspec.Raw = NO_JSON


_decode_page = msgspec.json.Decoder(_Page).decode
_decode_held = msgspec.json.Decoder(_Held).decode
_decode_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_decode_event = msgspec.json.Decoder(_Event).decode


@understood
def page_from(text: bytes, item: Callable[[bytes], T]) -> Page[T]:
    page = _decode_page(text)
    return Page(tuple(item(bytes(raw)) for raw in page.items), page.next)


@understood
def message_from(text: bytes, *, replayed: bool = False) -> Message:
    return Message.from_json(text, replayed=replayed)


@understood
def member_of(text: bytes, name: str) -> object:
    """One member of an answer that holds no snapshot."""
    return decode(text)[name]


@understood
def whole_of(text: bytes, name: str) -> int:
    """A member that is a whole number."""
    return int(decode(text)[name])


@understood
def messages_from(text: bytes, *, replayed: bool) -> tuple[Message, ...]:
    return tuple(Message.from_json(bytes(raw), replayed=replayed) for raw in _decode_page(text).items)


@understood
def event_from(text: bytes) -> Event:
    shown = _decode_event(text)
    return Event(
        seq=shown.seq,
        version=shown.version,
        kind=shown.kind,
        at=parse_rfc3339(shown.at),
        actor=shown.actor,
        body=bytes(shown.body),
        run_id=shown.run_id,
        refers_to=shown.refers_to,
        status=shown.status,
        format=shown.format,
        metadata=bytes(shown.metadata) or None,
        outcome=shown.outcome,
        streamed=shown.streamed,
    )


@understood
def call_from(text: bytes, *, replayed: bool = False) -> ToolCall:
    shown = decode(text)
    return ToolCall(
        seq=shown["seq"],
        version=shown["version"],
        tool=shown["tool"],
        arguments=shown["arguments"],
        arguments_hash=shown["arguments_hash"],
        status=shown["status"],
        ok=shown["ok"],
        result=shown["result"],
        error=shown["error"],
        start_at=parse_rfc3339(shown["start_time"]),
        end_at=_instant(shown["end_time"]),
        tool_call_id=shown["tool_call_id"],
        run_id=shown["run_id"],
        repeat_of=shown["repeat_of"],
        step=shown.get("step"),
        replayed=replayed,
        spelt=spellings_in(text, ("arguments", "result", "error")),
    )


@understood
def run_from(text: bytes, *, replayed: bool = False) -> Run:
    shown = decode(text)
    error = shown["error"]
    return Run(
        run_id=shown["run_id"],
        number=shown["number"],
        session_id=shown["session_id"],
        version=shown["version"],
        goal=shown["goal"],
        agent=shown["agent"],
        input=shown["input"],
        status=shown["status"],
        created=parse_rfc3339(shown["created_at"]),
        started=_instant(shown["start_time"]),
        ended=_instant(shown["end_time"]),
        steps=shown["steps"],
        usage=Usage(**shown["usage"]),
        error=None if error is None else RunError(code=error["code"], message=error["message"]),
        stop_reason=shown["stop_reason"],
        attempt=shown["attempt"],
        max_attempts=shown["max_attempts"],
        parent_run_id=shown["parent_run_id"],
        input_seq=shown["input_seq"],
        cancel_requested=shown["cancel_requested"],
        metadata=shown["metadata"],
        question=_question(text) if shown.get("question") is not None else None,
        memory=shown.get("memory", "session"),
        working_memory=shown.get("working_memory", {}),
        not_merged=shown.get("not_merged", {}),
        replayed=replayed,
        spelt=spellings_in(text, ("input", "metadata", "working_memory", "not_merged")),
    )


def _question(run: bytes) -> Question:
    text = member(run, "question")
    shown = decode(text)
    return Question(
        name=shown["name"],
        question=shown["question"],
        schema=shown["schema"],
        expires=parse_rfc3339(shown["expires_at"]),
        seq=shown["seq"],
        spelt=spellings_in(text, ("schema",)),
    )


@understood
def member(text: bytes, name: str) -> bytes:
    """The text of an object's member."""
    return bytes(_decode_members(text)[name])


@understood
def memory_from_json(text: bytes, *, replayed: bool = False) -> WorkingMemory:
    shown = _decode_members(text)
    version = decode(bytes(shown.pop("version")))
    return memory_from(msgspec.json.encode(shown), version=version, replayed=replayed)


@understood
def session_from_json(text: bytes, *, replayed: bool = False) -> Session:
    shown = decode(text)
    memory, origin = shown["working_memory"], shown["forked_from"]
    held = _decode_held(text)
    messages = [Message.from_json(bytes(raw)) for raw in held.messages]
    return Session(
        session_id=shown["session_id"],
        tenant_id=shown["tenant_id"],
        user_id=shown["user_id"],
        title=shown["title"],
        status=shown["status"],
        version=shown["version"],
        last_seq=shown["last_seq"],
        created_at=to_datetime(parse_rfc3339(shown["created_at"])),
        updated_at=to_datetime(parse_rfc3339(shown["updated_at"])),
        closed_at=None if shown["closed_at"] is None else to_datetime(parse_rfc3339(shown["closed_at"])),
        expires_at=None if shown["expires_at"] is None else to_datetime(parse_rfc3339(shown["expires_at"])),
        external_id=shown["external_id"],
        working_memory=None
        if memory is None
        else memory_from(member(text, "working_memory"), version=shown["working_memory_version"]),
        metadata=Members(shown["metadata"], "update_session"),
        messages=Items(messages, "append_message"),
        tool_history=Items((call_from(bytes(raw)) for raw in held.tool_history), "append_tool_history"),
        runs=Items((run_from(bytes(raw)) for raw in held.runs), "add_run"),
        message_count=shown["message_count"],
        tool_call_count=shown["tool_call_count"],
        run_count=shown["run_count"],
        context_tokens=shown["context_tokens"],
        usage=Usage(**shown["usage"]),
        active_run_id=shown["active_run_id"],
        queued_run_ids=tuple(shown["queued_run_ids"]),
        lifecycle=tuple(
            Transitioned(
                at=to_datetime(parse_rfc3339(one["at"])), to=one["to"], actor=one["actor"], reason=one["reason"]
            )
            for one in shown["lifecycle"]
        ),
        transition_count=shown["transition_count"],
        forked_from=None if origin is None else Origin(session_id=origin["session_id"], seq=origin["seq"]),
        replayed=replayed,
        spelt=spellings_in(text, ("metadata",)),
    )


@understood
def context_from(text: bytes) -> Context:
    shown = decode(text)
    del shown["window_share"]  # of the other two
    messages = as_written(text)["messages"] if may_change(text) else []
    spelt = {
        index: msgspec.Raw(json_as_written(message)) for index, message in enumerate(messages) if has_written(message)
    }
    return Context(**shown, spelt=spelt)


def _instant(text: str | None) -> int | None:
    return None if text is None else parse_rfc3339(text)
