"""What the attempt that holds a run says of it: that it lives, its steps, and its end."""

from __future__ import annotations

from typing import Any

import msgspec

from satchel.access import Access, checked_attempt, request
from satchel.domain.decisions.runs import AddStep, EndRun, HandBackRun, RenewRun
from satchel.domain.run import Attempt, Run, RunError, RunStatus, Usage
from satchel.runs.checks import check_tokens, checked_duration, checked_text
from satchel.runs.written import run_written


class RunAttempts:
    """Methods for the attempt that holds a run."""

    _access: Access

    async def renew_run(self, session_id: str, attempt: Attempt) -> bool:
        """Move the lease on. True: somebody asked the run to stop. Raises RunFenced when it is lost, and for a child run: it
        lives under its parent's lease."""
        checked_attempt(attempt)
        common = self._access.common(session_id, None, None, attempt) | {"key": None}
        return (await self._access.submit(RenewRun(**common))).value

    async def add_step(
        self,
        session_id: str,
        attempt: Attempt,
        name: str,
        *,
        input_tokens: int = 0,
        output_tokens: int = 0,
        total_tokens: int = 0,
        duration_ms: int | None = None,
        error: str | None = None,
        expected_version: int | None = None,
        idempotency_key: str | None = None,
    ) -> Run:
        """One model call of a run, with its tokens as the provider counts them; a total of 0 is the sum of the others.
        (A tool call counts itself.)"""
        checked_attempt(attempt)
        checked_text(name, field="name")
        check_tokens(input_tokens, output_tokens, total_tokens)
        usage = Usage(input_tokens, output_tokens, total_tokens or input_tokens + output_tokens)
        step: dict[str, Any] = {"kind": "model", "name": name}
        step |= {name: getattr(usage, name) for name in ("input_tokens", "output_tokens", "total_tokens")}
        if duration_ms is not None:
            step["duration_ms"] = checked_duration(duration_ms)
        if error is not None:
            step["error"] = checked_text(error, field="error")
        body = msgspec.json.encode(step)
        decision = AddStep(
            **self._access.common(session_id, idempotency_key, expected_version, attempt),
            fingerprint=request("add_step", attempt.run_id, body),
            run_id=attempt.run_id,
            body=body,
            usage=usage,
        )
        return await run_written(self._access, decision)

    async def complete_run(
        self,
        session_id: str,
        attempt: Attempt,
        *,
        stop_reason: str = "end_turn",
        expected_version: int | None = None,
        idempotency_key: str | None = None,
    ) -> Run:
        """COMPLETED. The first terminal commit wins: RunFenced when the run ended before, or is another attempt's."""
        return await self._end(session_id, attempt, "COMPLETED", stop_reason, None, expected_version, idempotency_key)

    async def fail_run(
        self,
        session_id: str,
        attempt: Attempt,
        *,
        code: str,
        message: str = "",
        stop_reason: str = "error",
        expected_version: int | None = None,
        idempotency_key: str | None = None,
    ) -> Run:
        """FAILED, with a stable ``code`` and a sentence."""
        error = RunError(code=checked_text(code, field="code"), message=checked_text(message, field="message"))
        return await self._end(session_id, attempt, "FAILED", stop_reason, error, expected_version, idempotency_key)

    async def end_cancelled_run(
        self,
        session_id: str,
        attempt: Attempt,
        *,
        stop_reason: str = "cancelled",
        expected_version: int | None = None,
        idempotency_key: str | None = None,
    ) -> Run:
        """CANCELLED, by the attempt that was asked to stop; its open calls are closed as cancelled."""
        return await self._end(session_id, attempt, "CANCELLED", stop_reason, None, expected_version, idempotency_key)

    async def hand_back_run(
        self,
        session_id: str,
        attempt: Attempt,
        *,
        expected_version: int | None = None,
        idempotency_key: str | None = None,
    ) -> Run:
        """By the attempt that holds it and will not finish it: READY again, with its turn, if it has attempts left; else
        FAILED with ``worker_lost`` (CANCELLED, if it was asked to stop). Its open calls are closed as unknown."""
        checked_attempt(attempt)
        decision = HandBackRun(
            **self._access.common(session_id, idempotency_key, expected_version, attempt),
            fingerprint=request("hand_back_run", attempt.run_id, attempt.attempt),
            run_id=attempt.run_id,
        )
        return await run_written(self._access, decision)

    async def _end(
        self,
        session_id: str,
        attempt: Attempt,
        status: RunStatus,
        stop_reason: str,
        error: RunError | None,
        expected_version: int | None,
        idempotency_key: str | None,
    ) -> Run:
        checked_attempt(attempt)
        checked_text(stop_reason, field="stop_reason")
        why = None if error is None else msgspec.json.encode(error)
        decision = EndRun(
            **self._access.common(session_id, idempotency_key, expected_version, attempt),
            fingerprint=request("end_run", attempt.run_id, attempt.attempt, status, stop_reason, why),
            run_id=attempt.run_id,
            status=status,
            stop_reason=stop_reason,
            error=error,
            limits=self._access.limits,
        )
        return await run_written(self._access, decision)
