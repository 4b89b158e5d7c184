"""Python functions as a model's tools: the schema from the signature, arguments checked by it, and every way of failing
turned into words for the model."""

from __future__ import annotations

import asyncio
import inspect
import logging
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, get_type_hints

import msgspec

from satchel.engine import RunContext
from satchel.engines.tools import ToolFailed
from satchel.errors import InvalidInput, RunFailed, RunFenced
from satchel.failing import readable

TIMEOUT = 60.0  # seconds

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")  # what every provider accepts
_REFERENCE = "#/$defs/"

_log = logging.getLogger("satchel.engines.chat")


class ChatTool:
    """``function`` as a tool: async, or plain (then it runs in a thread). It takes its arguments by name and answers what
    JSON can hold.

    Left out, ``name`` is the function's, ``description`` its docstring, and ``parameters`` (a JSON schema of an object) is
    made from its signature: types as msgspec knows them, ``Annotated[int, msgspec.Meta(description="…")]`` for more. A
    parameter of type RunContext is not the model's: it gets the run's context.

    What the function raises becomes the call's failure, and the model reads it: ToolFailed as it says, any other exception
    with its type. So does what takes longer than ``timeout`` seconds; a plain function runs on in its thread all the same,
    for nobody can stop it. ``repeatable``: whether it may run again when the process died or was stopped in the middle of it
    and nobody knows what it did; if not, the model is told so. ``needs_approval``: a human decides about each call first.

    Raises InvalidInput.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        name: str | None = None,
        description: str | None = None,
        parameters: Mapping[str, Any] | None = None,
        timeout: float = TIMEOUT,
        repeatable: bool = False,
        needs_approval: bool = False,
    ) -> None:
        if not callable(function):
            raise InvalidInput(f"must be a function, not {type(function).__name__}", field="tools")
        self.name: str = name or getattr(function, "__name__", None) or type(function).__name__
        if not _NAME.fullmatch(self.name):
            raise InvalidInput(f"{self.name!r} must be 1 to 64 of a-z, A-Z, 0-9, _ and -", field="tools")
        if type(timeout) not in (int, float) or not 0 < timeout <= 86_400:
            raise InvalidInput(f"{self.name}: timeout must be seconds, above 0 and up to 86400", field="tools")
        self.description = description if description is not None else inspect.getdoc(function) or ""
        self.timeout = float(timeout)
        self.repeatable = repeatable
        self.needs_approval = needs_approval
        self._function = function
        called = function if inspect.isroutine(function) else type(function).__call__
        self._is_async = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(called)
        self._context_name, self._arguments = _arguments_of(self.name, function, is_needed=parameters is None)
        self.parameters: dict[str, Any] = _schema(self._arguments) if parameters is None else dict(parameters)

    def to_dict(self) -> dict[str, Any]:
        """As a chat request holds it."""
        function = {"name": self.name, "description": self.description, "parameters": self.parameters}
        return {"type": "function", "function": function}

    async def call(self, ctx: RunContext, arguments: Mapping[str, Any]) -> Any:
        """The result as JSON values. Raises ToolFailed, and what ends the run: RunFenced, RunFailed, cancellation."""
        given = self._checked(arguments)
        if self._context_name is not None:
            given[self._context_name] = ctx
        limit = asyncio.timeout(self.timeout)
        try:
            async with limit:
                if self._is_async:
                    result = await self._function(**given)
                else:
                    result = await asyncio.to_thread(self._function, **given)
                    if inspect.isawaitable(result):  # a plain function that makes a coroutine, as partial does
                        result = await result
        except (ToolFailed, RunFenced, RunFailed):
            raise
        except Exception as error:  # noqa: BLE001  # whatever a tool raises is its outcome: the model reads it, the log keeps it
            if isinstance(error, TimeoutError) and limit.expired():
                raise ToolFailed(f"no result within {self.timeout:g} s; it may still take effect") from None
            _log.warning("the tool %s failed", self.name, exc_info=error)
            raise ToolFailed(readable(error)) from None
        try:
            return msgspec.to_builtins(result, str_keys=True)
        except (TypeError, ValueError, RecursionError) as wrong:
            raise ToolFailed(f"it ran, but its result is not JSON: {readable(wrong)}") from None

    def _checked(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        if self._arguments is None:  # the schema was given: what it says is the function's to check
            return dict(arguments)
        try:
            checked = msgspec.convert(arguments, self._arguments, strict=False)
        except (msgspec.ValidationError, RecursionError) as wrong:
            raise ToolFailed(f"wrong arguments: {wrong}") from None
        return {name: getattr(checked, name) for name in self._arguments.__struct_fields__}


def chat_tools(tools: Iterable[ChatTool | Callable[..., Any]]) -> dict[str, ChatTool]:
    """By name. Raises InvalidInput for what is no tool, and for two of one name."""
    found: dict[str, ChatTool] = {}
    for given in tools:
        tool = given if isinstance(given, ChatTool) else ChatTool(given)
        if tool.name in found:
            raise InvalidInput(f"two tools are called {tool.name}", field="tools")
        found[tool.name] = tool
    return found


def _arguments_of(
    name: str, function: Callable[..., Any], *, is_needed: bool
) -> tuple[str | None, type[msgspec.Struct] | None]:
    """The parameter that takes the run's context, and the others as a type, unless it is not needed."""
    try:
        parameters = inspect.signature(function).parameters.values()
        hints = get_type_hints(
            function if inspect.isroutine(function) else type(function).__call__, include_extras=True
        )
    except (TypeError, ValueError, NameError) as unreadable:
        if not is_needed:
            return None, None
        raise InvalidInput(f"{name} has no signature that can be read: {unreadable}", field="tools") from unreadable
    context = [one.name for one in parameters if hints.get(one.name) is RunContext]
    if not is_needed:
        return (context[0] if context else None), None
    fields: list[tuple[str, Any] | tuple[str, Any, Any]] = []
    for one in parameters:
        if one.name in context:
            continue
        if one.kind not in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY):
            raise InvalidInput(f"{name} takes {one}: give its schema as `parameters`", field="tools")
        kind = hints.get(one.name, Any)
        fields.append((one.name, kind) if one.default is one.empty else (one.name, kind, _default(one.default)))
    try:
        arguments = msgspec.defstruct(name, fields, kw_only=True, forbid_unknown_fields=True)
        _schema(arguments)
    except (TypeError, ValueError) as wrong:
        raise InvalidInput(f"{name} has a parameter that has no JSON schema: {wrong}", field="tools") from wrong
    return (context[0] if context else None), arguments


def _default(value: Any) -> Any:
    if isinstance(value, (list, dict, set)) and value:  # a struct refuses these as they stand: they would be shared
        return msgspec.field(default_factory=value.copy)
    return value


def _schema(arguments: type[msgspec.Struct] | None) -> dict[str, Any]:
    assert arguments is not None
    (schema,), parts = msgspec.json.schema_components([arguments], ref_template=_REFERENCE + "{name}")
    top = parts.pop(schema["$ref"].removeprefix(_REFERENCE))
    top.pop("title", None)
    return {**top, "$defs": parts} if parts else top
