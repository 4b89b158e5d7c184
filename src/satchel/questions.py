"""Asking a human, and answering: what RunManager does, checked and handed in as decisions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from satchel.access import Access, request
from satchel.answered.runs import run_as_answered
from satchel.domain.bodies import QuestionAnswered, read_body
from satchel.domain.clock import SECOND
from satchel.domain.decisions.questions import AnswerRun, AskQuestion, QuestionMoved
from satchel.domain.event import Event
from satchel.domain.ids import checked_id
from satchel.domain.json_text import admit_value, decode, kind_of
from satchel.domain.limits import Limits
from satchel.domain.question import APPROVAL, APPROVAL_FORM, PendingQuestion
from satchel.domain.rights import may_see
from satchel.domain.run import Attempt, Run
from satchel.domain.spelling import Spellings, spellings
from satchel.errors import InvalidInput, LimitExceeded, SatchelError, StoreCorrupt
from satchel.patience import patiently
from satchel.schemas import check_schema, refusal_of
from satchel.store import Snapshot

T = TypeVar("T")

EXPIRES_IN = 7 * 86_400.0  # seconds
LONGEST_EXPIRY = 10 * 365 * 86_400
LONGEST_LOOK = 5.0  # seconds between two looks whether there is an answer, when no hint comes


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """``run`` is WAITING, or the question was answered before: then ``answer`` is that JSON value."""

    run: Run
    is_answered: bool
    answer: Any = None
    spelt: Spellings = {}  # an answer that Python's numbers would spell otherwise


async def ask(
    access: Access,
    common: dict[str, Any],
    attempt: Attempt,
    name: str,
    question: str,
    *,
    schema: Mapping[str, Any] | None,
    expires_in: float,
    here: bool,
) -> Asked:
    """See RunManager.ask_question. ``common``: the fields that every decision has."""
    limits = access.limits
    checked_id(name, field="name", limits=limits)
    checked_question(question, limits=limits)
    kept = None if schema is None else admit_schema(schema, limits=limits)
    if kept is not None:
        check_schema(decode(kept), field="schema")
    decision = AskQuestion(
        **common,
        fingerprint=request("ask_question", attempt.run_id, attempt.attempt, name, question, kept, int(here)),
        run_id=attempt.run_id,
        name=name,
        question=question,
        schema=kept,
        expires_in=checked_expiry(expires_in),
        here=here,
        limits=limits,
    )
    done = await access.submit(decision)
    run = await run_as_answered(access, common["ref"], done)
    if len(done.answer.seqs) < 3:
        return Asked(run=run, is_answered=False)
    ref, seq = common["ref"], done.answer.seqs[2]
    # Nothing is settled here: a lease that is over is not taken from the attempt that asks.
    page = await access.store.events(ref, after=seq - 1, before=seq + 1, limit=1)
    access.checked(ref, page.record)
    text, answer = _answer_in(page.events, seq, session_id=ref.session_id)
    return Asked(run=run, is_answered=True, answer=answer, spelt=spellings((("answer", text),)))


def _answer_in(events: Sequence[Event], seq: int, *, session_id: str) -> tuple[bytes, Any]:
    """Raises StoreCorrupt: what was answered and cannot be read is neither nothing nor asked again."""
    try:
        (event,) = events
        text = bytes(read_body(event.body, QuestionAnswered).answer)
        return text, decode(text)
    except ValueError as wrong:
        raise StoreCorrupt(f"event {seq} of session {session_id}") from wrong


async def give_answer(access: Access, common: dict[str, Any], run_id: str, value: object, *, name: str | None) -> Run:
    """See RunManager.answer_run."""
    limits = access.limits
    if name is not None:
        checked_id(name, field="name", limits=limits)
    body = admit_value(value, field="answer", limits=limits)
    checked_answer_size(body, limits=limits)
    while True:
        pending = await _pending(access, common, run_id)
        refused: SatchelError | None = None
        if pending is not None and bytes(pending.schema):
            refused = await _refusal(bytes(pending.schema), body)
        decision = AnswerRun(
            **common,
            fingerprint=request("answer_run", run_id, name, body),
            run_id=run_id,
            answer=body,
            name=name,
            question_seq=None if pending is None else pending.seq,
            refusal=refused,
        )
        try:
            done = await access.submit(decision)
            return await run_as_answered(access, common["ref"], done)
        except QuestionMoved:  # another question is pending by now
            continue


async def _refusal(schema: bytes, answer: bytes) -> SatchelError | None:
    refused = await refusal_of(schema, answer, field="answer")
    if isinstance(refused, InvalidInput) and refused.field == "answer" and decode(schema) == APPROVAL:
        return InvalidInput(f"{refused.reason}; {APPROVAL_FORM}", field="answer", pointer=refused.pointer)
    return refused


async def _pending(access: Access, common: dict[str, Any], run_id: str) -> PendingQuestion | None:
    """What the run waits for, if the caller may see that. It settles nothing and refuses nothing: the decision does."""
    page = await access.store.runs(common["ref"], run_id=run_id, limit=1)
    if page.record is None or not may_see(access.principal, page.record) or not page.runs:
        return None
    return page.runs[0].question


async def when_back(call: Callable[[], Awaitable[T]], *, lease: float) -> T:
    """What ``call`` answers, once the store is there: a question lasts longer than most troubles of a store. It is made again
    as it is, with its key, also when its outcome is unknown."""
    return await patiently(call, is_over=lambda: False, longest=min(1.0, lease / 10))


async def is_answered(access: Access, session_id: str, run_id: str, *, lease: float) -> bool:
    """Until the run waits no more. True: it was answered, and is this caller's to start. The lease is renewed elsewhere."""
    ref = access.ref(session_id)

    async def fetch() -> Snapshot:
        return await access.store.snapshot(ref, working_memory=False, metadata=False)

    while True:
        page, record = await when_back(lambda: access.read(ref, fetch), lease=lease)
        turn = record.turn
        if turn is None or turn.run_id != run_id or turn.status != "WAITING":
            return turn is not None and turn.run_id == run_id and turn.status == "READY"
        patience = min(LONGEST_LOOK, lease / 3)
        if turn.expires_at is not None:
            patience = min(patience, max(0.01, (turn.expires_at - page.clock.now) / SECOND))
        await access.store.wait(ref, record.last_seq, patience)


