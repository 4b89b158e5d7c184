"""What the model of a run asked for, and nobody has done yet, as the session has it."""

from __future__ import annotations

from satchel.domain.event import CHAT_FORMAT
from satchel.domain.message import Message
from satchel.domain.pending import PendingCall, asked_calls, pending_calls
from satchel.engine import RunContext

PAGE = 200


async def pending_of(ctx: RunContext) -> tuple[PendingCall, ...]:
    """See satchel.engine.RunContext.pending_calls."""
    answer, answered = await _newest_answer(ctx)
    if answer is None or all(call.label in answered for call in asked_calls(answer.data)):
        return ()
    is_open, lost = await _begun(ctx, after=answer.seq)
    return pending_calls(answer.data, answer.seq, answered=answered | is_open, lost=lost)


async def _newest_answer(ctx: RunContext) -> tuple[Message | None, set[str]]:
    """With the labels of the results that came after it."""
    answered: set[str] = set()
    cursor: str | None = None
    while True:
        page = await ctx.messages(run_id=ctx.run.run_id, order="desc", limit=PAGE, cursor=cursor)
        for message in page.items:
            if message.format != CHAT_FORMAT:
                continue
            if message.role == "tool":
                answered.add(message.tool_call_id or "")
            elif message.role == "assistant" and message.status != "interrupted":
                return message, answered
        cursor = page.next
        if cursor is None:
            return None, answered


async def _begun(ctx: RunContext, *, after: int) -> tuple[set[str], set[str]]:
    """The labels of this run's calls since then that are open, and of those that were left in the middle: what they had done by
    then is done."""
    is_open: set[str] = set()
    lost: set[str] = set()
    cursor: str | None = None
    while True:
        page = await ctx.tool_history(run_id=ctx.run.run_id, order="desc", limit=PAGE, cursor=cursor)
        for call in page.items:
            if call.seq <= after:
                return is_open, lost
            if call.tool_call_id is not None and call.status in ("started", "unknown", "cancelled"):
                (is_open if call.is_open else lost).add(call.tool_call_id)
        cursor = page.next
        if cursor is None:
            return is_open, lost
