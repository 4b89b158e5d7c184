"""An answer that is said on the agent's thread, and stored on the worker's loop."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import TYPE_CHECKING, Any

from satchel.domain.message import Message
from satchel.streaming import StreamedAnswer

if TYPE_CHECKING:
    from satchel.worker.carried import CarriedContext


class CarriedAnswer:
    """See satchel.engine.TextStream. Text is handed over without waiting for the worker's loop."""

    __slots__ = ("_answer", "_ctx")

    def __init__(self, ctx: CarriedContext, answer: StreamedAnswer) -> None:
        self._ctx = ctx
        self._answer = answer

    @property
    def tool_calls(self) -> list[Mapping[str, Any]] | None:
        return self._answer.tool_calls

    @tool_calls.setter
    def tool_calls(self, calls: list[Mapping[str, Any]] | None) -> None:
        self._answer.tool_calls = calls

    @property
    def members(self) -> dict[str, Any]:
        return self._answer.members

    @members.setter
    def members(self, members: dict[str, Any]) -> None:
        self._answer.members = members

    @property
    def text(self) -> str:
        return self._answer.text

    @property
    def message(self) -> Message | None:
        return self._answer.message

    async def write(self, text: str) -> None:
        if self._ctx.is_released:
            raise self._ctx.fenced()
        try:
            self._answer.accept(text)
        except RuntimeError:  # the worker's loop is closed
            raise self._ctx.fenced() from None
        if self._answer.is_full:
            await self._ctx.carry(self._answer.room)
            if self._ctx.is_released:
                raise self._ctx.fenced()
        else:
            await asyncio.sleep(0)  # code that only writes hears of a cancellation here


class CarriedStream(AbstractAsyncContextManager[CarriedAnswer]):
    """``block`` is the stream's own, carried over. When the context is released the worker lets go of it."""

    def __init__(self, ctx: CarriedContext, block: AbstractAsyncContextManager[StreamedAnswer]) -> None:
        self._ctx = ctx
        self._block = block
        self._answer: StreamedAnswer | None = None

    async def __aenter__(self) -> CarriedAnswer:
        self._answer = await self._block.__aenter__()
        self._ctx.keep(self._answer)
        return CarriedAnswer(self._ctx, self._answer)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        left = await self._block.__aexit__(kind, error, trace)
        if self._answer is not None:
            self._ctx.forget(self._answer)
        return left