def checked_question(question: object, *, limits: Limits, field: str = "question") -> str:
    """Text of several lines. Raises InvalidInput, LimitExceeded."""
    if type(question) is not str:
        raise InvalidInput(f"must be text, not {kind_of(question)}", field=field)
    if not question.strip():
        raise InvalidInput("must not be empty", field=field)
    try:
        size = len(question.encode())
    except UnicodeEncodeError:
        raise InvalidInput("holds a lone surrogate, which is not text", field=field) from None
    if size > limits.question:
        raise LimitExceeded(field=field, size=size, limit=limits.question, setting="limits.question")
    for char in question:
        if not char.isprintable() and char not in "\n\t\r" and (ord(char) < 32 or 127 <= ord(char) < 160):
            raise InvalidInput(f"holds the control character U+{ord(char):04X}", field=field)
    return question


def _checked_schema(schema: object, limits: Limits) -> bytes:
    kept = admit_schema(schema, limits=limits)
    check_schema(decode(kept), field="schema")
    return kept


def admit_schema(schema: object, *, limits: Limits) -> bytes:
    """A mapping, or the JSON text of one, as it will be kept; whether it is a schema is not looked at. Raises InvalidInput,
    LimitExceeded."""
    kept = admit_value(schema, field="schema", limits=limits) if isinstance(schema, msgspec.Raw) else b""
    found = decode(kept) if kept else schema
    if not isinstance(found, Mapping):
        raise InvalidInput(f"must be an object (a JSON Schema), not {kind_of(found)}", field="schema")
    kept = kept or admit_value(schema, field="schema", limits=limits)
    checked_schema_size(kept, limits=limits)
    return kept


def checked_schema_size(kept: bytes, *, limits: Limits, field: str = "schema") -> None:
    if len(kept) > limits.question_schema:
        raise LimitExceeded(field=field, size=len(kept), limit=limits.question_schema, setting="limits.question_schema")


def checked_answer_size(body: bytes, *, limits: Limits, field: str = "answer") -> None:
    if len(body) > limits.answer:
        raise LimitExceeded(field=field, size=len(body), limit=limits.answer, setting="limits.answer")


def checked_expiry(seconds: float) -> int:
    """Microseconds. Raises InvalidInput."""
    if type(seconds) not in (int, float) or not 0.001 <= seconds <= LONGEST_EXPIRY:
        raise InvalidInput(f"must be seconds, from 0.001 to {LONGEST_EXPIRY}", field="expires_in")
    return int(seconds * SECOND)
