"""One task execution inside a session."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal, get_args

import msgspec

from satchel.domain.clock import rfc3339, to_datetime
from satchel.domain.frozen import in_brief
from satchel.domain.json_text import NO_JSON, decode
from satchel.domain.question import AnsweredQuestion, PendingQuestion, Question
from satchel.domain.spelling import Spellings, spellings

RunStatus = Literal["READY", "RUNNING", "WAITING", "COMPLETED", "FAILED", "CANCELLED"]
STATUSES: tuple[RunStatus, ...] = get_args(RunStatus)
OnBusy = Literal["reject", "queue", "cancel"]
MemoryOf = Literal["session", "run"]  # whose working memory a run writes to

TERMINAL: frozenset[RunStatus] = frozenset({"COMPLETED", "FAILED", "CANCELLED"})
LEGAL: dict[RunStatus, frozenset[RunStatus]] = {
    "READY": frozenset({"RUNNING", "CANCELLED"}),
    "RUNNING": frozenset({"WAITING", "COMPLETED", "FAILED", "CANCELLED", "READY"}),
    "WAITING": frozenset({"READY", "FAILED", "CANCELLED"}),
    "COMPLETED": frozenset(),
    "FAILED": frozenset(),
    "CANCELLED": frozenset(),
}


class Usage(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Tokens, as the model's provider counts them."""

    input_tokens: int = 0
    output_tokens: int = 0
    total_tokens: int = 0

    def plus(self, other: Usage) -> Usage:
        return Usage(
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            total_tokens=self.total_tokens + (other.total_tokens or other.input_tokens + other.output_tokens),
        )


