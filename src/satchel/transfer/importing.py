"""Conversations from JSON lines. A line is checked and replayed whole before the first of its chunks is written: one that is
refused stores nothing."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterable, AsyncIterator, Iterable
from typing import Literal

import msgspec

from satchel.access import Access
from satchel.domain.arrival import check_readable, close, hidden, is_expiry, shown
from satchel.domain.canonical import canonical
from satchel.domain.clock import rfc3339
from satchel.domain.decisions.imports import GiveUpImport
from satchel.domain.event import Event
from satchel.domain.ids import SessionRef
from satchel.domain.imported import Imported
from satchel.domain.principal import Principal
from satchel.domain.record import SessionRecord
from satchel.domain.replay import Replay
from satchel.domain.state import Clock
from satchel.errors import InvalidInput, NotAllowed, SatchelError
from satchel.sessions.generations import generation_behind, is_over, ref_of
from satchel.store import Snapshot
from satchel.sweeper import erase
from satchel.transfer.admitting import Admission, Admitted
from satchel.transfer.reading import Conversation, read_line, read_policy, read_time
from satchel.transfer.writing import Writer

PAGE = 200
BREATH = 100  # events that are checked before others have their turn


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
            conversation = read_line(line, access.limits)
            whose = owner or conversation.owner(access.limits)
            imported = await _Import(access, conversation, owner=whose, line=number).run()
        except (InvalidInput, NotAllowed) as wrong:
            wrong.args = (f"line {number}: {wrong}",)
            raise
        del line, conversation  # it may be large, and the caller takes its time
        yield imported


async def _each(lines: Iterable[bytes | str] | AsyncIterable[bytes | str]) -> AsyncIterator[bytes | str]:
    if isinstance(lines, AsyncIterable):
        async for line in lines:
            yield line
    else:
        for line in lines:
            yield line


class _Import:
    """One conversation on its way."""

    def __init__(self, access: Access, conversation: Conversation, *, owner: str, line: int) -> None:
        self._access = access
        self._conversation = conversation
        self._owner = owner
        self._line = line

    async def run(self) -> Imported:
        while True:
            ref, generation, found = await self._place()
            begun = found.record
            if begun is not None and not begun.hidden:
                there = self._access.checked(ref, begun)
                reason = await self._difference(self._blank(ref, generation, found.clock, there), found.clock, there)
                return self._report("differs" if reason else "exists", there, reason)
            blank = self._blank(ref, generation, found.clock, begun)
            if await self._check(blank, found.clock, begun):
                written = await self._write(blank, found.clock, begun)
                if written is None:
                    continue  # another call was first: with this conversation, or with another of its name
                return self._report("imported", written)
            # What a former call left under this name is another conversation.
            await self._access.submit(GiveUpImport(ref=ref, principal=self._access.principal))
            await erase(self._access.opened, ref)

    async def _place(self) -> tuple[SessionRef, int, Snapshot]:
        """Where the conversation stands, or will: behind the tombstones of its name, and what was given away."""
        tenant_id = self._access.principal.tenant_id
        name = self._conversation.external_id
        generation = 0
        while True:
            ref = ref_of(tenant_id, self._owner, name, generation)
            found = await self._access.store.snapshot(ref, working_memory=False, metadata=False)
            if not is_over(found.record, self._owner):
                return ref, generation, found
            generation = await generation_behind(self._access.store, tenant_id, self._owner, name, generation)

    def _blank(self, ref: SessionRef, generation: int, clock: Clock, begun: SessionRecord | None) -> SessionRecord:
        header = self._conversation.header
        created_at = clock.now if begun is None else begun.created_at
        if header is not None and header.created_at:
            created_at = read_time(header.created_at, now=clock.now, field="satchel.created_at")
        return SessionRecord(
            tenant_id=ref.tenant_id,
            session_id=ref.session_id,
            user_id=self._owner,
            revision=int.from_bytes(os.urandom(6), "big"),
            created_at=created_at,
            updated_at=created_at,
            active_at=clock.now,
            clock_from=clock.now,
            title="" if header is None else header.title,
            external_id=self._conversation.external_id,
            generation=generation,
            policy=read_policy(None if header is None else header.policy, self._access),
        )

    def _replay(self, blank: SessionRecord) -> Replay:
        return Replay(blank, metadata=self._conversation.metadata, limits=self._access.limits)

    def _events(self, blank: SessionRecord, clock: Clock, access: Access | None = None) -> Iterable[Admitted]:
        admission = Admission(access or self._access, clock.now)
        return admission.events(self._conversation, said_at=blank.created_at)

    # -- beside what is there

    async def _difference(self, blank: SessionRecord, clock: Clock, there: SessionRecord) -> str:
        """In what the session that is there is another than the line's; nothing where it begins with all of the line, whatever was
        done in it since. That the line's session expired in the end, which is nobody's doing, need not be there: its clock began
        anew here. Rights are not asked: nothing is written."""
        if blank.created_at != there.created_at:
            return f"it was created at {rfc3339(there.created_at)}, the line's at {rfc3339(blank.created_at)}"
        reader = Access(self._access.opened, Principal.operator(tenant_id=there.tenant_id), self._access.policy)
        earlier = _Earlier(self._access, there)
        reason, parts_in, last = "", 0, None
        for number, admitted in enumerate(self._events(blank, clock, reader), start=1):
            last = admitted.event
            if reason:
                if last.version != parts_in:
                    return reason
            elif last.seq > there.last_seq:
                reason, parts_in = f"it ends at seq {there.last_seq}, and the line goes on", last.version
            elif not await earlier.holds(last):
                reason, parts_in = f"it holds something else from seq {last.seq} on", last.version
            if number % BREATH == 0:
                await asyncio.sleep(0)
        return "" if last is None or is_expiry(last) else reason

    # -- the whole of it, before anything is written

    async def _check(self, blank: SessionRecord, clock: Clock, begun: SessionRecord | None) -> bool:
        """Whether what a former call left (``begun``) is the beginning of this conversation. Raises InvalidInput,
        NotAllowed."""
        replay = self._replay(blank)
        earlier = _Earlier(self._access, begun)
        same = True
        for admitted in self._events(blank, clock):
            _take(replay, admitted)
            same = same and await earlier.holds(admitted.event)
            if admitted.event.seq % BREATH == 0:
                _check_readable(replay, hidden(replay, clock))
                await asyncio.sleep(0)
        last_seq = replay.state.existing.last_seq
        waiting = self._waiting(replay, clock)
        try:
            replay.check_end()
            self._check_header(replay)
            close(replay, clock, waiting=waiting, title=replay.state.existing.title, active=False)
        except SatchelError:
            raise
        except ValueError as wrong:
            raise InvalidInput(str(wrong), field="satchel") from wrong
        _check_readable(replay, shown(replay, clock))
        return same and (begun is None or begun.last_seq <= last_seq)

    def _check_header(self, replay: Replay) -> None:
        """Title and metadata stand beside the log: they are what it ends with, where it changes them. Raises ValueError."""
        record = replay.state.existing
        header = self._conversation.header
        if header is None:
            return
        if record.title != header.title:
            raise ValueError(f"has the title {header.title!r}, and a log that ends with {record.title!r}")
        metadata = self._conversation.metadata
        if record.changed.metadata and canonical(msgspec.Raw(replay.state.metadata)) != canonical(
            msgspec.Raw(metadata)
        ):
            raise ValueError("has other metadata than its log ends with")

    def _waiting(self, replay: Replay, clock: Clock) -> dict[str, bytes]:
        """The inputs of runs that have not started. Raises InvalidInput, NotAllowed."""
        header = self._conversation.header
        if header is None:
            return {}
        admission = Admission(self._access, clock.now)
        inputs: dict[str, bytes] = {}
        for run_id, text in header.waiting.items():
            place = f"satchel.waiting.{run_id}"
            row = replay.state.runs.get(run_id)
            if row is None or row.status != "READY" or row.attempt > 0 or row.input_seq is not None:
                raise InvalidInput("is no run that waits with an input", field=place)
            inputs[run_id] = admission.message(bytes(text), place=place).body
        size, limit = sum(map(len, inputs.values())), self._access.limits.queued_input
        if size > limit + self._access.limits.agent_message:  # those in the queue, and the one whose turn it is
            raise InvalidInput(f"{size} bytes wait, the limit is {limit} in the queue", field="satchel.waiting")
        return inputs

    # -- and again, to write it

    async def _write(self, blank: SessionRecord, clock: Clock, begun: SessionRecord | None) -> SessionRecord | None:
        """None: another call wrote it."""
        replay = self._replay(blank)
        writer = Writer(self._access, replay, metadata=self._conversation.metadata, written=begun, clock=clock)
        for admitted in self._events(blank, clock):
            await writer.add(admitted.event, admitted.draft)
        waiting = self._waiting(replay, clock)
        record = await writer.finish(waiting=waiting, title=replay.state.existing.title)
        return None if writer.replayed else record

    def _report(
        self, result: Literal["imported", "exists", "differs"], record: SessionRecord, reason: str = ""
    ) -> Imported:
        header = self._conversation.header
        former = "" if header is None else header.user_id
        return Imported(
            line=self._line,
            session_id=record.session_id,
            external_id=self._conversation.external_id,
            result=result,
            messages=record.messages,
            events=record.last_seq,
            user_id=self._owner,
            former_user_id=former if former and former != self._owner else None,
            reason=reason,
        )


class _Earlier:
    """What a former call left, beside what this one brings."""

    def __init__(self, access: Access, begun: SessionRecord | None) -> None:
        self._access = access
        self._begun = begun
        self._events: list[Event] = []  # the next one last

    async def holds(self, event: Event) -> bool:
        """Whether it is there already, or comes behind what is there. Who wrote it may be somebody else, and its tokens may have been
        counted by another."""
        if self._begun is None or event.seq > self._begun.last_seq:
            return True
        if not self._events:
            page = await self._access.store.events(self._begun.ref, after=event.seq - 1, limit=PAGE)
            self._events = list(reversed(page.events))
        written = self._events.pop() if self._events else None
        return written is not None and msgspec.structs.replace(written, actor=event.actor, tokens=event.tokens) == event


def _take(replay: Replay, admitted: Admitted) -> None:
    """Raises InvalidInput with the place in the line."""
    try:
        replay.take(admitted.event, admitted.draft)
    except InvalidInput as wrong:
        wrong.args = (f"{admitted.place}: {wrong}",)
        raise
    except ValueError as wrong:
        raise InvalidInput(str(wrong), field=admitted.place) from wrong


def _check_readable(replay: Replay, record: SessionRecord) -> None:
    try:
        check_readable(record, *replay.take_rows())
    except (ValueError, TypeError, OverflowError) as wrong:
        raise InvalidInput(f"could not be read back ({wrong})", field="conversation") from wrong
