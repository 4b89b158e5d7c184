"""Messages over HTTP."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec

from satchel.access import checked_choice, checked_flag
from satchel.client.pages import in_an_address, page_query
from satchel.client.reading import RemoteReading, path_of
from satchel.client.snapshots import message_from, messages_from, page_from
from satchel.domain.message import Message, admit_message, message_id, parse_message_id
from satchel.domain.page import Page
from satchel.domain.run import Attempt
from satchel.errors import InvalidInput, LimitExceeded
from satchel.runs import checked_text


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


def _named(seq: int) -> str:
    return message_id(in_an_address(seq))
