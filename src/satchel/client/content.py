"""What a session holds, over HTTP: messages, tool history, working memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec

from satchel.access import checked_choice, checked_filters, checked_flag, checked_limit, checked_whole
from satchel.client.reading import RemoteReading, checked_cursor, path_of
from satchel.client.snapshots import call_from, memory_from_json, message_from, messages_from, page_from
from satchel.domain.ids import checked_id
from satchel.domain.json_text import admit, admit_value, kind_of
from satchel.domain.memory import WorkingMemory, admit_memory, admit_patch
from satchel.domain.message import Message, admit_message, message_id, parse_message_id
from satchel.domain.page import Page
from satchel.domain.run import Attempt
from satchel.domain.tool_call import ToolCall
from satchel.errors import InvalidInput, LimitExceeded
from satchel.runs import checked_text
from satchel.sessions.pages import is_newest_first

STEP_NEEDS_RUN = "a step belongs to a run: give its attempt"


class RemoteMessages(RemoteReading):
    """See satchel.sessions.messages.SessionMessages."""

    async def append_message(
        self,
        session_id: str,
        message: Mapping[str, Any] | str | bytes,
        *,
        metadata: Mapping[str, Any] | None = None,
        format: str | None = None,
        status: Literal["complete", "interrupted"] = "complete",
        attempt: Attempt | None = None,
        expected_version: int | None = None,
        idempotency_key: str | None = None,
    ) -> Message:
        """See satchel.SessionManager.append_message."""
        checked_choice(status, ("complete", "interrupted"), field="status")
        draft = admit_message(message, metadata=metadata, format=format, limits=self._server.limits)
        body: dict[str, Any] = {"message": msgspec.Raw(draft.body), "format": format, "status": status}
        if draft.metadata is not None:
            body["metadata"] = msgspec.Raw(draft.metadata)
        reply = await self._server.write(
            "POST",
            path_of(session_id) + "/messages",
            body,
            about={"session_id": session_id},
            attempt=attempt,
            expected_version=expected_version,
            idempotency_key=idempotency_key,
        )
        return message_from(reply.body, replayed=reply.replayed)

    async def append_messages(
        self,
        session_id: str,
        messages: Sequence[Mapping[str, Any] | str | bytes],
        *,
        format: str | None = None,
        attempt: Attempt | None = None,
        expected_version: int | None = None,
        idempotency_key: str | None = None,
    ) -> tuple[Message, ...]:
        """See satchel.SessionManager.append_messages."""
        limits = self._server.limits
        if not isinstance(messages, (list, tuple)) or not messages:
            raise InvalidInput(
                'must be a list of one message or more, each like {"role": "user", "content": "…"}', field="messages"
            )
        if len(messages) > limits.batch_messages:
            raise LimitExceeded(
                field="messages",
                size=len(messages),
                limit=limits.batch_messages,
                setting="limits.batch_messages",
                unit="messages",
            )
        drafts = [
            admit_message(
                message,
                format=format,
                limits=limits,
                field="message" if len(messages) == 1 else f"messages[{index}]",
            )
            for index, message in enumerate(messages)
        ]
        size = sum(len(draft.body) for draft in drafts)
        if size > limits.batch:
            raise LimitExceeded(field="messages", size=size, limit=limits.batch, setting="limits.batch")
        reply = await self._server.write(
            "POST",
            path_of(session_id) + "/messages",
            {"messages": [msgspec.Raw(draft.body) for draft in drafts], "format": format},
            about={"session_id": session_id},
            attempt=attempt,
            expected_version=expected_version,
            idempotency_key=idempotency_key,
        )
        return messages_from(reply.body, replayed=reply.replayed)

    async def retract_message(
        self,
        session_id: str,
        message_id: str | int,
        *,
        reason: str = "",
        expected_version: int | None = None,
        idempotency_key: str | None = None,
    ) -> Message:
        """See satchel.SessionManager.retract_message."""
        seq = parse_message_id(message_id)
        checked_text(reason, field="reason")
        reply = await self._server.write(
            "POST",
            f"{path_of(session_id)}/messages/{_named(seq)}/retract",
            {"reason": reason},
            about={"session_id": session_id, "message": seq},
            expected_version=expected_version,
            idempotency_key=idempotency_key,
        )
        return message_from(reply.body, replayed=reply.replayed)

    async def messages(
        self,
        session_id: str,
        *,
        after: int = 0,
        before: int | None = None,
        run_id: str | None = None,
        include_retracted: bool = False,
        order: Literal["asc", "desc"] = "asc",
        limit: int = 100,
        cursor: str | None = None,
    ) -> Page[Message]:
        """See satchel.SessionManager.messages."""
        checked_flag(include_retracted, field="include_retracted")
        query = page_query(self, after, before, run_id, order, limit, cursor) | {"include_retracted": include_retracted}
        path = path_of(session_id) + "/messages"
        reply = await self._server.read(path, query=query, about={"session_id": session_id})
        return page_from(reply.body, Message.from_json)


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
        if not isinstance(call, Mapping):
            raise InvalidInput(f"must be an object, not {kind_of(call)}", field="call")
        known = {"tool", "arguments", "ok", "result", "error", "tool_call_id", "step"}
        for name in call:
            if name not in known:
                raise InvalidInput(f"is unknown; one of {', '.join(sorted(known))}", field="call", pointer=f"/{name}")
        error = call.get("error")
        ok = call.get("ok", error is None)
        if type(ok) is not bool:
            raise InvalidInput("must be true or false", field="call", pointer="/ok")
        body = self._call_fields(call.get("tool"), call.get("arguments"), call.get("tool_call_id"))
        body["step"] = self._step(call.get("step"), attempt, "call")
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
        body = self._call_fields(tool, arguments, tool_call_id) | {"step": self._step(step, attempt, "step")}
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
        verb = f"/{_in_an_address(seq)}/result"
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

    def _step(self, step: object, attempt: Attempt | None, field: str) -> str | None:
        if step is None:
            return None
        if attempt is None:
            raise InvalidInput(STEP_NEEDS_RUN, field=field)
        return checked_id(step, field=field, limits=self._server.limits)

    def _outcome(self, value: object, field: str) -> msgspec.Raw:
        limits = self._server.limits
        body = admit_value(value, field=field, limits=limits)
        if len(body) > limits.agent_message:
            raise LimitExceeded(field=field, size=len(body), limit=limits.agent_message, setting="limits.agent_message")
        return msgspec.Raw(body)


class RemoteMemory(RemoteReading):
    """See satchel.sessions.memory.SessionMemory."""

    async def get_working_memory(self, session_id: str, *, run_id: str | None = None) -> WorkingMemory:
        """See satchel.SessionManager.get_working_memory."""
        path = path_of(session_id) + "/working-memory"
        checked_filters(self._server.limits, run_id=run_id)
        about = {"session_id": session_id, "run_id": run_id}
        return memory_from_json((await self._server.read(path, query={"run_id": run_id}, about=about)).body)

    async def update_working_memory(
        self,
        session_id: str,
        patch: Mapping[str, Any],
        *,
        attempt: Attempt | None = None,
        expected_version: int | None = None,
        idempotency_key: str | None = None,
    ) -> WorkingMemory:
        """See satchel.SessionManager.update_working_memory."""
        admit_patch(patch, limits=self._server.limits)
        return await self._remember(
            "PATCH",
            session_id,
            admit(patch, field="patch", limits=self._server.limits)[0],
            attempt,
            expected_version,
            idempotency_key,
        )

    async def replace_working_memory(
        self,
        session_id: str,
        memory: WorkingMemory | Mapping[str, Any],
        *,
        attempt: Attempt | None = None,
        expected_version: int | None = None,
        idempotency_key: str | None = None,
    ) -> WorkingMemory:
        """See satchel.SessionManager.replace_working_memory."""
        given: Any = memory.to_json() if isinstance(memory, WorkingMemory) else memory
        admit_memory(given, limits=self._server.limits)
        return await self._remember(
            "PUT",
            session_id,
            admit(given, field="working_memory", limits=self._server.limits)[0],
            attempt,
            expected_version,
            idempotency_key,
        )

    async def _remember(
        self,
        method: Literal["PUT", "PATCH"],
        session_id: str,
        body: bytes,
        attempt: Attempt | None,
        expected_version: int | None,
        idempotency_key: str | None,
    ) -> WorkingMemory:
        reply = await self._server.write(
            method,
            path_of(session_id) + "/working-memory",
            body,
            about={"session_id": session_id},
            attempt=attempt,
            expected_version=expected_version,
            idempotency_key=idempotency_key,
        )
        return memory_from_json(reply.body, replayed=reply.replayed)


def page_query(
    manager: RemoteReading,
    after: int,
    before: int | None,
    run_id: str | None,
    order: str,
    limit: int,
    cursor: str | None,
) -> dict[str, Any]:
    """Of a page of the log. Raises InvalidInput."""
    limits = manager._server.limits  # noqa: SLF001  # a part of the same manager
    checked_whole(after, field="after")
    if before is not None:
        checked_whole(before, field="before")
    checked_filters(limits, run_id=run_id)
    is_newest_first(order)
    checked_limit(limit, most=limits.page)
    return {
        "after": after,
        "before": before,
        "run_id": run_id,
        "order": order,
        "limit": limit,
        "cursor": checked_cursor(cursor),
    }


def _named(seq: int) -> str:
    return message_id(_in_an_address(seq))


def _in_an_address(seq: int) -> int:
    """A seq that no session reaches is as unknown as one beyond the digits that a service reads."""
    return min(seq, 10**18 - 1)
