"""Events that somebody brings along, checked as strictly as what anybody writes: rights, sizes, ids, and shapes.

That each can follow on those before it is checked as they are replayed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import msgspec

from satchel.access import Access
from satchel.domain.bodies import (
    CallFinished,
    CallRecorded,
    CallStarted,
    ContextThreshold,
    QuestionAnswered,
    QuestionAsked,
    Reasoned,
    RunAdded,
    RunEnded,
    RunReturned,
    RunStep,
    SessionExpired,
    SessionTransferred,
    TitleChanged,
    read_body,
)
from satchel.domain.clock import SECOND
from satchel.domain.decisions.messages import check_message_right
from satchel.domain.event import CHAT_FORMAT, CORRUPT_FORMAT, Event
from satchel.domain.ids import checked_id, checked_line
from satchel.domain.json_text import admit, walk
from satchel.domain.message import INSTRUCTION_ROLES, Draft, admit_message, admit_metadata
from satchel.domain.principal import ROLES
from satchel.domain.rights import check_user_size, require
from satchel.errors import InvalidInput, LimitExceeded
from satchel.questions import LONGEST_EXPIRY, checked_answer_size, checked_question, checked_schema_size
from satchel.runs import checked_text
from satchel.transfer.form import ExportedEvent, members_once
from satchel.transfer.reading import Conversation, read_time

# What a user may bring along; the rest of a log is written by agents.
_OF_USERS = frozenset({"message", "message_retracted", "title_changed", "metadata_changed", "context_threshold"})
_REFERRING = frozenset({"message", "message_retracted", "tool_call_finished"})
_IN_A_RUN = frozenset(
    {"message", "message_retracted", "tool_call_started", "tool_call_finished", "tool_call_recorded"}
    | {
        "working_memory_changed",
        "run_memory_changed",
        "run_added",
        "run_started",
        "run_step",
        "run_returned",
        "run_cancel_requested",
    }
    | {"run_ended", "question_asked", "question_answered", "context_threshold"}
)
DOCUMENTS = 4  # of a caller's that one body holds, at most
BESIDE = 16  # values that may stand in such a document beside the caller's own
DEEPER = 2  # levels that such a document stands below its body, at most
_RUN_ID = re.compile(r"run_[a-z2-7]{24}")


class Admitted(NamedTuple):
    """An event that may be written, and its message."""

    event: Event
    draft: Draft | None
    place: str  # in the line, for errors of what is checked later


class Admission:
    """Admits what the principal brings. ``now`` is the store's clock."""

    def __init__(self, access: Access, now: int) -> None:
        self._principal = principal = access.principal
        self._limits = access.limits
        self._count = access.count_tokens
        self._now = now
        self._keeps_actors = principal.role in ("admin", "operator")

    def events(self, conversation: Conversation, *, said_at: int) -> Iterator[Admitted]:
        """In order, made anew at each call. Messages without a log get a seq and a version each, and were said at
        ``said_at``. Raises InvalidInput, NotAllowed, with the place in the line."""
        if conversation.header is None:
            for index, text in enumerate(conversation.messages):
                draft = self.message(bytes(text), place=f"messages[{index}]")
                yield Admitted(self._said(index + 1, said_at, draft), draft, f"messages[{index}]")
            return
        bodies = enumerate(conversation.messages)
        for index, text in enumerate(conversation.header.events):
            place = f"satchel.events[{index}]"
            exported = _read(bytes(text), place)
            body = bytes(exported.body)
            where = f"{place}.body"
            if not body:
                number, raw = next(bodies, (0, None))
                if raw is None or exported.kind != "message":
                    raise InvalidInput("has no body, and no message is left for it", field=place)
                body, where = bytes(raw), f"messages[{number}]"
            yield self._event(exported, body, place, where)
        if next(bodies, None) is not None:
            raise InvalidInput("has more messages than events", field="satchel")

    def message(self, text: bytes, *, place: str, format: str = CHAT_FORMAT, metadata: bytes | None = None) -> Draft:
        """A conversation holds what an assistant said, whoever brings it; instructions only from those who may give
        them."""
        if format == CORRUPT_FORMAT:
            raise InvalidInput("is the place of a message that could not be read", field=place)
        draft = admit_message(
            text, format=format, metadata=metadata, limits=self._limits, field=place, count=self._count
        )
        if draft.role is None or draft.role in INSTRUCTION_ROLES:
            check_message_right(self._principal, draft.role)
        check_user_size(self._principal, draft, limits=self._limits, field=place)
        return draft

    def _said(self, seq: int, at: int, draft: Draft) -> Event:
        return Event(
            seq=seq,
            version=seq,
            kind="message",
            at=at,
            actor=self._principal.actor,
            body=draft.body,
            tokens=draft.counted,
        )

    def _event(self, exported: ExportedEvent, body: bytes, place: str, where: str) -> Admitted:
        kind = exported.kind
        metadata = bytes(exported.metadata) or None
        if kind not in _OF_USERS and not kind.startswith("session_"):
            require(self._principal, "work", "import tool history, working memory and runs")
        draft: Draft | None = None
        if kind == "message":
            draft = self.message(body, place=where, format=exported.format, metadata=metadata)
            body, metadata = draft.body, draft.metadata
            if exported.status == "interrupted":
                require(self._principal, "work", "write interrupted messages")
        else:
            body = self._body(kind, body, where)
            plain = ("complete", CHAT_FORMAT, None, None, None)
            if (exported.status, exported.format, exported.outcome, exported.streamed, metadata) != plain:
                raise InvalidInput("has what only a message has", field=place)
        if exported.refers_to is not None and (kind not in _REFERRING or not 0 < exported.refers_to < exported.seq):
            raise InvalidInput(f"refers to {exported.refers_to}", field=place)
        if exported.run_id is not None and (kind not in _IN_A_RUN or _RUN_ID.fullmatch(exported.run_id) is None):
            raise InvalidInput("has a run_id that is none, or is of no run", field=place)
        event = Event(
            seq=exported.seq,
            version=exported.version,
            kind=kind,
            at=read_time(exported.at, now=self._now, field=f"{place}.at"),
            actor=self._actor(exported.actor, place),
            body=body,
            run_id=exported.run_id,
            refers_to=exported.refers_to,
            status=exported.status,
            format=exported.format,
            metadata=metadata,
            outcome=exported.outcome,
            tokens=None if draft is None else draft.counted,
            streamed=exported.streamed,
        )
        return Admitted(event, draft, place)

    def _actor(self, actor: str, place: str) -> str:
        """Who did it is kept as given for those who look after a tenant. Nobody else writes in another's name."""
        if not self._keeps_actors:
            return self._principal.actor
        if actor != "operator":
            role, _, subject = actor.partition(":")
            if role not in ROLES:
                raise InvalidInput("is neither operator nor role:subject", field=f"{place}.actor")
            checked_id(subject, field=f"{place}.actor", limits=self._limits)
        return actor

    def _body(self, kind: str, text: bytes, place: str) -> bytes:
        body = self._document(text, place)
        check = _BODIES.get(kind)
        try:
            if check is not None:
                check(read_body(body, _SHAPES[kind]), self, place)
        except msgspec.DecodeError as wrong:
            raise InvalidInput(f"does not fit {kind} ({wrong})", field=place) from None
        if kind == "metadata_changed":
            admit_metadata(body, limits=self._limits, field=place)
        return body

    def _document(self, text: bytes, place: str) -> bytes:
        """A body that is one document, or holds several of a caller's (a call its arguments and its outcome): then each of
        them has the limits of one."""
        limits = self._limits
        try:
            return admit(text, field=place, limits=limits)[0]
        except LimitExceeded as larger:
            wide = msgspec.structs.replace(
                limits, nodes=DOCUMENTS * (limits.nodes + BESIDE), depth=limits.depth + DEEPER
            )
            body, value = admit(text, field=place, limits=wide)
            if not isinstance(value, dict):
                raise larger from None
        one = msgspec.structs.replace(limits, nodes=limits.nodes + BESIDE, depth=limits.depth + DEEPER - 1)
        for name, part in value.items():
            walk(part, field=f"{place}.{name}", limits=one)
        return body

    # -- what stands in bodies

    def text(self, text: str, place: str) -> None:
        checked_text(text, field=place)

    def line(self, text: str, place: str) -> None:
        checked_line(text, field=place, limit=self._limits.title, setting="limits.title")

    def id(self, text: str | None, place: str) -> None:
        if text is not None:
            checked_id(text, field=place, limits=self._limits)

    def time(self, text: str | None, place: str) -> None:
        if text is not None:
            read_time(text, now=self._now, field=place)

    def expiry(self, text: str, place: str) -> None:
        """It may be years ahead."""
        read_time(text, now=self._now + LONGEST_EXPIRY * SECOND, field=place)

    def size(self, text: msgspec.Raw, place: str) -> None:
        size, limit = len(bytes(text)), self._limits.agent_message
        if size > limit:
            raise LimitExceeded(field=place, size=size, limit=limit, setting="limits.agent_message")

    def question(self, body: QuestionAsked, place: str) -> None:
        checked_question(body.question, limits=self._limits, field=f"{place}.question")
        if bytes(body.schema):
            checked_schema_size(bytes(body.schema), limits=self._limits, field=f"{place}.schema")

    def answer(self, body: QuestionAnswered, place: str) -> None:
        checked_answer_size(bytes(body.answer), limits=self._limits, field=f"{place}.answer")

    def metadata(self, text: msgspec.Raw, place: str) -> None:
        if bytes(text):
            admit_metadata(bytes(text), limits=self._limits, field=place)


