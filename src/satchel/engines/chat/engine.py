"""The chat engine: a model behind any OpenAI-compatible endpoint, and Python functions as its tools.

A run is: what the model should see, its answer as it streams, the tools that it asks for, and again, until it asks for none.
All that it goes on from is in the session. Called again for the same run (another attempt, or a question that was answered)
it does what is left to do: it never answers twice, and runs no tool again whose result is there.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from satchel.domain.ids import checked_id
from satchel.domain.limits import DEFAULT_LIMITS
from satchel.domain.question import Approval
from satchel.domain.run import Usage
from satchel.domain.tokens import estimate_tokens, message_tokens
from satchel.engine import RunContext
from satchel.engines.chat.answer import Answer, CallAsked
from satchel.engines.chat.messages import Said, Story, read_story, sent
from satchel.engines.chat.model import Endpoint
from satchel.engines.chat.tools import ChatTool, chat_tools
from satchel.engines.tools import ToolFailed
from satchel.errors import InvalidInput, RunFailed

if TYPE_CHECKING:
    import openai

MAX_TOKENS = 32_000
MAX_TURNS = 32
SILENCE = 120.0  # seconds
MOST_CALLS = 64  # of one answer: half of what may be open in a session

_STOP_REASONS = {"stop": "end_turn", "tool_calls": "end_turn", "function_call": "end_turn"}


class ChatEngine:
    """See satchel.engine.Engine. One object may serve many runs at once, on any thread.

    ``base_url`` and ``api_key``: left out, OPENAI_BASE_URL and OPENAI_API_KEY (but the environment's key goes to no
    ``base_url`` that is given here). ``instructions`` is the system prompt. ``tools``: functions, or ChatTool for more.
    ``max_tokens``: the part of the model's window that is filled, with instructions and tools. ``max_turns``: answers of the model in one run; a run that would need more fails.
    ``timeout``: seconds of silence after which an endpoint is given up. ``retries``: of a request that was refused before
    its first word. ``options``: more of the request's body, such as ``{"temperature": 0}``. ``name``: of its runs.

    Runs fail with ``model_unavailable`` (not reached, 5xx, silent, cut in the middle), ``model_rate_limited``,
    ``model_rejected`` (any other 4xx: key, model, request), ``model_filtered``, ``model_malformed`` or ``turn_limit``. What was said until then stays, as interrupted. The
    ``stop_reason`` of a run that completes is ``end_turn``, or the model's own word (``length``).

    Raises ExtraMissing without the extra ``openai``, and InvalidInput.
    """

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        instructions: str = "",
        tools: Iterable[ChatTool | Callable[..., Any]] = (),
        max_tokens: int = MAX_TOKENS,
        max_turns: int = MAX_TURNS,
        timeout: float = SILENCE,
        retries: int = 2,
        options: Mapping[str, Any] | None = None,
        name: str = "chat",
    ) -> None:
        if type(model) is not str or not model:
            raise InvalidInput("must be a model's name", field="model")
        if type(instructions) is not str:
            raise InvalidInput("must be text", field="instructions")
        _check_whole(max_turns, field="max_turns", least=1, most=10_000)
        _check_whole(retries, field="retries", least=0, most=100)
        if type(timeout) not in (int, float) or not 0 < timeout <= 86_400:
            raise InvalidInput("must be seconds, above 0 and up to 86400", field="timeout")
        self.model = model
        self.name = checked_id(name, field="name", limits=DEFAULT_LIMITS)
        self.instructions = instructions
        self.tools = chat_tools(tools)
        self.options = dict(options or {})
        self._offered = [tool.to_dict() for tool in self.tools.values()]
        overhead = estimate_tokens(instructions) + estimate_tokens(msgspec.json.encode(self._offered).decode())
        _check_whole(max_tokens, field="max_tokens", least=overhead + 200, most=100_000_000)
        self.max_tokens = max_tokens
        self.max_turns = max_turns
        self._room = max_tokens - overhead  # for the conversation
        self._endpoint = Endpoint(base_url=base_url, api_key=api_key, timeout=float(timeout), retries=retries)

    @property
    def room(self) -> int:
        """Tokens of ``max_tokens`` that instructions and tools leave to the conversation."""
        return self._room

    async def run(self, ctx: RunContext) -> None:
        async with self._endpoint.client() as client:
            await _Conversation(self, self._endpoint, client, ctx).hold()

    def request(self, messages: list[dict[str, Any]]) -> dict[str, Any]:
        """The body of one request to the model."""
        request: dict[str, Any] = {
            "model": self.model,
            "messages": messages,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if self._offered:
            request["tools"] = self._offered
        if self.options:
            request["extra_body"] = self.options
        return request


class _Stopped(Exception):
    """Somebody asked the run to stop while the model spoke."""


class _Conversation:
    """One call of the engine for one run."""

    def __init__(self, engine: ChatEngine, endpoint: Endpoint, client: openai.AsyncOpenAI, ctx: RunContext) -> None:
        self.engine = engine
        self.endpoint = endpoint
        self.client = client
        self.ctx = ctx
        self.story = Story()

    async def hold(self) -> None:
        """Go on from what the run's log holds until the model has nothing more to do."""
        story = self.story = await read_story(self.ctx)
        if story.last is not None and story.last.calls:
            await self._find_lost_calls(story.last)
        while not self.ctx.is_cancelled:
            if story.last is not None:
                if not story.last.calls:
                    return  # that was the answer
                await self._use_tools(story.last)
            if story.turns >= self.engine.max_turns:
                raise RunFailed("turn_limit", f"the model wanted to go on after {story.turns} answers")
            story.last = await self._ask()
            story.turns += 1
            if story.last is None:
                return

    # -- the model

    async def _ask(self) -> Said | None:
        """One answer of the model, as a message of the session; None when the run is to stop."""
        messages = await self._what_the_model_sees()
        answer = Answer()
        labels = {"engine": "chat", "model": self.engine.model}
        began = time.monotonic()
        try:
            async with self.ctx.stream(metadata=labels) as message:

                async def write(text: str) -> None:
                    if self.ctx.is_cancelled:
                        raise _Stopped
                    await message.write(text)

                try:
                    await self.endpoint.ask(self.client, self.engine.request(messages), answer, write)
                    calls = answer.calls
                    if len(calls) > MOST_CALLS:
                        raise RunFailed("model_malformed", f"the model asked for {len(calls)} tools at once")
                except RunFailed as failed:
                    await self._count(messages, answer, began, error=f"{failed.error_code}: {failed.message}")
                    raise
                except (asyncio.CancelledError, _Stopped):
                    with contextlib.suppress(
                        Exception
                    ):  # what ends the run is to be heard, not that it could not count
                        await self._count(messages, answer, began, error="cancelled")
                    raise
                await self._count(messages, answer, began)
                if calls:
                    message.tool_calls = [call.to_dict() for call in calls]
                if answer.reasoning:
                    message.members["reasoning_content"] = answer.reasoning
        except _Stopped:
            return None
        reason = answer.finish_reason or ""
        self.ctx.stop(_STOP_REASONS.get(reason, reason))
        kept = message.message
        if kept is None:  # an empty answer is one too, and is not to be asked for again
            kept = await self.ctx.append_message({"role": "assistant", "content": ""}, metadata=labels)
        if self.story.first is None:
            self.story.first = kept.data
        return Said(seq=kept.seq, calls=tuple(calls))

    async def _what_the_model_sees(self) -> list[dict[str, Any]]:
        context = await self.ctx.context(max_tokens=self.engine.room)
        return sent(self.ctx, self.story, self.engine.instructions, context.messages)

    async def _count(
        self, messages: list[dict[str, Any]], answer: Answer, began: float, *, error: str | None = None
    ) -> None:
        """The step of this model call: its tokens as the provider counts them; estimated where it does not, and something
        came."""
        name = self.engine.model
        usage = answer.usage or Usage()
        if answer.usage is None and (error is None or answer.text):
            name += " (tokens estimated)"
            usage = Usage(
                input_tokens=sum(message_tokens(message, estimate_tokens) for message in messages),
                output_tokens=answer.estimated(),
            )
        await self.ctx.step(
            name,
            input_tokens=usage.input_tokens,
            output_tokens=usage.output_tokens,
            total_tokens=usage.total_tokens,
            duration_ms=int((time.monotonic() - began) * 1000),
            error=error,
        )

    # -- the tools

    async def _find_lost_calls(self, said: Said) -> None:
        """Calls that were made before, and whose outcome nobody knows. They are not made again unless their tool says that
        this does no harm: what the model is shown of such a call says that it may have happened."""
        for call in await self.ctx.pending_calls():
            tool = self.engine.tools.get(call.tool)
            if call.may_have_happened and (tool is None or not tool.repeatable):
                said.answered.add(call.tool_call_id)

    async def _use_tools(self, said: Said) -> None:
        """All at once; then, one by one, those that a human decides about: a run asks one thing at a time, and nothing of it
        is open while it waits."""
        gated = [(place, call) for place, call in said.open_calls if self._needs_approval(call)]
        await self._use_at_once([call for place, call in said.open_calls if (place, call) not in gated])
        for place, call in gated:
            arguments = call.parsed()
            approval = await self.ctx.approve(f"{call.tool}-{said.seq}.{place}", call.tool, arguments)
            await self._use_tool(call, approval)

    def _needs_approval(self, asked: CallAsked) -> bool:
        tool = self.engine.tools.get(asked.tool)
        return tool is not None and tool.needs_approval and asked.parsed() is not None

    async def _use_at_once(self, calls: list[CallAsked]) -> None:
        """When one ends the run, the others are cancelled and waited for."""
        using = [asyncio.create_task(self._use_tool(call)) for call in calls]
        try:
            await asyncio.gather(*using)
        finally:
            for one in using:
                one.cancel()
            await asyncio.gather(*using, return_exceptions=True)

    async def _use_tool(self, asked: CallAsked, approval: Approval | None = None) -> None:
        arguments: Any = asked.parsed() if approval is None else approval.arguments
        name = asked.tool or "unnamed"
        is_open = False
        try:
            given = asked.arguments if arguments is None else arguments
            async with self.ctx.tool(name, given, tool_call_id=asked.label) as call:
                is_open = True
                try:
                    if approval is not None and not approval.is_granted:
                        raise ToolFailed(f"a human refused this call{approval.reason and f': {approval.reason}'}")
                    call.result = await self._result(asked, arguments)
                except ToolFailed as failed:
                    call.error = failed.message
        except InvalidInput as refused:
            if is_open:
                return  # it ran, and the history says so; the result could not be stored
            # The model's own words cannot be stored as a call: then they are no call, and it hears why.
            content = f"this call cannot be made: {refused}"
            await self.ctx.append_message({"role": "tool", "tool_call_id": asked.label, "content": content})

    async def _result(self, asked: CallAsked, arguments: Any) -> Any:
        tool = self.engine.tools.get(asked.tool)
        if tool is None:
            known = ", ".join(self.engine.tools) or "none"
            raise ToolFailed(f"there is no tool {asked.tool!r}; the tools are: {known}")
        if not isinstance(arguments, dict):
            raise ToolFailed("the arguments are not a JSON object")
        return await tool.call(self.ctx, arguments)


def from_environment() -> ChatEngine:
    """An engine without tools, for ``satchel worker --agent chat=satchel.engines.chat:from_environment``.

    SATCHEL_MODEL names the model; SATCHEL_INSTRUCTIONS, OPENAI_BASE_URL and OPENAI_API_KEY may be left out. Raises
    InvalidInput.
    """
    model = os.environ.get("SATCHEL_MODEL", "")
    if not model:
        raise InvalidInput("is not set: it names the model", field="SATCHEL_MODEL")
    return ChatEngine(model, instructions=os.environ.get("SATCHEL_INSTRUCTIONS", ""))


def _check_whole(value: object, *, field: str, least: int, most: int) -> None:
    if type(value) is not int or not least <= value <= most:
        raise InvalidInput(f"must be a whole number from {least:,} to {most:,}", field=field)
