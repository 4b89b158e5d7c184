"""An answer that is being said: what ``ctx.stream()`` gives. It gathers text, stores it in pieces while the model speaks, and
at its end becomes a message."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from satchel.calling import to_its_end
from satchel.domain.json_text import kind_of
from satchel.domain.message import Message, admit_metadata
from satchel.domain.run import Attempt
from satchel.domain.stream import OVERHEAD, body_size
from satchel.errors import (
    InvalidInput,
    LimitExceeded,
    OutcomeUnknown,
    SatchelError,
    StoreBusy,
    StoreUnavailable,
)
from satchel.runs import RunManager

PERIOD = 0.05  # seconds from one piece to the next, unless
PIECE = 4 * 1024  # bytes wait already
WAITING = 64 * 1024  # bytes, from which on who writes waits for the store
LONGEST_PIECE = 8 * 1024  # characters: not above what one call may bring, whatever they are
FIRST_PAUSE = 0.05  # seconds before a store that is away is asked again; doubled each time
LONGEST_PAUSE = 1.0

_AWAY = (StoreUnavailable, StoreBusy, OutcomeUnknown)  # what may pass


class StreamedAnswer:
    """See satchel.engine.TextStream. It lives on the loop where it was made; ``accept`` may be called from any thread."""

    __slots__ = (
        "_attempt",
        "_failure",
        "_home",
        "_home_thread",
        "_is_final",
        "_lock",
        "_message",
        "_metadata",
        "_much",
        "_number",
        "_parts",
        "_room",
        "_runs",
        "_session_id",
        "_size",
        "_some",
        "_stored",
        "_storing",
        "_unstored",
        "_waiting",
        "members",
        "tool_calls",
    )  # a misspelt name is an error, not a lost member

    def __init__(
        self, runs: RunManager, session_id: str, attempt: Attempt, number: int, metadata: Mapping[str, Any] | None
    ) -> None:
        self.tool_calls: list[Mapping[str, Any]] | None = None
        self.members: dict[str, Any] = {}
        self._runs = runs
        self._session_id = session_id
        self._attempt = attempt
        self._number = number
        self._metadata = metadata
        self._message: Message | None = None
        self._failure: Exception | None = None
        self._is_final = False
        self._home = asyncio.get_running_loop()
        self._home_thread = threading.get_ident()
        self._lock = threading.Lock()  # over the five below
        self._parts: list[str] = []  # all that was said
        self._unstored: list[str] = []
        self._waiting = 0  # bytes of it
        self._size = OVERHEAD
        self._stored = 0  # characters
        self._some = asyncio.Event()
        self._much = asyncio.Event()
        self._room = asyncio.Event()
        self._storing: asyncio.Task[None] | None = None

    @property
    def text(self) -> str:
        with self._lock:
            return "".join(self._parts)

    @property
    def message(self) -> Message | None:
        return self._message

    async def write(self, text: str) -> None:
        self.accept(text)
        await asyncio.sleep(0)  # a loop that only writes would keep its own text from being stored
        if self.is_full:
            await self.room()

    def accept(self, text: str) -> None:
        """Take ``text`` without waiting. Raises InvalidInput, LimitExceeded, and what refused the text before."""
        if type(text) is not str:
            raise InvalidInput(f"must be text, not {kind_of(text)}", field="text")
        try:
            size = body_size(text)
        except UnicodeEncodeError:
            raise InvalidInput("holds a lone surrogate, which is not text", field="text") from None
        limit = self._runs.limits.agent_message
        with self._lock:
            if self._is_final:
                raise InvalidInput("comes after the end of its message", field="text")
            if self._failure is not None:
                raise self._failure
            if not text:
                return
            if self._size + size > limit:
                raise LimitExceeded(field="text", size=self._size + size, limit=limit, setting="limits.agent_message")
            self._parts.append(text)
            self._unstored.append(text)
            self._size += size
            self._waiting += size
        if threading.get_ident() == self._home_thread:
            self._wake()
        else:
            self._home.call_soon_threadsafe(self._wake)

    @property
    def is_full(self) -> bool:
        return self._waiting > WAITING

    async def room(self) -> None:
        """Until less waits to be stored, or the message is at its end. Raises what refused the text."""
        while self.is_full and self._failure is None and not self._is_final:
            self._room.clear()
            await self._room.wait()
        if self._failure is not None:
            raise self._failure

    def _wake(self) -> None:
        if self._waiting:
            self._some.set()
        if self._waiting >= PIECE:
            self._much.set()

    # -- in the background

    def begin(self) -> None:
        self._storing = asyncio.create_task(self._store_pieces())

    async def stop(self) -> None:
        """Store no more pieces: the whole text comes."""
        if self._storing is not None:
            self._storing.cancel()
            await asyncio.gather(self._storing, return_exceptions=True)

    def abandon(self) -> None:
        """From any thread: somebody else ended the run, and its block may never be left."""
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._home.call_soon_threadsafe(self._abandon)

    def _abandon(self) -> None:
        self._close()
        if self._storing is not None:
            self._storing.cancel()

    async def _store_pieces(self) -> None:
        """For as long as the model speaks: the first piece at once, then what gathered."""
        last = self._home.time() - PERIOD
        try:
            while True:
                await self._some.wait()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout_at(last + PERIOD):
                        await self._much.wait()
                last = self._home.time()
                await self._store(self._next_piece())
        except Exception as refused:  # noqa: BLE001  # whatever it is: who writes hears of it
            self._failure = refused
            self._room.set()

    def _next_piece(self) -> str:
        with self._lock:
            gathered = "".join(self._unstored)
            piece, rest = gathered[:LONGEST_PIECE], gathered[LONGEST_PIECE:]
            self._unstored = [rest] if rest else []
            self._waiting = body_size(rest)
        self._some.clear()
        self._much.clear()
        self._wake()
        return piece

    async def _store(self, piece: str) -> None:
        """Until it is stored: while the store is away, what comes gathers behind it."""
        pause = FIRST_PAUSE
        while True:
            try:
                self._stored = await self._runs.add_text(
                    self._session_id,
                    self._attempt,
                    piece,
                    message=self._number,
                    offset=self._stored,
                    metadata=self._metadata,
                )
            except _AWAY:
                await asyncio.sleep(pause)
                pause = min(2 * pause, LONGEST_PAUSE)
            else:
                self._room.set()
                return

    # -- its end

    async def finish(self) -> None:
        """The final message; none if nothing was said and no member set. What is said beside it that no message can hold
        leaves it interrupted. Raises what refused the text, InvalidInput, and as any write."""
        self._close()
        if self._failure is not None:
            raise self._failure
        text = self.text
        said: dict[str, Any] = {"role": "assistant", "content": text or None}
        if self.tool_calls is not None:
            said["tool_calls"] = self.tool_calls
        try:
            self._add_members(said)
            if len(said) > 2 or text:
                await self._end(said, interrupted=False)
        except InvalidInput:
            await self.interrupt()
            raise

    def _add_members(self, said: dict[str, Any]) -> None:
        if not isinstance(self.members, Mapping):
            raise InvalidInput(f"must be an object, not {kind_of(self.members)}", field="members")
        for name, value in self.members.items():
            if name in said:
                raise InvalidInput(f"{name!r} is not for members to say", field="members")
            said[name] = value

    async def interrupt(self) -> None:
        """What was said becomes an interrupted message. Raises no refusal: why it was left is to be heard."""
        self._close()
        text = self.text
        if not text:
            return
        with contextlib.suppress(SatchelError):
            await self._end({"role": "assistant", "content": text}, interrupted=True)

    async def _end(self, said: dict[str, Any], *, interrupted: bool) -> None:
        self._message = await self._runs.end_text(
            self._session_id,
            self._attempt,
            said,
            message=self._number,
            metadata=self._metadata,
            interrupted=interrupted,
        )

    def _close(self) -> None:
        with self._lock:
            self._is_final = True
        self._room.set()  # no more is stored in pieces: nobody would wake who waits for that


@asynccontextmanager
async def streaming(
    runs: RunManager, session_id: str, attempt: Attempt, number: int, metadata: Mapping[str, Any] | None
) -> AsyncIterator[StreamedAnswer]:
    """Message ``number`` of this attempt, said in the block."""
    if metadata is not None:
        admit_metadata(metadata, limits=runs.limits)
    answer = StreamedAnswer(runs, session_id, attempt, number, metadata)
    answer.begin()
    try:
        try:
            yield answer
        finally:
            await answer.stop()
    except BaseException:  # the block's own exception is the one to be heard
        await to_its_end(answer.interrupt())
        raise
    await to_its_end(answer.finish())
