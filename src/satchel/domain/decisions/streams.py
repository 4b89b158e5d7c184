"""Text that streams: a piece is added, and the message that it becomes is final."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from satchel.domain.decisions.decision import Decision, unchanged
from satchel.domain.decisions.messages import AppendMessages
from satchel.domain.edit import Edit
from satchel.domain.idempotency import Answer
from satchel.domain.ids import digest
from satchel.domain.limits import Limits
from satchel.domain.rights import Right
from satchel.domain.run import Attempt
from satchel.domain.state import Clock, Effect, SessionState, Unchanged, Want
from satchel.domain.stream import OVERHEAD, OpenStream, Piece, StreamKey, find_stream, text_of
from satchel.errors import InvalidInput, LimitExceeded, StreamGap


def end_key(key: StreamKey) -> bytes:
    """The idempotency key under which a streamed message becomes final: once, and no piece comes after it."""
    return digest("stream", key.run_id, str(key.attempt), str(key.message))


class AddText(Decision[int], frozen=True, kw_only=True):
    """One piece of a message that is being said; no version, no event. It answers where the next one begins.

    A piece that is there already is left alone. It needs no idempotency record of its own: its offset tells.
    """

    attempt: Attempt
    message: int
    offset: int
    characters: int
    body: bytes  # JSON: a text
    metadata: bytes | None = None
    limits: Limits

    right: ClassVar[Right] = "work"
    action: ClassVar[str] = "stream text"

    @property
    def size(self) -> int:
        return len(self.body)

    @property
    def stream_key(self) -> StreamKey:
        return StreamKey(self.attempt.run_id, self.attempt.attempt, self.message)

    def want(self) -> Want:
        return Want(keys=(end_key(self.stream_key),))

    def effect(self, state: SessionState, clock: Clock) -> Effect | Unchanged:
        record = state.existing
        key = self.stream_key
        end = self.offset + self.characters
        stream = find_stream(record.streams, key)
        if stream is None:
            if end_key(key) in state.keys:  # a late repetition: the message is final
                return unchanged(record, clock, seqs=(end,))
            if end == 0:  # nothing was said yet: its piece would have the place of the first that says something
                return unchanged(record, clock, seqs=(0,))
            stream = OpenStream(run_id=key.run_id, attempt=key.attempt, message=key.message, offset=0, size=0)
            self._check_count(record.streams)
        elif end <= stream.offset:
            return unchanged(record, clock, seqs=(end,))
        if self.offset != stream.offset:
            raise StreamGap(run_id=key.run_id, message=key.message, expected=stream.offset, offset=self.offset)
        size = stream.size + len(self.body) - 2
        if size + OVERHEAD > self.limits.agent_message:
            raise LimitExceeded(
                field="text",
                size=size + OVERHEAD,
                limit=self.limits.agent_message,
                setting="limits.agent_message",
            )
        grown = msgspec.structs.replace(stream, offset=end, size=size)
        others = tuple([other for other in record.streams if other.key != key])
        piece = Piece(
            run_id=key.run_id,
            attempt=key.attempt,
            message=key.message,
            offset=self.offset,
            body=self.body,
            metadata=self.metadata if self.offset == 0 else None,
        )
        return Effect(
            record=msgspec.structs.replace(record, streams=(*others, grown)),
            answer=Answer(version=record.version, at=clock.now, seqs=(end,)),
            partials=(piece,),
        )

    def _check_count(self, streams: tuple[OpenStream, ...]) -> None:
        count = 1 + sum([stream.run_id == self.attempt.run_id for stream in streams])
        if count > self.limits.open_streams:
            raise LimitExceeded(
                field="message",
                size=count,
                limit=self.limits.open_streams,
                setting="limits.open_streams",
                unit="messages that stream at once",
            )

    def view(self, state: SessionState, answer: Answer, *, replayed: bool) -> int:
        return answer.seqs[0]


class EndText(AppendMessages, frozen=True, kw_only=True):
    """A streamed message becomes final, or interrupted; in the same commit its pieces go. ``text``: its content."""

    attempt: Attempt
    message: int
    text: str

    action: ClassVar[str] = "stream text"

    @property
    def stream_key(self) -> StreamKey:
        return StreamKey(self.attempt.run_id, self.attempt.attempt, self.message)

    def want(self) -> Want:
        return Want(keys=() if self.key is None else (self.key,), streams=(self.stream_key,))

    def effect(self, state: SessionState, clock: Clock) -> Effect:
        key = self.stream_key
        pieces = state.partials.get(key, ())
        if pieces and not self.text.startswith(text_of(pieces)):
            raise InvalidInput("does not begin with the text that was streamed", field="message", pointer="/content")
        edit = Edit(state, clock, self.principal.actor)
        (draft,) = self.messages
        seq = edit.message(draft, run_id=key.run_id, status=self.status, streamed=self.message)
        edit.end_stream(key)
        return edit.finish(edit.answer(seqs=(seq,)))