def _read(text: bytes, place: str) -> ExportedEvent:
    members_once(text, field=place)
    try:
        return msgspec.json.decode(text, type=ExportedEvent)
    except msgspec.DecodeError as wrong:
        raise InvalidInput(f"is no event ({wrong})", field=place) from None


def _reasoned(body: Reasoned, admission: Admission, place: str) -> None:
    admission.text(body.reason, f"{place}.reason")


def _expired(body: SessionExpired, admission: Admission, place: str) -> None:
    admission.text(body.reason, f"{place}.reason")
    admission.time(body.expired_at, f"{place}.expired_at")


def _transferred(body: SessionTransferred, admission: Admission, place: str) -> None:
    admission.id(body.former, f"{place}.from")
    admission.id(body.to, f"{place}.to")


def _titled(body: TitleChanged, admission: Admission, place: str) -> None:
    admission.line(body.title, f"{place}.title")
    admission.line(body.former or "", f"{place}.former")


def _called(body: CallStarted, admission: Admission, place: str) -> None:
    admission.id(body.tool, f"{place}.tool")
    admission.id(body.tool_call_id, f"{place}.tool_call_id")
    admission.id(body.step, f"{place}.step")
    admission.size(body.arguments, f"{place}.arguments")
    if isinstance(body, CallRecorded):
        _ended_call(body, admission, place)


