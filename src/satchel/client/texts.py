"""What a run says while it says it, over HTTP."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from satchel.access import checked_attempt, checked_flag, checked_whole
from satchel.client.connection import Reply
from satchel.client.snapshots import message_from, whole_of
from satchel.domain.json_text import decode, kind_of
from satchel.domain.limits import Limits
from satchel.domain.message import Message, admit_message, admit_metadata
from satchel.domain.run import Attempt
from satchel.domain.stream import CALL_BYTES
from satchel.errors import InvalidInput, LimitExceeded
from satchel.texts import check_number

if TYPE_CHECKING:
    from satchel.client.connection import Connection


class RemoteTexts:
    """See satchel.texts.RunTexts."""

    _server: Connection

    if TYPE_CHECKING:

        async def _path(self, session_id: str, run_id: str) -> str: ...

    @property
    def limits(self) -> Limits:
        """Those that the connection was made with."""
        return self._server.limits

    async def add_text(
        self,
        session_id: str,
        attempt: Attempt,
        text: str,
        *,
        message: int,
        offset: int,
        metadata: Mapping[str, Any] | None = None,
    ) -> int:
        """See satchel.RunManager.add_text."""
        checked_attempt(attempt)
        check_number(message)
        checked_whole(offset, field="offset")
        if type(text) is not str:
            raise InvalidInput(f"must be text, not {kind_of(text)}", field="text")
        try:
            said = msgspec.json.encode(text)
        except UnicodeEncodeError:
            raise InvalidInput("holds a lone surrogate, which is not text", field="text") from None
        if len(said) > CALL_BYTES:
            raise LimitExceeded(field="text", size=len(said), limit=CALL_BYTES, setting="a fixed limit")
        if offset + len(text) >= 1 << 53:
            raise InvalidInput("is beyond every message", field="offset")
        body: dict[str, Any] = {"message": message, "offset": offset, "text": msgspec.Raw(said)}
        if metadata is not None:
            body["metadata"] = msgspec.Raw(admit_metadata(metadata, limits=self.limits))
        reply = await self._say(session_id, attempt, "", body)
        return whole_of(reply.body, "offset")

    async def end_text(
        self,
        session_id: str,
        attempt: Attempt,
        answer: Mapping[str, Any] | bytes,
        *,
        message: int,
        metadata: Mapping[str, Any] | None = None,
        interrupted: bool = False,
    ) -> Message:
        """See satchel.RunManager.end_text."""
        checked_attempt(attempt)
        check_number(message)
        checked_flag(interrupted, field="interrupted")
        draft = admit_message(answer, metadata=metadata, limits=self.limits, field="answer")
        content = decode(draft.body).get("content")
        if draft.role != "assistant" or not isinstance(content, str | None):
            raise InvalidInput("must be an assistant's message whose content is text or null", field="answer")
        body: dict[str, Any] = {"message": message, "answer": msgspec.Raw(draft.body), "interrupted": interrupted}
        if draft.metadata is not None:
            body["metadata"] = msgspec.Raw(draft.metadata)
        reply = await self._say(session_id, attempt, "/end", body)
        return message_from(reply.body, replayed=reply.replayed)

    async def _say(self, session_id: str, attempt: Attempt, verb: str, body: Mapping[str, Any]) -> Reply:
        """A message's number is its key."""
        return await self._server.write(
            "POST",
            f"{await self._path(session_id, attempt.run_id)}/text{verb}",
            body,
            about={"session_id": session_id, "run_id": attempt.run_id},
            attempt=attempt,
            is_keyed=False,
        )
