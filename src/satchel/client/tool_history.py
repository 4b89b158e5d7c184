"""Tool history over HTTP."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from satchel.access import checked_filters, checked_flag, checked_limit, checked_whole
from satchel.client.pages import in_an_address
from satchel.client.reading import RemoteReading, checked_cursor, path_of
from satchel.client.snapshots import call_from, page_from
from satchel.domain.ids import checked_id
from satchel.domain.page import Page
from satchel.domain.run import Attempt
from satchel.domain.tool_call import ToolCall
from satchel.sessions.calls import admit_outcome, checked_step, is_ok
from satchel.sessions.pages import is_newest_first


class RemoteToolHistory(RemoteReading):
    """See satchel.sessions.tool_history.SessionToolHistory."""

    async def append_tool_history(
        self,
        session_id: str,
        call: Mapping[str, Any],
        *,
        attempt: Attempt | None = None,
        expected_version: int | None = None,
        idempotency_key: str | None = None,
    ) -> ToolCall:
        """See satchel.SessionManager.append_tool_history."""
        ok, error = is_ok(call), call.get("error")
        body = self._call_fields(call.get("tool"), call.get("arguments"), call.get("tool_call_id"))
        body["step"] = checked_step(call.get("step"), attempt, field="call", limits=self._server.limits)
        body["ok"] = ok
        if "result" in call:
            body["result"] = self._outcome(call["result"], "result")
        if error is not None:
            body["error"] = self._outcome(error, "error")
        return await self._written(session_id, "", body, attempt, expected_version, idempotency_key)

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
        """See satchel.SessionManager.start_tool_call."""
        body = self._call_fields(tool, arguments, tool_call_id) | {
            "step": checked_step(step, attempt, field="step", limits=self._server.limits)
        }
        call = await self._written(session_id, "", body, attempt, expected_version, idempotency_key)
        # What was called under this step before is given again, whatever the key.
        return call if call.is_open else msgspec.structs.replace(call, replayed=True)

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
        """See satchel.SessionManager.finish_tool_call."""
        checked_whole(seq, field="seq", least=1)
        checked_flag(cancelled, field="cancelled")
        body: dict[str, Any] = {"cancelled": cancelled}
        if error is not None:
            body["error"] = self._outcome(error, "error")
        elif not cancelled:
            body["result"] = self._outcome(result, "result")
        verb = f"/{in_an_address(seq)}/result"
        return await self._written(session_id, verb, body, attempt, expected_version, idempotency_key, call=seq)

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
        """See satchel.SessionManager.tool_history."""
        limits = self._server.limits
        checked_filters(limits, run_id=run_id, tool=tool, tool_call_id=tool_call_id)
        if is_open is not None:
            checked_flag(is_open, field="is_open")
        checked_limit(limit, most=limits.page)
        is_newest_first(order)
        query = {
            "run_id": run_id,
            "tool": tool,
            "tool_call_id": tool_call_id,
            "is_open": is_open,
            "order": order,
            "limit": limit,
            "cursor": checked_cursor(cursor),
        }
        path = path_of(session_id) + "/tool-history"
        reply = await self._server.read(path, query=query, about={"session_id": session_id})
        return page_from(reply.body, call_from)

    async def _written(
        self,
        session_id: str,
        verb: str,
        body: Mapping[str, Any],
        attempt: Attempt | None,
        expected_version: int | None,
        idempotency_key: str | None,
        **about: Any,
    ) -> ToolCall:
        reply = await self._server.write(
            "POST",
            f"{path_of(session_id)}/tool-history{verb}",
            body,
            about={"session_id": session_id, **about},
            attempt=attempt,
            expected_version=expected_version,
            idempotency_key=idempotency_key,
        )
        return call_from(reply.body, replayed=reply.replayed)

    def _call_fields(self, tool: object, arguments: object, tool_call_id: object) -> dict[str, Any]:
        limits = self._server.limits
        if tool_call_id is not None:
            checked_id(tool_call_id, field="tool_call_id", limits=limits)
        return {
            "tool": checked_id(tool, field="tool", limits=limits),
            "arguments": self._outcome(arguments, "arguments"),
            "tool_call_id": tool_call_id,
        }

    def _outcome(self, value: object, field: str) -> msgspec.Raw:
        return msgspec.Raw(admit_outcome(value, field=field, limits=self._server.limits))
