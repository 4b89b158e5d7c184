"""What was said: appended, taken back, read page by page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from satchel.access import attempt_part, checked_choice, checked_flag, draft_parts, request
from satchel.domain.decisions.messages import AppendMessages, RetractMessage
from satchel.domain.event import MessageStatus
from satchel.domain.message import Draft, Message, admit_message, parse_message_id
from satchel.domain.page import Page
from satchel.domain.rights import check_user_size
from satchel.domain.run import Attempt
from satchel.errors import InvalidInput, LimitExceeded
from satchel.runs import checked_text
from satchel.sessions.pages import read_events
from satchel.sessions.reading import SessionReading


class SessionMessages(SessionReading):
    """Methods for a session's messages."""

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
        """Append one message: a mapping, or JSON text of an object, which is kept byte for byte.

        ``format`` is ``openai.chat`` unless given; a body of another format is kept as it is. A tool message whose
        ``tool_call_id`` is that of an open tool call finishes that call.

        Raises InvalidInput, LimitExceeded, NotAllowed (a role that the principal may not write), SessionNotFound,
        SessionClosed, SessionExpired, VersionConflict, RunFenced.
        """
        access = self._access
        checked_choice(status, ("complete", "interrupted"), field="status")
        draft = admit_message(
            message, metadata=metadata, format=format, limits=access.limits, count=access.count_tokens
        )
        check_user_size(access.principal, draft, limits=access.limits, field="message")
        decision = self._appending(session_id, (draft,), status, attempt, expected_version, idempotency_key)
        return (await access.submit(decision)).value[0]

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
        """Append several (1 to 100, 8 MiB together), all or none, in one version."""
        limits, count = self._access.limits, self._access.count_tokens
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
        drafts: list[Draft] = []
        for index, message in enumerate(messages):
            field = "message" if len(messages) == 1 else f"messages[{index}]"
            draft = admit_message(message, format=format, limits=limits, field=field, count=count)
            check_user_size(self._access.principal, draft, limits=limits, field=field)
            drafts.append(draft)
        decision = self._appending(session_id, tuple(drafts), "complete", attempt, expected_version, idempotency_key)
        return (await self._access.submit(decision)).value

    def _appending(
        self,
        session_id: str,
        drafts: tuple[Draft, ...],
        status: MessageStatus,
        attempt: Attempt | None,
        expected_version: int | None,
        idempotency_key: str | None,
    ) -> AppendMessages:
        access = self._access
        size = sum([len(draft.body) for draft in drafts])
        if size > access.limits.batch:
            raise LimitExceeded(field="messages", size=size, limit=access.limits.batch, setting="limits.batch")
        return AppendMessages(
            **access.common(session_id, idempotency_key, expected_version, attempt),
            fingerprint=request(
                "append_messages",
                status,
                attempt_part(attempt),
                *[part for draft in drafts for part in draft_parts(draft)],
            ),
            messages=drafts,
            status=status,
            size=size,
        )

    async def retract_message(
        self,
        session_id: str,
        message_id: str | int,
        *,
        reason: str = "",
        expected_version: int | None = None,
        idempotency_key: str | None = None,
    ) -> Message:
        """Take a message back: reads of messages leave it out, the log does not. Twice is fine. Raises MessageNotFound."""
        seq = parse_message_id(message_id)
        checked_text(reason, field="reason")
        decision = RetractMessage(
            **self._access.common(session_id, idempotency_key, expected_version, None),
            fingerprint=request("retract_message", seq, reason),
            seq=seq,
            reason=reason,
        )
        return (await self._access.submit(decision)).value

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
        """Messages with ``after < seq < before``, in order or newest first."""
        checked_flag(include_retracted, field="include_retracted")
        page, more = await read_events(
            self._access,
            session_id,
            list_name="messages",
            kind="message",
            after=after,
            before=before,
            run_id=run_id,
            with_retracted=include_retracted,
            order=order,
            limit=limit,
            cursor=cursor,
        )
        shown = (Message.from_event(event, retracted=event.seq in page.retracted) for event in page.events[:limit])
        return Page(tuple(shown), more)