def _ended_call(body: CallFinished | CallRecorded, admission: Admission, place: str) -> None:
    admission.size(body.result, f"{place}.result")
    admission.size(body.error, f"{place}.error")


def _added(body: RunAdded, admission: Admission, place: str) -> None:
    admission.text(body.goal, f"{place}.goal")
    admission.id(body.agent or None, f"{place}.agent")
    admission.id(body.parent_run_id, f"{place}.parent_run_id")
    admission.metadata(body.metadata, f"{place}.metadata")


def _asked(body: QuestionAsked, admission: Admission, place: str) -> None:
    admission.id(body.name, f"{place}.name")
    admission.question(body, place)
    admission.expiry(body.expires_at, f"{place}.expires_at")


def _answered(body: QuestionAnswered, admission: Admission, place: str) -> None:
    admission.id(body.name, f"{place}.name")
    admission.answer(body, place)


def _stepped(body: RunStep, admission: Admission, place: str) -> None:
    admission.text(body.name, f"{place}.name")
    admission.text(body.error or "", f"{place}.error")


def _ended(body: RunEnded, admission: Admission, place: str) -> None:
    admission.text(body.stop_reason, f"{place}.stop_reason")
    if body.error is not None:
        admission.text(body.error.code, f"{place}.error.code")
        admission.text(body.error.message, f"{place}.error.message")


_SHAPES: dict[str, type[Any]] = {
    "message_retracted": Reasoned,
    "tool_call_started": CallStarted,
    "tool_call_recorded": CallRecorded,
    "tool_call_finished": CallFinished,
    "title_changed": TitleChanged,
    "run_added": RunAdded,
    "run_returned": RunReturned,
    "run_cancel_requested": Reasoned,
    "run_step": RunStep,
    "run_ended": RunEnded,
    "question_asked": QuestionAsked,
    "question_answered": QuestionAnswered,
    "session_closed": Reasoned,
    "session_restored": Reasoned,
    "session_expired": SessionExpired,
    "session_transferred": SessionTransferred,
    "context_threshold": ContextThreshold,
}
_BODIES: dict[str, Callable[[Any, Admission, str], None]] = {
    "message_retracted": _reasoned,
    "tool_call_started": _called,
    "tool_call_recorded": _called,
    "tool_call_finished": _ended_call,
    "title_changed": _titled,
    "run_added": _added,
    "run_returned": _reasoned,
    "run_cancel_requested": _reasoned,
    "run_step": _stepped,
    "run_ended": _ended,
    "question_asked": _asked,
    "question_answered": _answered,
    "session_closed": _reasoned,
    "session_restored": _reasoned,
    "session_expired": _expired,
    "session_transferred": _transferred,
}
