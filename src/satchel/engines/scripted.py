"""The scripted engine: an agent whose words are a script and whose tools are real.

Offline and deterministic: the same seed, session state and tool results give the same messages. It is for demos and
tests, and says so: in its name, in the metadata of each message, in the name of each step.

It knows what the session knows and nothing else. Its answers quote goal, last completed step and next action from working
memory; without memory it says that it does not know what to continue; it says which call's outcome is unknown; and what
memory says is done, and the tool history has a result of, is not done again. (It sees the newest 50 calls, as a Session
does.)
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from satchel.domain.memory import FIELDS, WorkingMemory
from satchel.domain.tokens import estimate_tokens, message_tokens
from satchel.domain.tool_call import ToolCall
from satchel.engine import RunContext
from satchel.engines import phrases
from satchel.engines.phrases import call_shown
from satchel.engines.script import Call, Intent, Recall, Remember, Say, Script, Step, Text, language_of, value_at
from satchel.engines.tools import Tool, ToolFailed

WINDOW = 8000  # tokens of context that a model would be given: the estimate of a step's input

_CONTINUE = (
    r"^\W*(?:请|我们|那)*\s*(?:继续|接着)|^\W*(?:please\s+|let'?s\s+)?(?:continue|go on|carry on|resume|keep going)\b"
)
_RETRY = r"^\W*(?:请|那)*\s*(?:重做|重试|再试一次)|^\W*(?:please\s+)?(?:retry|repeat|try again|do it again)\b"
_STATUS = r"总结|做到哪|进展|\b(?:summari[sz]e|summary|where are we|how far)\b"


class ScriptedEngine:
    """See satchel.engine.Engine. ``tools`` are called by the names that the script uses."""

    def __init__(self, script: Script, tools: Mapping[str, Tool], *, seed: int = 0) -> None:
        missing = script.tools - tools.keys()
        if missing:
            raise ValueError(f"the script {script.name!r} calls tools that are not given: {', '.join(sorted(missing))}")
        self.script = script
        self.tools = dict(tools)
        self.seed = seed

    @property
    def name(self) -> str:
        """The ``agent`` of its runs."""
        return f"scripted-{self.script.name}"

    async def run(self, ctx: RunContext) -> None:
        await _Play(self, ctx).play()


class _Stuck(Exception):
    """The script cannot go on. ``said`` tells the user why."""

    def __init__(self, said: str, *, reason: str) -> None:
        super().__init__(said)
        self.said = said
        self.reason = reason


class _Play:
    """One run of one engine."""

    def __init__(self, engine: ScriptedEngine, ctx: RunContext) -> None:
        self.engine = engine
        self.ctx = ctx
        self.said = _said(ctx)
        self.language = language_of(self.said)
        self.intent = "none"
        self.values: dict[str, str] = {}
        self.memory = WorkingMemory()
        self.parts: list[str] = []  # of the next assistant message
        self.calls = 0

    async def play(self) -> None:
        session = await self.ctx.session()
        assert session.working_memory is not None  # left out of lists only
        self.memory = session.working_memory
        unknown = unknown_calls(session.tool_history)
        try:
            await self._answer(unknown)
        except _Stuck as stuck:
            self.parts.append(stuck.said)
            self.ctx.stop(stuck.reason)
        if self.ctx.is_cancelled:
            return
        memory = await self.ctx.working_memory()
        if not memory.is_empty and self.intent not in ("continue", "status"):  # these have quoted it already
            self.parts.append(phrases.standing(memory, self.language))
        await self._speak()

    # -- which intent

    async def _answer(self, unknown: Sequence[ToolCall]) -> None:
        matched = self.engine.script.intent_of(self.said)
        if matched is not None and not self._is_under_way(*matched):
            intent, self.values = matched
            self.intent = intent.name
            self._say_unknown(unknown)
            await self._begin(intent)
            await self._perform(intent.steps)
        elif matched is not None or re.search(_CONTINUE, self.said, re.IGNORECASE):
            self.intent = "continue"
            await self._continue(unknown)
        elif re.search(_RETRY, self.said, re.IGNORECASE):
            self.intent = "retry"
            await self._retry(unknown)
        elif re.search(_STATUS, self.said, re.IGNORECASE):
            self.intent = "status"
            self._recap(unknown)
        else:
            self._say_unknown(unknown)
            examples = [intent.example.fill(self.language, {}) for intent in self.engine.script.intents]
            self.parts.append(phrases.NOT_UNDERSTOOD.fill(self.language, {"examples": " / ".join(examples)}))
            self.ctx.stop("not_understood")

    def _is_under_way(self, intent: Intent, values: Mapping[str, str]) -> bool:
        return intent.begins is not None and intent.begins.is_among((self.memory.goal,), values)

    async def _continue(self, unknown: Sequence[ToolCall]) -> None:
        self._recap(unknown)
        if unknown:
            return  # whether to repeat it is the user's to say
        intent = self.engine.script.next_intent(self.memory.next_action)
        if intent is None:
            phrase = phrases.NOT_MY_STEP if self.memory.next_action else phrases.NO_NEXT_STEP
            raise _Stuck(phrase.fill(self.language, {}), reason="nothing_to_do")
        self.intent = intent.name
        await self._perform(intent.steps)

    def _recap(self, unknown: Sequence[ToolCall]) -> None:
        if self.memory.is_empty:
            self._say_unknown(unknown)
            raise _Stuck(phrases.NOT_KNOWN.fill(self.language, {}), reason="nothing_to_continue")
        self.parts.append(phrases.recap(self.memory, self.language, variant=int(self._draw("opening"), 16)))
        self._say_unknown(unknown)

    async def _retry(self, unknown: Sequence[ToolCall]) -> None:
        again = [call for call in unknown if call.tool in self.engine.tools and isinstance(call.arguments, dict)]
        if not again:
            raise _Stuck(phrases.NOTHING_TO_RETRY.fill(self.language, {}), reason="nothing_to_do")
        for call in again:
            shown = {"call": call_shown(call.tool, call.arguments)}
            self.parts.append(phrases.RETRYING.fill(self.language, shown))
            await self._use_tool(call.tool, call.arguments)
            self.parts.append(phrases.RETRIED.fill(self.language, shown))

    def _say_unknown(self, unknown: Sequence[ToolCall]) -> None:
        if unknown:
            self.parts.append(phrases.unknown_shown(unknown, self.language))

    # -- steps

    async def _begin(self, intent: Intent) -> None:
        if intent.begins is not None:
            patch: dict[str, Any] = {"set": {"goal": self._fill(intent.begins)}}
            if not self.memory.is_empty:
                patch["clear"] = list(FIELDS)
            self.memory = await self.ctx.update_working_memory(patch)

    async def _perform(self, steps: Sequence[Step]) -> None:
        for step in steps:
            if self.ctx.is_cancelled:
                return
            match step:
                case Say(text=text):
                    self.parts.append(self._fill(text))
                case Recall():
                    self._recall(step)
                case Remember():
                    await self._remember(step)
                case Call():
                    await self._call(step)

    def _recall(self, step: Recall) -> None:
        kept: str | tuple[str, ...] = getattr(self.memory, step.field)
        for text in (kept,) if isinstance(kept, str) else reversed(kept):
            found = re.search(step.pattern, text)
            if found is not None:
                self.values[step.name] = found[1]
                return
        if step.what is None:
            return
        missing = phrases.NOT_IN_MEMORY.fill(self.language, {"what": self._fill(step.what)})
        raise _Stuck(missing, reason="nothing_to_continue")

    async def _remember(self, step: Remember) -> None:
        patch: dict[str, dict[str, Any]] = {}
        if step.remove:
            patch["remove"] = {field: [self._fill(text) for text in texts] for field, texts in step.remove.items()}
        for field, texts in step.append.items():
            new = [self._fill(text) for text in texts if not text.is_among(getattr(self.memory, field), self.values)]
            if new:
                patch.setdefault("append", {})[field] = new
        unset = {field: text for field, text in step.default.items() if not getattr(self.memory, field)}
        if changes := {**unset, **step.set}:
            patch["set"] = {field: self._fill(text) for field, text in changes.items()}
        if patch:
            self.memory = await self.ctx.update_working_memory(patch)

    async def _call(self, step: Call) -> None:
        arguments = {
            name: value.format_map(self.values) if isinstance(value, str) else value
            for name, value in step.arguments.items()
        }
        shown = call_shown(step.tool, arguments)
        earlier = await self._result_known(step, arguments)
        if earlier is None:
            self.parts.append(self._fill(step.because))
            result = await self._use_tool(step.tool, arguments)
        else:
            self.parts.append(phrases.FROM_HISTORY.fill(self.language, {"call": shown, "seq": str(earlier.seq)}))
            result = earlier.result
        for path, wanted in step.expect.items():
            if (found := value_at(result, path)) != wanted:
                self._unexpected(shown, path, found, wanted)
        for name, keep in step.keep.items():
            value = keep.take(result)
            if value is None:
                self._unexpected(shown, keep.path, value_at(result, keep.path), keep.pattern or name)
            else:
                self.values[name] = value

    def _unexpected(self, shown: str, path: str, found: object, wanted: object) -> NoReturn:
        values = {"call": shown, "path": path, "found": repr(found)[:300], "wanted": repr(wanted)}
        raise _Stuck(phrases.UNEXPECTED.fill(self.language, values), reason="unexpected_result")

    async def _result_known(self, step: Call, arguments: Mapping[str, Any]) -> ToolCall | None:
        """The call in the history that makes this one needless: memory says that it is done, and its result is there."""
        if step.known_by is None or not step.known_by.is_among(self.memory.completed, self.values):
            return None
        session = await self.ctx.session()
        for call in reversed(session.tool_history):
            if call.ok and call.tool == step.tool and (call.arguments or {}) == arguments:
                return call
        return None

    async def _use_tool(self, tool: str, arguments: Mapping[str, Any]) -> Any:
        """Say that the tool is called, call it, and let its outcome be written as the answer to that very call."""
        self.calls += 1
        label = f"call_{self._draw(f'call {self.calls}')}"
        function = {"name": tool, "arguments": json.dumps(arguments, ensure_ascii=False)}
        await self._speak(tool_calls=[{"id": label, "type": "function", "function": function}])
        async with self.ctx.tool(tool, arguments, tool_call_id=label) as call:
            try:
                call.result = await self.engine.tools[tool](**arguments)
            except ToolFailed as failed:
                call.error = failed.message
        if call.error is not None:
            values = {"call": call_shown(tool, arguments), "error": str(call.error)}
            raise _Stuck(phrases.TOOL_FAILED.fill(self.language, values), reason="tool_failed")
        return call.result

    # -- saying

    async def _speak(self, *, tool_calls: list[dict[str, Any]] | None = None) -> None:
        """One message, and the step of the model call that would have made it, with estimated tokens."""
        message: dict[str, Any] = {"role": "assistant", "content": "\n".join(self.parts)}
        if tool_calls is not None:
            message["tool_calls"] = tool_calls
        self.parts = []
        context = await self.ctx.context(max_tokens=WINDOW)
        output_tokens = message_tokens(message, estimate_tokens)
        await self.ctx.step(f"scripted: {self.intent}", input_tokens=context.tokens, output_tokens=output_tokens)
        await self.ctx.append_message(message, metadata=self._labels())

    def _labels(self) -> dict[str, Any]:
        return {
            "engine": "scripted",
            "agent": self.engine.name,
            "intent": self.intent,
            "seed": self.engine.seed,
            "tokens": "estimated",
        }

    def _fill(self, text: Text) -> str:
        return text.fill(self.language, self.values)

    def _draw(self, what: str) -> str:
        """Twelve hex digits that the seed, the run's number and its attempt give."""
        source = f"{self.engine.seed}/{self.ctx.run.number}/{self.ctx.attempt.attempt}/{what}"
        return hashlib.sha256(source.encode()).hexdigest()[:12]


def unknown_calls(history: Sequence[ToolCall]) -> list[ToolCall]:
    """Calls whose outcome nobody knows, and which were not made again since with an outcome that is known."""
    open_questions: dict[tuple[str, str], ToolCall] = {}
    for call in history:
        if call.status == "unknown":
            open_questions[call.tool, call.arguments_hash] = call
        elif call.ok is not None:
            open_questions.pop((call.tool, call.arguments_hash), None)
    return list(open_questions.values())


def _said(ctx: RunContext) -> str:
    """The text of the run's input; without one, the run's goal."""
    body = ctx.run.input
    content = body.get("content") if isinstance(body, dict) else None
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        texts = (part.get("text") for part in content if isinstance(part, dict))
        return "\n".join(text for text in texts if isinstance(text, str))
    return ctx.run.goal
