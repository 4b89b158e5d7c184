"""What a run says while it says it: the part of RunManager for text that streams."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from satchel.access import Access, checked_attempt, checked_flag, checked_whole, draft_parts, request
from satchel.domain.decisions.streams import AddText, EndText, end_key
from satchel.domain.json_text import kind_of
from satchel.domain.limits import Limits
from satchel.domain.message import Message, admit_message, admit_metadata
from satchel.domain.run import Attempt
from satchel.domain.stream import CALL_BYTES, StreamKey
from satchel.errors import InvalidInput, LimitExceeded


class RunTexts:
    """Methods by which a run streams text."""

    _access: Access

    @property
    def limits(self) -> Limits:
        """Those of the store."""
        return self._access.limits

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
        """Some of an assistant's message that is being said: shown to followers, and no event. Answers where the next text
        begins.

        ``message`` counts the streamed messages of this attempt from 1; ``offset`` is the number of characters before
        ``text``, of at most 64 KiB. What is stored already is left alone, so a call may be repeated. ``metadata`` comes
        with the first text. If the run ends, or is taken away, what was said becomes an interrupted message.

        Raises StreamGap, LimitExceeded (the message is too long, or too many are said at once), RunFenced.
        """
        checked_attempt(attempt)
        check_number(message)
        checked_whole(offset, field="offset")
        if type(text) is not str:
            raise InvalidInput(f"must be text, not {kind_of(text)}", field="text")
        try:
            body = msgspec.json.encode(text)
        except UnicodeEncodeError:
            raise InvalidInput("holds a lone surrogate, which is not text", field="text") from None
        if len(body) > CALL_BYTES:
            raise LimitExceeded(field="text", size=len(body), limit=CALL_BYTES, setting="a fixed limit")
        if offset + len(text) >= 1 << 53:
            raise InvalidInput("is beyond every message", field="offset")
        decision = AddText(
            **self._access.common(session_id, None, None, attempt) | {"key": None},
            message=message,
            offset=offset,
            characters=len(text),
            body=body,
            metadata=None if metadata is None else admit_metadata(metadata, limits=self._access.limits),
            limits=self._access.limits,
        )
        return (await self._access.submit(decision)).value

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
        """A streamed message is final: ``answer`` is all of it, an assistant's chat message whose content begins with the text
        that was streamed (or nothing was). A repeated call gives the first answer.

        Raises InvalidInput, LimitExceeded, RunFenced, IdempotencyMismatch (it became final with another content).
        """
        checked_attempt(attempt)
        check_number(message)
        checked_flag(interrupted, field="interrupted")
        draft = admit_message(
            answer, metadata=metadata, limits=self._access.limits, field="answer", count=self._access.count_tokens
        )
        content = msgspec.json.decode(draft.body).get("content")
        if draft.role != "assistant" or not isinstance(content, str | None):
            raise InvalidInput("must be an assistant's message whose content is text or null", field="answer")
        common = self._access.common(session_id, None, None, attempt)
        key = end_key(StreamKey(attempt.run_id, attempt.attempt, message))
        decision = EndText(
            **common | {"key": key},
            fingerprint=request("end_text", *draft_parts(draft), int(interrupted)),
            messages=(draft,),
            size=len(draft.body),
            status="interrupted" if interrupted else "complete",
            message=message,
            text=content or "",
        )
        return (await self._access.submit(decision)).value[0]


def check_number(message: object) -> None:
    """Raises InvalidInput unless a log can name a streamed message so."""
    if type(message) is not int or not 1 <= message < 1 << 53:
        raise InvalidInput(f"must be a whole number from 1 to {(1 << 53) - 1}", field="message")
