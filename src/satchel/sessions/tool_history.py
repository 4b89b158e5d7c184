"""Which tools were called, with what, and what came of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from satchel.access import attempt_part, checked_filters, checked_flag, checked_limit, checked_whole, request
from satchel.domain.decisions.tool_calls import FinishToolCall, RecordToolCall, StartToolCall
from satchel.domain.edit import outcome_tokens, said_outcome
from satchel.domain.ids import checked_id
from satchel.domain.page import Page, decode_cursor, encode_cursor
from satchel.domain.run import Attempt
from satchel.domain.tokens import estimate_tokens
from satchel.domain.tool_call import ToolCall, ToolCallStatus, hash_arguments
from satchel.sessions.calls import admit_outcome, checked_step, is_ok
from satchel.sessions.pages import is_newest_first
from satchel.sessions.reading import SessionReading
from satchel.store import CallPage


class SessionToolHistory(SessionReading):
    """Methods for a session's tool calls."""

    async def append_tool_history(
        self,
        session_id: str,
        call: Mapping[str, Any],
        *,
        attempt: Attempt | None = None,
        expected_version: int | None = None,
        idempotency_key: str | None = None,
    ) -> ToolCall:
        """One stroke, when the call and its outcome are both there.

        ``call``: ``tool``; and if they are known ``arguments``, ``ok`` (true unless an ``error`` is given), ``result``,
        ``error``, ``tool_call_id``, ``step`` (see start_tool_call). What a failed call gave back is its ``error``: its ``result`` if it has no other. Raises as append_message; ToolCallOpen if a call of this label is open.
        """
        ok, error = is_ok(call), call.get("error")
        fields = self._call_fields(call.get("tool"), call.get("arguments"), call.get("tool_call_id"))
        fields["step"] = checked_step(call.get("step"), attempt, field="call", limits=self._access.limits)
        status: ToolCallStatus = "succeeded" if ok else "failed"
        result = admit_outcome(call["result"], field="result", limits=self._access.limits) if "result" in call else None
        failure = None if error is None else admit_outcome(error, field="error", limits=self._access.limits)
        if not ok and failure is None:  # what a failed call gave back says how it failed
            result, failure = None, result
        decision = RecordToolCall(
            **self._access.common(session_id, idempotency_key, expected_version, attempt),
            **fields,
            fingerprint=request(
                "append_tool_history",
                attempt_part(attempt),
                fields["tool"],
                fields["arguments"],
                fields["tool_call_id"],
                fields["step"],
                status,
                result,
                failure,
            ),
            status=status,
            result=result,
            error=failure,
            tokens=self._said_tokens(status, result, failure),
            limits=self._access.limits,
        )
        return (await self._access.submit(decision)).value

    async def start_tool_call(
        self,
        session_id: str,
        tool: str,
        arguments: object = None,
        *,
        tool_call_id: str | None = None,
        step: str | None = None,
        attempt: Attempt | None = None,
        expected_version: int | None = None,
        idempotency_key: str | None = None,
    ) -> ToolCall:
        """Before the tool runs: whatever happens then, the call is in the history. ``repeat_of`` names an equal call made
        before. Finish it with :meth:`finish_tool_call` and its ``seq``.

        ``step`` names it within the run of ``attempt``: if a call of that name has succeeded or failed there, that call is
        given, and nothing is written; one that was cancelled or is unknown is made again. Raises StepOpen, ToolCallOpen.
        """
        fields = self._call_fields(tool, arguments, tool_call_id) | {
            "step": checked_step(step, attempt, field="step", limits=self._access.limits)
        }
        decision = StartToolCall(
            **self._access.common(session_id, idempotency_key, expected_version, attempt),
            **fields,
            fingerprint=request(
                "start_tool_call", attempt_part(attempt), fields["tool"], fields["arguments"], tool_call_id, step
            ),
            limits=self._access.limits,
        )
        return (await self._access.submit(decision)).value

    async def finish_tool_call(
        self,
        session_id: str,
        seq: int,
        *,
        result: object = None,
        error: object = None,
        cancelled: bool = False,
        attempt: Attempt | None = None,
        expected_version: int | None = None,
        idempotency_key: str | None = None,
    ) -> ToolCall:
        """After the tool ran: succeeded with ``result``, failed with ``error``, or ``cancelled``.

        Raises ToolCallNotFound, ToolCallEnded, RunFenced (the call belongs to a run, and this is not its attempt).
        """
        checked_whole(seq, field="seq", least=1)
        checked_flag(cancelled, field="cancelled")
        status: ToolCallStatus = "cancelled" if cancelled else "succeeded" if error is None else "failed"
        kept = None if status != "succeeded" else admit_outcome(result, field="result", limits=self._access.limits)
        failure = None if error is None else admit_outcome(error, field="error", limits=self._access.limits)
        decision = FinishToolCall(
            **self._access.common(session_id, idempotency_key, expected_version, attempt),
            fingerprint=request("finish_tool_call", attempt_part(attempt), seq, status, kept, failure),
            seq=seq,
            status=status,
            result=kept,
            error=failure,
            tokens=self._said_tokens(status, kept, failure),
        )
        return (await self._access.submit(decision)).value

    def _call_fields(self, tool: object, arguments: object, tool_call_id: object) -> dict[str, Any]:
        name = checked_id(tool, field="tool", limits=self._access.limits)
        if tool_call_id is not None:
            checked_id(tool_call_id, field="tool_call_id", limits=self._access.limits)
        body = admit_outcome(arguments, field="arguments", limits=self._access.limits)
        return {
            "tool": name,
            "arguments": body,
            "arguments_hash": hash_arguments(name, arguments),
            "tool_call_id": tool_call_id,
        }

    def _said_tokens(self, status: ToolCallStatus, result: bytes | None, error: bytes | None) -> int | None:
        """Of the message that may say this outcome, by a counter of the caller's own."""
        if status == "cancelled" or self._access.count_tokens is estimate_tokens:
            return None
        return outcome_tokens(said_outcome(status, result, error), self._access.count_tokens)

    async def tool_history(
        self,
        session_id: str,
        *,
        run_id: str | None = None,
        tool: str | None = None,
        tool_call_id: str | None = None,
        is_open: bool | None = None,
        order: Literal["asc", "desc"] = "asc",
        limit: int = 100,
        cursor: str | None = None,
    ) -> Page[ToolCall]:
        """Tool calls in the order of their starts, or newest first."""
        checked_filters(self._access.limits, run_id=run_id, tool=tool, tool_call_id=tool_call_id)
        if is_open is not None:
            checked_flag(is_open, field="is_open")
        ref = self._access.ref(session_id)
        checked_limit(limit, most=self._access.limits.page)
        newest_first = is_newest_first(order)
        parts: tuple[str, ...] = (
            "tool_history",
            *ref,
            self._access.principal.side,
            run_id or "",
            tool or "",
            tool_call_id or "",
        )
        parts += (str(is_open), order)
        position = None if cursor is None else int(decode_cursor(cursor, *parts, shape=(int,))[0])

        async def fetch() -> CallPage:
            return await self._access.store.tool_calls(
                ref,
                run_id=run_id,
                tool=tool,
                tool_call_id=tool_call_id,
                is_open=is_open,
                after=0 if newest_first or position is None else position,
                before=position if newest_first else None,
                newest_first=newest_first,
                limit=limit + 1,
            )

        page, _ = await self._access.read(ref, fetch)
        shown = tuple(ToolCall.from_row(row) for row in page.tool_calls[:limit])
        more = encode_cursor((shown[-1].seq,), *parts) if len(page.tool_calls) > limit else None
        return Page(shown, more)
