"""A run's context on the agent's thread: every call is carried over to the worker's loop, where the store is."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from types import TracebackType
from typing import Any, Literal, TypeVar

from satchel.calling import approve, call_tool, to_its_end
from satchel.context import Context
from satchel.domain.memory import WorkingMemory
from satchel.domain.message import Message
from satchel.domain.page import Page
from satchel.domain.pending import PendingCall
from satchel.domain.question import Approval
from satchel.domain.run import Attempt, Run
from satchel.domain.session import Session
from satchel.domain.tool_call import ToolCall
from satchel.engine import RunSuspended, TextStream, ToolUse
from satchel.errors import RunFenced
from satchel.patience import patiently
from satchel.pending import pending_of
from satchel.questions import EXPIRES_IN
from satchel.streaming import StreamedAnswer
from satchel.worker.carried_stream import CarriedStream
from satchel.working import RunInProgress

T = TypeVar("T")


class CarriedContext:
    """See satchel.engine.RunContext. May be used from any thread and loop, until it is released.

    While the store is away its calls wait, as long as the run is not lost.
    """

    def __init__(
        self, running: RunInProgress, *, is_over: Callable[[], bool], parent: CarriedContext | None = None
    ) -> None:
        self._parent = parent
        self._running = running
        self._home = asyncio.get_running_loop()
        self._is_over = is_over
        self._released = False
        self._answers: set[StreamedAnswer] = set()  # that are being said

    def release(self) -> None:
        """The run is not the agent's any more: whatever it still asks for is refused."""
        self._released = True
        for answer in tuple(self._answers):
            answer.abandon()

    def keep(self, answer: StreamedAnswer) -> None:
        """Until it is forgotten: it is abandoned when the run is not the agent's any more. A child's go with its parent's."""
        if self._parent is not None:
            self._parent.keep(answer)
            return
        self._answers.add(answer)
        if self._released:
            answer.abandon()

    def forget(self, answer: StreamedAnswer) -> None:
        if self._parent is not None:
            self._parent.forget(answer)
        self._answers.discard(answer)

    @property
    def is_released(self) -> bool:
        return self._released or (self._parent is not None and self._parent.is_released)

    @property
    def session_id(self) -> str:
        return self._running.session_id

    @property
    def run(self) -> Run:
        return self._running.run

    @property
    def attempt(self) -> Attempt:
        return self._running.attempt

    @property
    def is_cancelled(self) -> bool:
        return self._running.is_cancelled

    def stop(self, reason: str) -> None:
        self._running.stop(reason)

    async def session(self) -> Session:
        return await self._read(self._running.session)

    async def working_memory(self) -> WorkingMemory:
        return await self._read(self._running.working_memory)

    async def context(self, *, max_tokens: int = 8000) -> Context:
        return await self._read(lambda: self._running.context(max_tokens=max_tokens))

    async def messages(
        self,
        *,
        after: int = 0,
        before: int | None = None,
        run_id: str | None = None,
        order: Literal["asc", "desc"] = "asc",
        limit: int = 100,
        cursor: str | None = None,
    ) -> Page[Message]:
        return await self._read(
            lambda: self._running.messages(
                after=after, before=before, run_id=run_id, order=order, limit=limit, cursor=cursor
            )
        )

    async def tool_history(
        self,
        *,
        run_id: str | None = None,
        tool: str | None = None,
        tool_call_id: str | None = None,
        is_open: bool | None = None,
        order: Literal["asc", "desc"] = "asc",
        limit: int = 100,
        cursor: str | None = None,
    ) -> Page[ToolCall]:
        return await self._read(
            lambda: self._running.tool_history(
                run_id=run_id,
                tool=tool,
                tool_call_id=tool_call_id,
                is_open=is_open,
                order=order,
                limit=limit,
                cursor=cursor,
            )
        )

    async def update_working_memory(
        self, patch: Mapping[str, Any], *, expected_version: int | None = None, idempotency_key: str | None = None
    ) -> WorkingMemory:
        return await self.carry(
            lambda: self._running.update_working_memory(
                patch, expected_version=expected_version, idempotency_key=idempotency_key
            )
        )

    async def append_message(
        self,
        message: Mapping[str, Any] | str | bytes,
        *,
        metadata: Mapping[str, Any] | None = None,
        interrupted: bool = False,
        idempotency_key: str | None = None,
    ) -> Message:
        return await self.carry(
            lambda: self._running.append_message(
                message, metadata=metadata, interrupted=interrupted, idempotency_key=idempotency_key
            )
        )

    def stream(self, *, metadata: Mapping[str, Any] | None = None) -> AbstractAsyncContextManager[TextStream]:
        return CarriedStream(self, CarriedBlock(self, self._running.stream(metadata=metadata)))

    def tool(
        self, tool: str, arguments: object = None, *, tool_call_id: str | None = None, step: str | None = None
    ) -> AbstractAsyncContextManager[ToolUse]:
        return CarriedBlock(self, self._running.tool(tool, arguments, tool_call_id=tool_call_id, step=step))

    async def call(
        self,
        tool: str,
        arguments: object,
        function: Callable[[Any], Any],
        *,
        step: str | None = None,
        tool_call_id: str | None = None,
    ) -> Any:
        return await call_tool(self.tool, tool, arguments, function, step=step, tool_call_id=tool_call_id)

    async def pending_calls(self) -> tuple[PendingCall, ...]:
        return await pending_of(self)

    async def ask(
        self, name: str, question: str, *, schema: Mapping[str, Any] | None = None, expires_in: float = EXPIRES_IN
    ) -> Any:
        """Leaves the agent when there is no answer yet: whoever takes the run then calls it again from its start."""
        # What was asked or answered before is no other question: the whole of it may be done again while the store is away.
        asked = await self._read(lambda: self._running.ask_once(name, question, schema=schema, expires_in=expires_in))
        if not asked.is_answered:
            raise RunSuspended(f"run {self.run.run_id} waits for the answer to {name!r}")
        return asked.answer

    async def approve(
        self,
        name: str,
        tool: str,
        arguments: object,
        *,
        question: str | None = None,
        expires_in: float = EXPIRES_IN,
    ) -> Approval:
        return await approve(
            self.ask, self._running.edited_calls, name, tool, arguments, question=question, expires_in=expires_in
        )

    def child(
        self, goal: str, *, agent: str = "", metadata: Mapping[str, Any] | None = None
    ) -> AbstractAsyncContextManager[CarriedContext]:
        return CarriedChild(self, self._child(goal, agent, metadata))

    @asynccontextmanager
    async def _child(self, goal: str, agent: str, metadata: Mapping[str, Any] | None) -> AsyncIterator[CarriedContext]:
        """On the worker's loop. Released with its block, and with its parent."""
        async with self._running.child(goal, agent=agent, metadata=metadata) as running:
            child = CarriedContext(running, is_over=self._is_over, parent=self)
            try:
                yield child
            finally:
                child.release()

    def when_cancelled(self, hear: Callable[[], None]) -> None:
        """``hear`` is called, on the worker's loop, when this run itself is asked to stop; at once, if it was already."""
        self._running.when_cancelled = hear
        if self._running.is_asked_to_stop:
            hear()

    async def step(
        self,
        name: str,
        *,
        input_tokens: int = 0,
        output_tokens: int = 0,
        total_tokens: int = 0,
        duration_ms: int | None = None,
        error: str | None = None,
    ) -> Run:
        return await self.carry(
            lambda: self._running.step(
                name,
                input_tokens=input_tokens,
                output_tokens=output_tokens,
                total_tokens=total_tokens,
                duration_ms=duration_ms,
                error=error,
            )
        )

    async def _read(self, read: Callable[[], Awaitable[T]]) -> T:
        return await self.carry(lambda: patiently(read, is_over=self._is_over))

    async def carry(self, work: Callable[[], Awaitable[T]]) -> T:
        """Do ``work`` on the worker's loop. A caller that is cancelled cancels it."""
        if self.is_released:
            raise self.fenced()
        working = _awaited(work)
        try:
            future = asyncio.run_coroutine_threadsafe(working, self._home)
        except RuntimeError:  # the worker's loop is closed
            working.close()
            raise self.fenced() from None
        return await asyncio.wrap_future(future)

    def fenced(self) -> RunFenced:
        attempt = self.attempt
        return RunFenced(run_id=attempt.run_id, attempt=attempt.attempt, reason="its worker has let it go")


