"""Sessions on the move: export, import, fork. All three go through the log: what is written is replayed from it.

The format is one JSON object a line: ``source``, ``licence``, ``session_id``, ``messages`` (OpenAI chat), ``meta``; and
``satchel``, with everything that these five lack. A message's text is copied byte for byte in both directions.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Mapping
from typing import Any, Literal

import msgspec

from satchel.access import Access, request
from satchel.domain.clock import DAY, parse_rfc3339, rfc3339
from satchel.domain.decisions.decision import replay_of
from satchel.domain.decisions.imports import OVERTAKEN, WriteChunk
from satchel.domain.decisions.messages import check_message_right
from satchel.domain.edit import OPERATOR, Edit, with_entries
from satchel.domain.event import CHAT_FORMAT, Event
from satchel.domain.idempotency import Answer
from satchel.domain.ids import RANDOM_BYTES, SessionRef, checked_id, checked_line, derived_session_id, encode_id
from satchel.domain.json_text import NO_JSON, admit, raw_json
from satchel.domain.message import INSTRUCTION_ROLES, Message, admit_message, admit_metadata
from satchel.domain.policy import SessionPolicy
from satchel.domain.record import Origin, SessionRecord, SessionStatus
from satchel.domain.replay import Replay
from satchel.domain.rights import require
from satchel.domain.run import RunError
from satchel.domain.state import Clock, Effect, SessionState, Want
from satchel.errors import InvalidInput, SatchelError, StoreBusy
from satchel.store import EventPage

PAGE = 200
CHUNK_EVENTS = 200
CHUNK_BYTES = 2 * 1024 * 1024
FORMAT = 1
OWN_KEYS = ("source", "licence", "session_id", "messages", "meta", "satchel")
# What a user may bring along; the rest of a log is written by agents.
USER_KINDS = frozenset({"message", "message_retracted", "title_changed", "metadata_changed"})

_encode = msgspec.json.Encoder().encode


# -- export


async def export_session(access: Access, session_id: str) -> AsyncIterator[bytes]:
    """One line, in pieces; see SessionManager.export_sessions."""
    ref = access.ref(session_id)
    store = access.store

    async def fetch() -> Any:
        return await store.snapshot(ref)

    snapshot, record = await access.read(ref, fetch)
    last = record.last_seq
    metadata = _members(snapshot.metadata or b"{}")
    retracted: set[int] = set()
    async for event in _log(access, ref, last, kind="message_retracted"):
        retracted.add(event.refers_to or 0)
    name = record.external_id or record.session_id
    head = (
        b'{"source":'
        + bytes(metadata.get("source", b'"satchel"'))
        + b',"licence":'
        + bytes(metadata.get("licence", b'""'))
        + b',"session_id":'
        + _encode(name)
        + b',"messages":['
    )
    yield head
    separator = b""
    async for event in _log(access, ref, last, kind="message"):
        if _stands_in_messages(event, retracted):
            yield separator + event.body
            separator = b","
    yield b'],"meta":' + bytes(metadata.get("meta", b"{}")) + b',"satchel":'
    header = _header(record, snapshot.clock.now)
    header["metadata"] = msgspec.Raw(snapshot.metadata or b"{}")
    header["waiting"] = await _waiting_inputs(access, ref, record)
    yield _encode(header)[:-1] + b',"events":['
    separator = b""
    async for event in _log(access, ref, last):
        yield separator + _encode(_exported(event, with_body=not _stands_in_messages(event, retracted)))
        separator = b","
    yield b"]}}\n"


def _stands_in_messages(event: Event, retracted: set[int]) -> bool:
    return event.kind == "message" and event.format == CHAT_FORMAT and event.seq not in retracted


def _members(text: bytes) -> dict[str, msgspec.Raw]:
    return msgspec.json.decode(text, type=dict[str, msgspec.Raw])


def _header(record: SessionRecord, now: int) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "session_id": record.session_id,
        "user_id": record.user_id,
        "external_id": record.external_id,
        "title": record.title,
        "status": record.status_at(now),
        "version": record.version,
        "created_at": rfc3339(record.created_at),
        "updated_at": rfc3339(record.updated_at),
        "policy": record.policy,
    }


async def _waiting_inputs(access: Access, ref: SessionRef, record: SessionRecord) -> dict[str, Any]:
    """Inputs of runs that have not started: they are in no event yet."""
    waiting = [one.run_id for one in record.queue]
    if record.turn is not None and record.turn.status == "READY":
        waiting.insert(0, record.turn.run_id)
    inputs: dict[str, Any] = {}
    for run_id in waiting:
        page = await access.store.runs(ref, run_id=run_id, limit=1)
        for run in page.runs:
            if run.input_seq is None and bytes(run.input):
                inputs[run_id] = run.input
    return inputs


async def _log(
    access: Access, ref: SessionRef, last: int, *, kind: Literal["message", "message_retracted"] | None = None
) -> AsyncIterator[Event]:
    """The events up to ``last``, page by page; ownership is asked at each."""
    after = 0
    while after < last:

        async def fetch(after: int = after) -> EventPage:
            return await access.store.events(ref, after=after, before=last + 1, kind=kind, limit=PAGE)

        page, _ = await access.read(ref, fetch)
        for event in page.events:
            yield event
        if len(page.events) < PAGE:
            return
        after = page.events[-1].seq


class _ExportedEvent(msgspec.Struct, kw_only=True, omit_defaults=True):
    seq: int
    version: int
    kind: str
    at: str
    actor: str
    run_id: str | None = None
    refers_to: int | None = None
    status: str = "complete"
    format: str = CHAT_FORMAT
    outcome: str | None = None
    metadata: msgspec.Raw = NO_JSON
    body: msgspec.Raw = NO_JSON


def _exported(event: Event, *, with_body: bool) -> _ExportedEvent:
    return _ExportedEvent(
        seq=event.seq,
        version=event.version,
        kind=event.kind,
        at=rfc3339(event.at),
        actor=event.actor,
        run_id=event.run_id,
        refers_to=event.refers_to,
        status=event.status,
        format=event.format,
        outcome=event.outcome,
        metadata=raw_json(event.metadata),
        body=raw_json(event.body) if with_body else NO_JSON,
    )


# -- import


class Imported(msgspec.Struct, frozen=True, kw_only=True):
    """One conversation. ``result``: ``imported``, or ``exists`` when it was there already."""

    line: int
    session_id: str
    external_id: str
    result: Literal["imported", "exists"]
    messages: int
    events: int


class _Conversation(msgspec.Struct, frozen=True, kw_only=True):
    """One line, checked by itself. ``header`` is None for a conversation of the five keys alone."""

    external_id: str
    messages: list[msgspec.Raw]
    metadata: bytes
    header: _Header | None

    def owner(self, access: Access) -> str:
        """Whose it was. Raises InvalidInput."""
        if self.header is None or not self.header.user_id:
            raise InvalidInput("is needed: the line does not name its owner", field="user_id")
        return checked_id(self.header.user_id, field="user_id", limits=access.limits)


class _Header(msgspec.Struct, kw_only=True):
    format: int
    user_id: str = ""
    title: str = ""
    status: SessionStatus = "ACTIVE"
    version: int = 0
    created_at: str = ""
    updated_at: str = ""
    policy: SessionPolicy | None = None
    metadata: msgspec.Raw = msgspec.Raw(b"{}")
    waiting: dict[str, msgspec.Raw] = {}
    events: list[_ExportedEvent] = []


async def import_sessions(
    access: Access, lines: Iterable[bytes | str] | AsyncIterable[bytes | str], *, owner: str | None
) -> AsyncIterator[Imported]:
    """See SessionManager.import_sessions."""
    number = 0
    async for line in _each(lines):
        number += 1
        if not line.strip():
            continue
        try:
            conversation = _parse(line, access)
            yield await _import_one(access, conversation, owner=owner or conversation.owner(access), line=number)
        except InvalidInput as wrong:
            wrong.args = (f"line {number}: {wrong}",)
            raise


async def _each(lines: Iterable[bytes | str] | AsyncIterable[bytes | str]) -> AsyncIterator[bytes | str]:
    if isinstance(lines, AsyncIterable):
        async for line in lines:
            yield line
    else:
        for line in lines:
            yield line


def _parse(line: bytes | str, access: Access) -> _Conversation:
    limits = access.limits
    try:
        data = line.encode() if isinstance(line, str) else line
        members = _members(data)
    except (UnicodeEncodeError, msgspec.DecodeError) as wrong:
        raise InvalidInput(f"is not a JSON object ({wrong})", field="conversation") from None
    known = sum(len(bytes(value)) + len(_encode(name)) for name, value in members.items())
    if len(data.strip()) - known > 64 * (len(members) + 1):
        raise InvalidInput("has a key twice, or is mostly white space", field="conversation")
    for name in ("session_id", "messages"):
        if name not in members:
            raise InvalidInput("is missing", field="conversation", pointer=f"/{name}")
    _, external_id = admit(bytes(members["session_id"]), field="session_id", limits=limits)
    checked_id(external_id, field="session_id", limits=limits)
    try:
        messages = msgspec.json.decode(members["messages"], type=list[msgspec.Raw])
    except msgspec.DecodeError:
        raise InvalidInput("must be a list", field="conversation", pointer="/messages") from None
    header = _parse_header(members.get("satchel"))
    if header is not None:
        metadata = admit_metadata(bytes(header.metadata), limits=limits)
    else:
        kept = {name: value for name, value in members.items() if name not in ("session_id", "messages", "satchel")}
        metadata = admit_metadata(_encode(kept), limits=limits)
    return _Conversation(external_id=external_id, messages=messages, metadata=metadata, header=header)


def _parse_header(text: msgspec.Raw | None) -> _Header | None:
    if text is None:
        return None
    try:
        header = msgspec.json.decode(text, type=_Header)
    except msgspec.DecodeError as wrong:
        raise InvalidInput(f"is not readable ({wrong})", field="satchel") from None
    if header.policy is not None:
        for name in ("idle", "max_lifetime", "retention"):
            duration = getattr(header.policy, name)
            if duration is not None and duration <= 0:
                raise InvalidInput("must be longer than nothing", field="satchel", pointer=f"/policy/{name}")
    if header.format != FORMAT:
        raise InvalidInput(f"has format {header.format}, this program reads {FORMAT}", field="satchel")
    return header


async def _import_one(access: Access, conversation: _Conversation, *, owner: str, line: int) -> Imported:
    tenant_id = access.principal.tenant_id
    generation = 0
    while True:
        session_id = derived_session_id("external", tenant_id, owner, conversation.external_id, str(generation))
        ref = SessionRef(tenant_id, session_id)
        found = await access.store.snapshot(ref, working_memory=False, metadata=False)
        if found.record is None or (found.record.status != "DELETED" and found.record.user_id == owner):
            break
        generation += 1
    if found.record is not None and not found.record.hidden:
        record = access.checked(ref, found.record)
    else:
        header = conversation.header
        now = found.clock.now
        blank = SessionRecord(
            tenant_id=tenant_id,
            session_id=session_id,
            user_id=owner,
            revision=int.from_bytes(os.urandom(6), "big"),
            created_at=now if header is None or not header.created_at else _time(header.created_at),
            updated_at=now if header is None or not header.created_at else _time(header.created_at),
            active_at=now,
            clock_from=now,
            title="" if header is None else _title(header.title, access),
            external_id=conversation.external_id,
            generation=generation,
            policy=access.policy if header is None or header.policy is None else header.policy,
        )
        events = _foreign(access, conversation, now) if header is None else _own(access, conversation, header)
        writer = _Writer(access, blank, metadata=conversation.metadata, written=found.record, clock=found.clock)
        waiting = {} if header is None else {run: bytes(text) for run, text in header.waiting.items()}
        try:
            for event in events:
                await writer.add(event)
        except ValueError as wrong:
            if isinstance(wrong, SatchelError):
                raise
            raise InvalidInput(str(wrong), field="satchel") from wrong
        record = await writer.finish(waiting=waiting, title=blank.title)
        return Imported(
            line=line,
            session_id=session_id,
            external_id=conversation.external_id,
            result="exists" if writer.overtaken else "imported",
            messages=record.messages,
            events=record.last_seq,
        )
    return Imported(
        line=line,
        session_id=session_id,
        external_id=conversation.external_id,
        result="exists",
        messages=record.messages,
        events=record.last_seq,
    )


def _title(title: str, access: Access) -> str:
    return checked_line(title, field="title", limit=access.limits.title, setting="limits.title")


def _time(text: str) -> int:
    try:
        return parse_rfc3339(text)
    except ValueError:
        raise InvalidInput("holds a time that is not RFC 3339", field="satchel") from None


def _foreign(access: Access, conversation: _Conversation, now: int) -> Iterable[Event]:
    """Messages without a log: each gets a seq and a version of its own."""
    for index, raw in enumerate(conversation.messages, start=1):
        draft = admit_message(bytes(raw), limits=access.limits, field=f"messages[{index - 1}]")
        _check_role(access, draft.role)
        yield Event(seq=index, version=index, kind="message", at=now, actor=access.principal.actor, body=draft.body)


def _check_role(access: Access, role: str | None) -> None:
    """A conversation holds what an assistant said, whoever brings it; instructions only from those who may give them."""
    if role is None or role in INSTRUCTION_ROLES:
        check_message_right(access.principal, role)


def _own(access: Access, conversation: _Conversation, header: _Header) -> Iterable[Event]:
    """A log of ours, checked as strictly as what anybody writes."""
    bodies = iter(conversation.messages)
    by_user = access.principal.role == "user"
    for exported in header.events:
        if by_user and exported.kind not in USER_KINDS and not exported.kind.startswith("session_"):
            require(access.principal, "work", "import tool history, working memory and runs")
        body = bytes(exported.body)
        if not body:
            raw = next(bodies, None)
            if raw is None:
                raise InvalidInput(f"event {exported.seq} has no message", field="satchel")
            body = bytes(raw)
        if exported.kind == "message":
            draft = admit_message(body, format=exported.format, limits=access.limits)
            _check_role(access, draft.role)
        else:
            body, _ = admit(body, field="satchel.events", limits=access.limits)
        try:
            yield msgspec.convert(
                {
                    "seq": exported.seq,
                    "version": exported.version,
                    "kind": exported.kind,
                    "at": _time(exported.at),
                    "actor": access.principal.actor if by_user else exported.actor,
                    "body": body,
                    "run_id": exported.run_id,
                    "refers_to": exported.refers_to,
                    "status": exported.status,
                    "format": exported.format,
                    "outcome": exported.outcome,
                    "metadata": bytes(exported.metadata) or None,
                },
                Event,
            )
        except msgspec.ValidationError as wrong:
            raise InvalidInput(f"event {exported.seq}: {wrong}", field="satchel") from None
    if next(bodies, None) is not None:
        raise InvalidInput("has more messages than events", field="satchel")


# -- fork


async def fork(
    access: Access, session_id: str, *, up_to: int | None, title: str | None, idempotency_key: str | None
) -> tuple[str, bool]:
    """The new session's id, and whether this call was answered before."""
    ref = access.ref(session_id)
    store = access.store

    async def fetch() -> Any:
        return await store.snapshot(ref)

    snapshot, source = await access.read(ref, fetch)
    key = access.key(idempotency_key)
    if key["caller_key"]:
        new_id = derived_session_id("fork", *ref, access.principal.side, key["key"].hex())
    else:
        new_id = encode_id("sess_", os.urandom(RANDOM_BYTES))
    new_ref = SessionRef(ref.tenant_id, new_id)
    wanted = request("fork_session", *ref, up_to, title)
    loaded = await store.load({new_ref: Want(keys=(key["key"],))})
    replay = replay_of(_readable(loaded.sessions[new_ref]).keys, key["key"], wanted)
    found = await store.snapshot(new_ref, working_memory=False, metadata=False)
    if found.record is not None and not found.record.hidden:
        return new_id, replay is not None
    last = source.last_seq
    if found.record is not None and found.record.origin is not None:
        last = found.record.origin.seq  # goes on where a former call stopped
    elif up_to is not None and up_to < last:
        last = await _whole_pairs(access, ref, up_to, source.last_seq)
    now = found.clock.now
    blank = SessionRecord(
        tenant_id=ref.tenant_id,
        session_id=new_id,
        user_id=source.user_id,
        revision=int.from_bytes(os.urandom(6), "big"),
        created_at=now,
        updated_at=now,
        active_at=now,
        clock_from=now,
        title=source.title if title is None else title,
        policy=source.policy,
        origin=Origin(session_id=session_id, seq=last),
    )
    first = {**key, "fingerprint": wanted}
    writer = _Writer(access, blank, metadata=snapshot.metadata, written=found.record, clock=found.clock, first=first)
    async for event in _log(access, ref, last):
        await writer.add(event)
    waiting = await _waiting_inputs(access, ref, source) if last == source.last_seq else {}
    record = await writer.finish(
        waiting={run_id: bytes(text) for run_id, text in waiting.items()}, title=blank.title, active=True
    )
    return record.session_id, False


