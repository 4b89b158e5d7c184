"""Limits on what a caller may store. Every one is a setting; errors name it."""

from __future__ import annotations

import msgspec

KIB = 1024
MIB = 1024 * KIB


class Limits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Sizes in bytes of UTF-8 JSON unless the name says otherwise."""

    user_message: int = 1 * MIB
    agent_message: int = 4 * MIB
    batch_messages: int = 100  # messages in one call
    batch: int = 8 * MIB
    working_memory: int = 64 * KIB
    metadata: int = 16 * KIB
    title: int = 512
    id: int = 128
    idempotency_key: int = 255
    depth: int = 64  # levels of nesting
    nodes: int = 10_000  # values in one document
    open_calls: int = 128
    open_streams: int = 8  # messages that one run says at once
    questions: int = 64  # of one run
    question: int = 8 * KIB
    question_schema: int = 16 * KIB
    answer: int = 64 * KIB
    queued_runs: int = 16
    open_children: int = 32  # child runs of the run that has the turn
    queued_input: int = 2 * MIB
    page: int = 1000  # items of one page


DEFAULT_LIMITS = Limits()

_HUGE = 1 << 40
# For what was admitted once: the limits may have been other ones then.
WRITTEN_HERE = Limits(
    agent_message=_HUGE,
    user_message=_HUGE,
    working_memory=_HUGE,
    metadata=_HUGE,
    nodes=_HUGE,
    depth=1 << 20,
    open_calls=_HUGE,
    queued_runs=_HUGE,
    questions=_HUGE,
    question=_HUGE,
    question_schema=_HUGE,
    answer=_HUGE,
    open_children=_HUGE,
)
