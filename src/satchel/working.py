"""A run in progress: what an agent is given while it holds the turn."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Any, Literal

from satchel.calling import approve, begun, call_tool, to_its_end
from satchel.children import child_of
from satchel.context import Context
from satchel.domain.memory import WorkingMemory
from satchel.domain.message import Message
from satchel.domain.page import Page
from satchel.domain.pending import PendingCall
from satchel.domain.question import Approval
from satchel.domain.record import SessionRecord
from satchel.domain.run import Attempt, Run
from satchel.domain.session import Session
from satchel.domain.tool_call import ToolCall, hash_arguments
from satchel.edited import EditedCalls, told, untold
from satchel.engine import ToolUse
from satchel.errors import InvalidInput, RunFenced, SatchelError
from satchel.failing import readable
from satchel.pending import pending_of
from satchel.questions import EXPIRES_IN, Asked
from satchel.runs import LEASE, RunManager, checked_text
from satchel.streaming import StreamedAnswer, streaming

if TYPE_CHECKING:
    from satchel.sessions import SessionManager


class OpenTool:
    """See satchel.engine.ToolUse."""

    __slots__ = ("_call", "error", "result")  # a misspelt name is an error, not a lost result

    def __init__(self, call: ToolCall) -> None:
        self._call = call
        self.result: Any = call.result
        self.error: Any = call.error

    @property
    def seq(self) -> int:
        return self._call.seq

    @property
    def repeat_of(self) -> int | None:
        return self._call.repeat_of

    @property
    def is_replayed(self) -> bool:
        return not self._call.is_open


class RunInProgress:
    """See satchel.engine.RunContext."""

    def __init__(
        self,
        sessions: SessionManager,
        runs: RunManager,
        run: Run,
        *,
        lease: float = LEASE,
        parent: RunInProgress | None = None,
    ) -> None:
        self._parent = parent
        self._children: dict[str, RunInProgress] = {}  # those that are open
        self._had_children = False
        self._sessions = sessions
        self._runs = runs
        self._run = run
        self._attempt = Attempt(run.run_id, run.attempt)
        self._cancelled = False
        self.when_cancelled: Callable[[], None] | None = (
            None  # whoever works in it is told; again, if it is noticed again
        )
        self._streamed = 0  # messages
        self._lease = lease
        self._steps: dict[str, bytes] = {}  # by name, what was called in this attempt
        self.edited_calls: EditedCalls = EditedCalls() if parent is None else parent.edited_calls
        self._one_question = asyncio.Lock()
        self._is_asking = False
        self._is_suspended = False
        self.stop_reason = "end_turn"

    @property
    def session_id(self) -> str:
        return self._run.session_id

    @property
    def run(self) -> Run:
        return self._run

    @property
    def attempt(self) -> Attempt:
        return self._attempt

    @property
    def is_cancelled(self) -> bool:
        return self._cancelled or (self._parent is not None and self._parent.is_cancelled)

    @property
    def is_asked_to_stop(self) -> bool:
        """This run itself, not only its parent."""
        return self._cancelled

    @property
    def is_asking(self) -> bool:
        """A question is on its way, or waits in place for its answer: no attempt may hold the run."""
        return self._is_asking

    @property
    def is_suspended(self) -> bool:
        """The run is WAITING, and whoever has it next is not this attempt."""
        return self._is_suspended

    def notice_cancel(self) -> None:
        self._cancelled = True
        if self.when_cancelled is not None:
            self.when_cancelled()

    def stop(self, reason: str) -> None:
        self.stop_reason = checked_text(reason, field="stop_reason")

    async def session(self) -> Session:
        return await self._sessions.get_session(self.session_id)

    @property
    def _has_layer(self) -> bool:
        return self._run.memory == "run" or (self._parent is not None and self._parent.run.memory == "run")

    async def working_memory(self) -> WorkingMemory:
        run_id = self._run.run_id if self._has_layer else None
        return await self._sessions.get_working_memory(self.session_id, run_id=run_id)

    async def update_working_memory(
        self, patch: Mapping[str, Any], *, expected_version: int | None = None, idempotency_key: str | None = None
    ) -> WorkingMemory:
        return await self._sessions.update_working_memory(
            self.session_id,
            patch,
            attempt=self._attempt,
            expected_version=expected_version,
            idempotency_key=idempotency_key,
        )

    async def context(self, *, max_tokens: int = 8000) -> Context:
        if self._has_layer or self._parent is not None or self._had_children:
            return await self._sessions.context(self.session_id, max_tokens=max_tokens, run_id=self._run.run_id)
        return await self._sessions.context(self.session_id, max_tokens=max_tokens, run_number=self._run.number)

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
        return await self._sessions.messages(
            self.session_id, after=after, before=before, run_id=run_id, order=order, limit=limit, cursor=cursor
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
        return await self._sessions.tool_history(
            self.session_id,
            run_id=run_id,
            tool=tool,
            tool_call_id=tool_call_id,
            is_open=is_open,
            order=order,
            limit=limit,
            cursor=cursor,
        )

    async def append_message(
        self,
        message: Mapping[str, Any] | str | bytes,
        *,
        metadata: Mapping[str, Any] | None = None,
        interrupted: bool = False,
        idempotency_key: str | None = None,
    ) -> Message:
        return await self._sessions.append_message(
            self.session_id,
            message,
            metadata=metadata,
            status="interrupted" if interrupted else "complete",
            attempt=self._attempt,
            idempotency_key=idempotency_key,
        )

    def stream(self, *, metadata: Mapping[str, Any] | None = None) -> AbstractAsyncContextManager[StreamedAnswer]:
        self._streamed += 1
        return streaming(self._runs, self.session_id, self._attempt, self._streamed, metadata)

    async def pending_calls(self) -> tuple[PendingCall, ...]:
        return await pending_of(self)

    async def ask(
        self, name: str, question: str, *, schema: Mapping[str, Any] | None = None, expires_in: float = EXPIRES_IN
    ) -> Any:
        async with self._one_question:
            while True:
                asked = await self.ask_once(name, question, schema=schema, expires_in=expires_in, here=True)
                if asked.is_answered:
                    return asked.answer
                await self._wait_in_place()

    async def ask_once(
        self, name: str, question: str, *, schema: Mapping[str, Any] | None, expires_in: float, here: bool = False
    ) -> Asked:
        """Without waiting. ``here``: whoever asks is going to, and keeps the lease."""
        self._is_asking = True
        try:
            asked = await self._runs.ask_question(
                self.session_id, self._attempt, name, question, schema=schema, expires_in=expires_in, here=here
            )
        except BaseException as leaving:
            # Whoever is cancelled here does not know whether it was asked: `working` ends the run, wherever it is.
            self._is_asking = here and not isinstance(leaving, Exception)
            raise
        self._is_asking = here and not asked.is_answered
        self._is_suspended = not here and not asked.is_answered
        return asked

    async def _wait_in_place(self) -> None:
        try:
            self._run = await self._runs.wait_for_answer(self.session_id, self._run.run_id, lease=self._lease)
        except RunFenced:
            self._cancelled = True
            self._is_asking = False
            raise
        self._attempt = Attempt(self._run.run_id, self._run.attempt)
        self._streamed = 0
        self._is_asking = False

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
            self.ask, self.edited_calls, name, tool, arguments, question=question, expires_in=expires_in
        )

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

    def tool(
        self, tool: str, arguments: object = None, *, tool_call_id: str | None = None, step: str | None = None
    ) -> AbstractAsyncContextManager[ToolUse]:
        return self._tool(tool, arguments, tool_call_id, step)

    @asynccontextmanager
    async def _tool(
        self, tool: str, arguments: object, tool_call_id: str | None, step: str | None
    ) -> AsyncIterator[ToolUse]:
        if step is not None:
            self._check_step(step, tool, arguments)
        starting = self._sessions.start_tool_call(
            self.session_id, tool, arguments, tool_call_id=tool_call_id, step=step, attempt=self._attempt
        )
        started = await begun(starting, self._finish_unused)
        if step is not None:
            self._steps[step] = hash_arguments(tool, arguments)
        call = OpenTool(started)
        is_edited = tool_call_id is not None and self.edited_calls.take(tool, arguments)
        if call.is_replayed:
            if is_edited:
                call.result, call.error = untold("result", call.result), untold("error", call.error)
            yield call
            return

        async def finish(*, result: Any = None, error: Any = None, cancelled: bool = False) -> None:
            if is_edited and error is not None:
                error = told("error", error, arguments)
            elif is_edited and not cancelled:
                result = told("result", result, arguments)
            await to_its_end(self._finish(call, result=result, error=error, cancelled=cancelled))

        try:
            yield call
        except BaseException as leaving:  # the block's own exception is the one to be heard
            cancelled = not isinstance(leaving, Exception)
            with contextlib.suppress(SatchelError):
                await finish(error=None if cancelled else readable(leaving), cancelled=cancelled)
            raise
        try:
            await finish(result=call.result, error=call.error)
        except InvalidInput as wrong:  # the tool did run: the history says so, whatever it gave back
            with contextlib.suppress(SatchelError):
                await finish(error=f"its result cannot be stored: {readable(wrong)}")
            raise

    def _check_step(self, step: object, tool: object, arguments: object) -> None:
        """A loop that gives each of its calls the same name would be given the first one's result again and again."""
        known = self._steps.get(step) if type(step) is str else None
        if known is None or type(tool) is not str:
            return
        try:
            called = hash_arguments(tool, arguments)
        except (TypeError, ValueError, RecursionError):  # no JSON: whoever starts the call says so
            return
        if called != known:
            raise InvalidInput(
                f"{step!r} named another call before: give calls of other tools or arguments names of their own",
                field="step",
            )

    def child(
        self, goal: str, *, agent: str = "", metadata: Mapping[str, Any] | None = None
    ) -> AbstractAsyncContextManager[RunInProgress]:
        return child_of(self, self._runs, goal, agent=agent, metadata=metadata)

    def begin_child(self, run: Run) -> RunInProgress:
        self._had_children = True
        child = self._children[run.run_id] = RunInProgress(self._sessions, self._runs, run, parent=self)
        return child

    def end_child(self, child: RunInProgress) -> None:
        self._children.pop(child.run.run_id, None)

    def notice_children(self, record: SessionRecord) -> None:
        """Tell the open child runs that were asked to stop."""
        for child in record.children:
            if child.cancel_requested and child.run_id in self._children:
                self._children[child.run_id].notice_cancel()

    async def look_after_children(self) -> None:
        """Ask whether child runs were asked to stop, and tell them."""
        if not self._children:
            return
        for run in await self._runs.list_runs(self.session_id, parent_run_id=self._run.run_id, status="RUNNING"):
            if run.cancel_requested and run.run_id in self._children:
                self._children[run.run_id].notice_cancel()

    async def _finish_unused(self, started: ToolCall) -> None:
        """The tool will not run."""
        if started.is_open:
            await self._finish(OpenTool(started), cancelled=True)

    async def _finish(self, call: OpenTool, *, result: Any = None, error: Any = None, cancelled: bool = False) -> None:
        await self._sessions.finish_tool_call(
            self.session_id, call.seq, result=result, error=error, cancelled=cancelled, attempt=self._attempt
        )

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
        run = await self._runs.add_step(
            self.session_id,
            self._attempt,
            name,
            input_tokens=input_tokens,
            output_tokens=output_tokens,
            total_tokens=total_tokens,
            duration_ms=duration_ms,
            error=error,
        )
        if run.cancel_requested:
            self.notice_cancel()
        return run