def _readable(state: SessionState | SatchelError) -> SessionState:
    if isinstance(state, SatchelError):
        raise state
    return state


async def _whole_pairs(access: Access, ref: SessionRef, up_to: int, last: int) -> int:
    """The greatest seq up to ``up_to`` at which no assistant's call is parted from a result that was given later."""
    store = access.store
    end = up_to
    while end > 0:
        earlier = await store.events(ref, before=end + 1, newest_first=True, kind="message", limit=PAGE)
        later = await store.events(ref, after=end, before=last + 1, kind="message", limit=PAGE)
        answered_later = {Message.from_event(event).tool_call_id for event in later.events} - {None}
        answered: set[str | None] = set()
        cut: int | None = None
        for event in earlier.events:
            message = Message.from_event(event)
            if event.format != CHAT_FORMAT:
                continue
            if message.role == "tool":
                answered.add(message.tool_call_id)
            calls = message.tool_calls if message.role == "assistant" else None
            if calls:
                labels = {call.get("id") for call in calls} - answered
                if labels & answered_later:
                    cut = event.seq
                break
        if cut is None:
            return end
        end = cut - 1
    return end


# -- writing


class _Writer:
    """Replays events into a hidden session, chunk by chunk; ``written`` is what a former call left."""

    def __init__(
        self,
        access: Access,
        blank: SessionRecord,
        *,
        metadata: bytes,
        written: SessionRecord | None,
        clock: Clock,
        first: Mapping[str, Any] | None = None,
    ) -> None:
        """``first``: the key and fingerprint that the first chunk is written under, if the caller has one."""
        self._access = access
        self._first = first
        self._blank = blank
        self._metadata = metadata
        self._clock = clock
        self._done = 0 if written is None else written.last_seq
        self._replay = Replay(blank)
        self._written: list[Event] = []  # a page of what a former call left, the next one last
        self._chunk: list[Event] = []
        self._bytes = 0
        self.overtaken = False

    async def add(self, event: Event) -> None:
        self._replay.take(event)
        if event.seq <= self._done:
            await self._check_written(event)
            if event.seq == self._done:
                self._replay.take_rows()
            return
        self._chunk.append(event)
        self._bytes += len(event.body)
        if len(self._chunk) >= CHUNK_EVENTS or self._bytes >= CHUNK_BYTES:
            await self._write(self._hidden())

    async def _check_written(self, event: Event) -> None:
        """What goes on must be what was begun. Raises InvalidInput."""
        if not self._written:
            page = await self._access.store.events(self._blank.ref, after=event.seq - 1, limit=PAGE)
            self._written = list(reversed(page.events))
        written = self._written.pop() if self._written else None
        if written is None or (written.seq, written.kind, written.body) != (event.seq, event.kind, event.body):
            raise InvalidInput(
                f"is another conversation than the unfinished one of this name, from event {event.seq} on;"
                " what that left is removed after a day",
                field="conversation",
            )

    def _hidden(self) -> SessionRecord:
        return msgspec.structs.replace(
            self._replay.state.existing, hidden=True, sweep_at=self._clock.now + DAY, turn=None, queue=()
        )

    async def _write(self, record: SessionRecord, *, last: bool = False) -> None:
        runs, calls = self._replay.take_rows()
        chunk = Effect(
            record=record,
            answer=Answer(version=record.version, at=record.updated_at),
            events=tuple(self._chunk),
            runs=runs,
            calls=calls,
            working_memory=self._replay.working_memory if last else None,
            metadata=self._metadata if last else None,
        )
        decision = WriteChunk(
            ref=record.ref,
            principal=self._access.principal,
            **(self._access.key(None) if self._first is None or self._done > 0 else self._first),
            start=self._done,
            chunk=chunk,
            bytes_written=self._bytes,
        )
        said = (await self._access.submit(decision)).value
        if said == OVERTAKEN:
            self.overtaken = True
            if not last:
                raise StoreBusy("another call is importing this conversation at the same time; repeat this one later")
        self._done = record.last_seq
        self._chunk = []
        self._bytes = 0

    async def finish(self, *, waiting: dict[str, bytes], title: str, active: bool = False) -> SessionRecord:
        """Close what is open, and show the session: under ``title``, and ``active`` whatever the log ended with."""
        state = self._replay.state
        for run_id, text in waiting.items():
            if run_id in state.runs:
                body, _ = admit(text, field="satchel.waiting", limits=self._access.limits)
                state.runs[run_id] = msgspec.structs.replace(state.runs[run_id], input=raw_json(body))
        closed = _close(self._replay, self._clock, title=title, active=active)
        if closed is not None:
            state.record = closed.record
            self._replay.put_rows(closed.runs, closed.calls)
            self._chunk.extend(closed.events)
        record = msgspec.structs.replace(
            state.existing,
            hidden=False,
            active_at=self._clock.now,
            clock_from=self._clock.now,
            sweep_at=None,
            lease_until=None,
            lease_clock="",
        )
        record = with_entries(record)
        await self._write(record, last=True)
        return record


def _close(replay: Replay, clock: Clock, *, title: str, active: bool) -> Effect | None:
    """Leases do not travel: open runs arrive as failed, open calls as unknown. What differs from the log's own end is
    written into it; None: nothing does."""
    edit = Edit(replay.state, clock, OPERATOR)
    error = RunError(code="moved", message="the session was copied while this run was open")
    record = replay.state.existing
    run_ids = [waiting.run_id for waiting in record.queue]
    if record.turn is not None:
        run_ids.append(record.turn.run_id)
    for run_id in run_ids:
        row = edit.run(run_id)
        if row is not None:
            edit.end_run(row, "FAILED", stop_reason="moved", error=error, calls="unknown")
    for call in edit.get("open_calls"):
        edit.end_call(edit.call(call.seq), "unknown")
    if title != record.title:
        edit.event("title_changed", _encode({"title": title}))
        edit.fields["title"] = title
        edit.touch("title")
    if active and record.status != "ACTIVE":
        edit.event("session_restored", _encode({"reason": "fork"}))
        edit.move_to("ACTIVE", reason="fork")
    return edit.finish(edit.answer()) if edit.events else None