class CarriedBlock(AbstractAsyncContextManager[T]):
    """An async block whose beginning and end are on the worker's loop, and whose body is here."""

    def __init__(self, ctx: CarriedContext, block: AbstractAsyncContextManager[T]) -> None:
        self._ctx = ctx
        self._block = block

    async def __aenter__(self) -> T:
        entering = asyncio.ensure_future(self._ctx.carry(self._block.__aenter__))
        try:
            return await asyncio.shield(entering)
        except asyncio.CancelledError as leaving:  # what was begun is not left open: nobody is in the block
            await asyncio.wait({entering})
            if not entering.cancelled() and entering.exception() is None:
                with suppress(RunFenced):  # let go of meanwhile
                    await self.__aexit__(type(leaving), leaving, None)
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        if error is None:
            return await to_its_end(self._ctx.carry(lambda: self._block.__aexit__(None, None, None)))
        if self._ctx.is_released:
            return None  # the block's own exception is the one to be heard
        if isinstance(error, Exception):
            return await to_its_end(self._ctx.carry(lambda: self._block.__aexit__(kind, error, trace)))
        # SystemExit and its like would end the worker's loop; there it is a cancellation, here it stays what it is.
        await to_its_end(self._ctx.carry(lambda: _leave_cancelled(self._block)))
        return None


class CarriedChild(CarriedBlock[CarriedContext]):
    """A child run's block. When the child alone is asked to stop, the task that is in the block is cancelled; the block takes
    that cancellation, and its parent goes on behind it. (As ``asyncio.timeout`` does, but that nothing is raised.)"""

    _task: asyncio.Task[Any] | None = None  # while it is in the block; touched on its own loop alone
    _cancelled = False

    async def __aenter__(self) -> CarriedContext:
        child = await super().__aenter__()
        self._task = asyncio.current_task()
        assert self._task is not None  # a coroutine of an agent is in one
        self._before = self._task.cancelling()
        self._loop = asyncio.get_running_loop()
        child.when_cancelled(self._hear)
        return child

    def _hear(self) -> None:
        with suppress(RuntimeError):  # the agent's loop is closed: nobody is in the block
            self._loop.call_soon_threadsafe(self._cancel)

    def _cancel(self) -> None:
        if self._task is not None and not self._cancelled:
            self._cancelled = True
            self._task.cancel()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        task, self._task = self._task, None
        done = await super().__aexit__(kind, error, trace)
        if self._cancelled and task is not None and task.uncancel() <= self._before:
            return done or isinstance(error, asyncio.CancelledError)
        return done


async def _awaited(work: Callable[[], Awaitable[T]]) -> T:
    return await work()


async def _leave_cancelled(block: AbstractAsyncContextManager[Any]) -> None:
    cancelled = asyncio.CancelledError()
    with suppress(asyncio.CancelledError):
        await block.__aexit__(type(cancelled), cancelled, None)
