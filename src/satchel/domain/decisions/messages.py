"""What was said: appended, or taken back."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from satchel.domain.decisions.decision import Decision, unchanged
from satchel.domain.edit import Edit
from satchel.domain.event import CHAT_FORMAT, Event, MessageStatus
from satchel.domain.idempotency import Answer
from satchel.domain.message import AGENT_ROLES, INSTRUCTION_ROLES, Draft, Message, tokens_of
from satchel.domain.principal import Principal
from satchel.domain.rights import require
from satchel.domain.run import Attempt
from satchel.domain.state import Clock, Effect, SessionState, Unchanged, Want
from satchel.domain.tool_call import CallRow
from satchel.errors import MessageNotFound, RunFenced

_encode = msgspec.json.Encoder().encode


def check_message_right(principal: Principal, role: str | None) -> None:
    """Raises NotAllowed. A body of another format is an agent's: its roles are not ours to read, but for those that
    instruct."""
    if role is None:
        require(principal, "work", "write messages of another format")
    elif role in INSTRUCTION_ROLES:
        require(principal, "instruct", f"write {role} messages")
    elif role in AGENT_ROLES:
        require(principal, "work", f"write {role} messages")


class AppendMessages(Decision[tuple[Message, ...]], frozen=True, kw_only=True):
    """One or several messages, all or none, one version."""

    messages: tuple[Draft, ...]
    size: int
    status: MessageStatus = "complete"

    action: ClassVar[str] = "write messages"

    def want(self) -> Want:
        keys = () if self.key is None else (self.key,)
        for draft in self.messages:
            if draft.answers is not None:  # it may finish a call that is open
                return Want(keys=keys, open_work=True)
        return Want(keys=keys)

    def check_role(self, state: SessionState) -> None:
        if self.status != "complete":
            require(self.principal, "work", "write interrupted messages")
        for draft in self.messages:
            check_message_right(self.principal, draft.role)

    def effect(self, state: SessionState, clock: Clock) -> Effect:
        edit = Edit(state, clock, self.principal.actor)
        run_id = None if self.attempt is None else self.attempt.run_id
        seqs: list[int] = []
        for draft in self.messages:
            call = None
            if draft.answers is not None and self.status == "complete":
                call = open_call_of(edit, draft.answers)
            if call is None:
                seqs.append(edit.message(draft, run_id=run_id, status=self.status))
            else:
                seqs.append(self._end_call(edit, call, draft, run_id))
        return edit.finish(edit.answer(seqs=tuple(seqs)))

    def _end_call(self, edit: Edit, call: CallRow, draft: Draft, run_id: str | None) -> int:
        """A tool message whose label is that of an open call finishes that call."""
        check_call_holder(call, self.attempt)
        seq = edit.message(draft, run_id=run_id, status=self.status, ends=call, outcome="succeeded/text")
        edit.end_call(call, "succeeded", message=(seq, draft.body))
        return seq

    def view(self, state: SessionState, answer: Answer, *, replayed: bool) -> tuple[Message, ...]:
        shown: list[Message] = []
        for seq, draft in zip(answer.seqs, self.messages, strict=True):
            shown.append(
                Message(
                    seq=seq,
                    version=answer.version,
                    at=answer.at,
                    body=draft.body,
                    run_id=None if self.attempt is None else self.attempt.run_id,
                    status=self.status,
                    format=draft.format,
                    metadata_json=draft.metadata,
                    replayed=replayed,
                )
            )
        return tuple(shown)


def check_call_holder(row: CallRow, attempt: Attempt | None) -> None:
    """A call of a run is finished by that run's attempt alone. Raises RunFenced."""
    if row.run_id is None or (attempt is not None and attempt.run_id == row.run_id):
        return
    number = 0 if attempt is None else attempt.attempt
    raise RunFenced(run_id=row.run_id, attempt=number, reason="the call was started by this run")


def open_call_of(edit: Edit, label: str) -> CallRow | None:
    for call in edit.get("open_calls"):
        if call.tool_call_id == label:
            return edit.call(call.seq)
    return None


class RetractMessage(Decision[Message], frozen=True, kw_only=True):
    """Taken back by an event that names it: reads of messages leave it out, the log does not."""

    seq: int
    reason: str = ""

    action: ClassVar[str] = "retract messages"

    def want(self) -> Want:
        return Want(keys=() if self.key is None else (self.key,), event_seqs=(self.seq,))

    def check_role(self, state: SessionState) -> None:
        event = state.events.get(self.seq)
        if event is not None and event.kind == "message":
            check_message_right(self.principal, _role(event))

    def effect(self, state: SessionState, clock: Clock) -> Effect | Unchanged:
        event = state.events.get(self.seq)
        if event is None or event.kind != "message":
            raise MessageNotFound(self.seq)
        if is_retracted(state, self.seq):
            return unchanged(state.existing, clock, seqs=(self.seq,))
        edit = Edit(state, clock, self.principal.actor)
        edit.event(
            "message_retracted",
            _encode({"reason": self.reason}) if self.reason else b"{}",
            run_id=event.run_id,
            refers_to=self.seq,
        )
        if event.status != "unanswered":  # it was not counted
            edit.fields["context_tokens"] = max(0, state.existing.context_tokens - tokens_of(event))
        edit.fields["retracted"] = state.existing.retracted + 1
        edit.touch("messages")
        return edit.finish(edit.answer(seqs=(self.seq,)))

    def view(self, state: SessionState, answer: Answer, *, replayed: bool) -> Message:
        message = Message.from_event(state.events[self.seq], retracted=True)
        return msgspec.structs.replace(message, version=answer.version, replayed=replayed)


def is_retracted(state: SessionState, seq: int) -> bool:
    """Whether a retraction of this message was loaded, or is in the batch."""
    return any(event.kind == "message_retracted" and event.refers_to == seq for event in state.events.values())


def _role(event: Event) -> str | None:
    if event.format != CHAT_FORMAT:
        return None
    role = Message.from_event(event).role
    return role if role is not None else "assistant"