class RunError(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Why a run failed: a stable ``code`` (``worker_lost``, ``agent_error``, …) and a sentence."""

    code: str
    message: str = ""


class RunRow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A run as a store keeps it. ``input`` waits here until the run starts; then it is the message
    ``input_seq``, and is joined when read. ``layer``, ``layer_base`` and ``layer_version``: see domain.layer.
    ``added_seq``: of a child run, the seq of the event that added it."""

    run_id: str
    number: int
    status: RunStatus
    created_at: int
    version: int
    goal: str = ""
    agent: str = ""
    start_time: int | None = None
    end_time: int | None = None
    steps: int = 0
    usage: Usage = Usage()
    error: RunError | None = None
    stop_reason: str | None = None
    attempt: int = 0
    max_attempts: int = 1
    parent_run_id: str | None = None
    memory: MemoryOf = "session"
    layer_base: dict[str, str] = {}
    layer_version: int = 0
    added_seq: int = 0
    input_seq: int | None = None
    input_format: str | None = None
    input_actor: str = ""  # who added the run: the input is theirs, whoever starts it
    input_weight: int | None = None  # tokens of the input, where a counter of the caller's own gave them
    cancel_requested: bool = False
    question: PendingQuestion | None = None
    answered: tuple[AnsweredQuestion, ...] = ()
    layer: msgspec.Raw = NO_JSON
    not_merged: msgspec.Raw = NO_JSON
    metadata: msgspec.Raw = NO_JSON
    input: msgspec.Raw = NO_JSON
    input_metadata: msgspec.Raw = NO_JSON

    @property
    def has_attempts_left(self) -> bool:
        """Whether it may be lost once more. Each answer had a start of its own, and nothing was lost by it."""
        return self.attempt - len(self.answered) < self.max_attempts

    def answer_to(self, name: str) -> AnsweredQuestion | None:
        return next((one for one in self.answered if one.name == name), None)


def stored_run(row: RunRow) -> RunRow:
    """The row as it is kept: an input that is a message by now stands there alone."""
    if row.input_seq is None or row.input is NO_JSON:
        return row
    return msgspec.structs.replace(row, input=NO_JSON, input_actor="", input_weight=None, input_metadata=NO_JSON)


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """One run. ``input`` is the body of the message that it answers, or None.

    ``memory`` is ``run`` for a run with a layer of working memory of its own. ``working_memory`` is that layer while it is
    not merged, as one patch; ``not_merged`` is what stayed behind when the run completed: ``reason`` (``changed``:
    somebody else changed these fields meanwhile; ``limit``: the memory would be too large) and the ``patch`` that would
    apply it. Both are empty in all other runs. ``question`` is what a WAITING run
    waits for.
    """

    run_id: str
    number: int
    session_id: str
    version: int
    goal: str
    agent: str
    input: Any
    status: RunStatus
    created: int
    started: int | None
    ended: int | None
    steps: int
    usage: Usage
    error: RunError | None
    stop_reason: str | None
    attempt: int
    max_attempts: int
    parent_run_id: str | None
    input_seq: int | None
    cancel_requested: bool
    metadata: dict[str, Any]
    question: Question | None = None
    memory: MemoryOf = "session"
    working_memory: dict[str, Any] = {}
    not_merged: dict[str, Any] = {}
    replayed: bool = False
    spelt: Spellings = {}  # JSON of other people's that Python's numbers would spell otherwise: for to_json

    def __repr__(self) -> str:
        why = "" if self.error is None else f", error={self.error.code!r}"
        asked = "" if self.question is None else f", question={self.question.name!r}"
        return (
            f"Run(run_id={self.run_id!r}, number={self.number}, goal={in_brief(self.goal)}, agent={self.agent!r},"
            f" input={in_brief(self.input)}, status={self.status!r}{why}{asked})"
        )

    @property
    def is_terminal(self) -> bool:
        return self.status in TERMINAL

    @property
    def created_at(self) -> datetime:
        return to_datetime(self.created)

    @property
    def start_time(self) -> datetime | None:
        return None if self.started is None else to_datetime(self.started)

    @property
    def end_time(self) -> datetime | None:
        return None if self.ended is None else to_datetime(self.ended)

    @property
    def duration_ms(self) -> int | None:
        if self.started is None or self.ended is None:
            return None
        return max(0, self.ended - self.started) // 1000

    def to_dict(self) -> dict[str, Any]:
        shown = {
            "run_id": self.run_id,
            "number": self.number,
            "session_id": self.session_id,
            "version": self.version,
            "goal": self.goal,
            "agent": self.agent,
            "input": self.input,
            "input_seq": self.input_seq,
            "status": self.status,
            "created_at": rfc3339(self.created),
            "start_time": None if self.started is None else rfc3339(self.started),
            "end_time": None if self.ended is None else rfc3339(self.ended),
            "duration_ms": self.duration_ms,
            "steps": self.steps,
            "usage": {
                "input_tokens": self.usage.input_tokens,
                "output_tokens": self.usage.output_tokens,
                "total_tokens": self.usage.total_tokens,
            },
            "error": None if self.error is None else {"code": self.error.code, "message": self.error.message},
            "stop_reason": self.stop_reason,
            "attempt": self.attempt,
            "max_attempts": self.max_attempts,
            "parent_run_id": self.parent_run_id,
            "cancel_requested": self.cancel_requested,
            "question": None if self.question is None else self.question.to_dict(),
            "metadata": self.metadata,
        }
        if self.memory != "session":
            shown["memory"] = self.memory
        if self.working_memory:
            shown["working_memory"] = self.working_memory
        if self.not_merged:
            shown["not_merged"] = self.not_merged
        return shown

    def to_json(self) -> bytes:
        """:meth:`to_dict` as JSON; numbers are spelled as they were given."""
        shown = self.to_dict() | self.spelt
        if self.question is not None:
            shown["question"] = msgspec.Raw(self.question.to_json())
        return msgspec.json.encode(shown)

    @classmethod
    def from_row(cls, row: RunRow, *, session_id: str, version: int | None = None, replayed: bool = False) -> Run:
        raw_input, raw_metadata = bytes(row.input), bytes(row.metadata)
        layer, not_merged = bytes(row.layer), bytes(row.not_merged)
        return cls(
            run_id=row.run_id,
            number=row.number,
            session_id=session_id,
            version=row.version if version is None else version,
            goal=row.goal,
            agent=row.agent,
            input=decode(raw_input) if raw_input else None,
            status=row.status,
            created=row.created_at,
            started=row.start_time,
            ended=row.end_time,
            steps=row.steps,
            usage=row.usage,
            error=row.error,
            stop_reason=row.stop_reason,
            attempt=row.attempt,
            max_attempts=row.max_attempts,
            parent_run_id=row.parent_run_id,
            input_seq=row.input_seq,
            cancel_requested=row.cancel_requested,
            metadata=decode(raw_metadata) if raw_metadata else {},
            question=None if row.question is None else Question.from_pending(row.question),
            memory=row.memory,
            working_memory=decode(layer) if layer else {},
            not_merged=decode(not_merged) if not_merged else {},
            replayed=replayed,
            spelt=spellings(
                (
                    ("input", raw_input),
                    ("metadata", raw_metadata),
                    ("working_memory", layer),
                    ("not_merged", not_merged),
                )
            ),
        )


class Attempt(msgspec.Struct, frozen=True):
    """Who holds a run: carried by every write of the run and checked in the same commit."""

    run_id: str
    attempt: int
