"""What a run asks a human: one question at a time, each under a name, each answered at most once."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

import msgspec

from satchel.domain.clock import rfc3339, to_datetime
from satchel.domain.json_text import NO_JSON, decode
from satchel.domain.spelling import Spellings, spellings

EXPIRED = "question_expired"  # why a run failed whose question nobody answered

# What a human answers who is asked about a tool call: as a schema, and for people.
APPROVAL: dict[str, Any] = {
    "type": "object",
    "properties": {
        "decision": {"enum": ["approve", "deny", "edit"]},
        "arguments": {"description": "What to call the tool with instead; needed to edit."},
        "reason": {"type": "string"},
    },
    "required": ["decision"],
    "additionalProperties": False,
    "if": {"properties": {"decision": {"const": "edit"}}},
    "then": {"required": ["arguments"]},
    "else": {"properties": {"arguments": False}},
}
APPROVAL_FORM = (
    'an approval is answered with {"decision": "approve" | "deny" | "edit", "arguments"?, "reason"?}, with arguments where, and'
    " only where, they were edited"
)


class PendingQuestion(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """What a WAITING run waits for, as its row keeps it. ``seq`` is that of the event that asked; ``schema`` is JSON."""

    name: str
    question: str
    expires_at: int
    seq: int
    schema: msgspec.Raw = NO_JSON


class AnsweredQuestion(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The seqs of the two events; the bodies stand in the log."""

    name: str
    asked: int
    answered: int


class Approval(msgspec.Struct, frozen=True, kw_only=True):
    """What a human decided about a tool call. ``arguments`` are those to call it with: as they were asked about, or as
    they were edited."""

    decision: Literal["approve", "deny", "edit"]
    arguments: Any
    reason: str = ""

    @property
    def is_granted(self) -> bool:
        return self.decision != "deny"


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """What a run waits for. ``schema`` is the JSON Schema that its answer must fit, or None."""

    name: str
    question: str
    schema: Any
    expires: int
    seq: int
    spelt: Spellings = {}

    @property
    def expires_at(self) -> datetime:
        return to_datetime(self.expires)

    def to_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "question": self.question,
            "schema": self.schema,
            "expires_at": rfc3339(self.expires),
            "seq": self.seq,
        }

    def to_json(self) -> bytes:
        """:meth:`to_dict` as JSON; numbers are spelled as they were given."""
        return msgspec.json.encode(self.to_dict() | self.spelt)

    @classmethod
    def from_pending(cls, pending: PendingQuestion) -> Question:
        schema = bytes(pending.schema)
        return cls(
            name=pending.name,
            question=pending.question,
            schema=decode(schema) if schema else None,
            expires=pending.expires_at,
            seq=pending.seq,
            spelt=spellings((("schema", schema),)),
        )
