"""What a worker may serve: an engine, an async function, or a factory that makes one of them."""

from __future__ import annotations

import importlib
import inspect
import sys
import sysconfig
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from satchel.domain.ids import checked_id
from satchel.domain.limits import DEFAULT_LIMITS
from satchel.engine import Agent, Engine
from satchel.errors import InvalidInput

Served = Agent | Callable[[], Agent]


def is_factory(given: object) -> bool:
    """A class, or a plain function (or anything else to be called) that needs no argument."""
    if isinstance(given, type):
        return True
    if isinstance(given, Engine) or not callable(given) or inspect.iscoroutinefunction(given):
        return False
    return not _positional(given)


def is_agent(given: object) -> bool:
    """An object with an async ``run``, or something async to be called with a context."""
    if isinstance(given, type):
        return False
    if isinstance(given, Engine):
        return _is_async(given.run)
    return callable(given) and bool(_positional(given)) and _is_async(given)


def make(given: Served) -> Agent:
    """The agent itself. A factory is called in the thread, and on the event loop, that will execute its agent's runs.

    Raises InvalidInput when a factory does not give an agent, and whatever the factory raises.
    """
    if not is_factory(given):
        return given  # type: ignore[return-value]  # checked when it was handed in
    made = given()  # type: ignore[call-arg, operator]  # a factory takes nothing
    if not is_agent(made):
        raise InvalidInput(f"a factory must give an agent, not {type(made).__name__}", field="agent")
    return made  # type: ignore[return-value]  # just checked


def checked_agents(agents: Mapping[str, Served]) -> dict[str, Served]:
    """Raises InvalidInput for a name that no run can have, and for what is no agent."""
    if not agents:
        raise InvalidInput("a worker needs an agent to serve", field="agents")
    for name, given in agents.items():
        checked_id(name, field="agent", limits=DEFAULT_LIMITS)
        if not is_agent(given) and not is_factory(given):
            raise InvalidInput(
                f"{name} must be an object with an async run(ctx), an async function of one argument, or a function"
                f" without arguments that makes one of them; not {type(given).__name__}",
                field="agent",
            )
    return dict(agents)


def load_agent(written: str) -> tuple[str, Served]:
    """``module:object`` or ``name=module:object``: the name of the runs that it will get, and the object.

    Left out, the name is the object's ``name``, or what it is called in its code. Raises InvalidInput; what the module
    raises when it is imported goes through.
    """
    name, given_name, place = written.rpartition("=")
    module_name, colon, path = place.partition(":")
    if not colon or not module_name or not path or (given_name and not name):
        raise InvalidInput(f"{written!r} is not module:object or name=module:object", field="agent")
    try:
        found: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as missing:
        if missing.name is None or not f"{module_name}.".startswith(f"{missing.name}."):
            raise  # it is there, and what it imports itself is not
        where = "" if "." in missing.name else f" in {_folders()}, or among Python's packages"
        raise InvalidInput(f"there is no module {missing.name!r}{where}", field="agent") from missing
    for part in path.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            raise InvalidInput(f"{module_name} has no {path}", field="agent") from None
    return name or _name_of(found) or path.rpartition(".")[2], found


def _folders() -> str:
    """Where modules of one's own are looked for: all of the path that is not Python's own."""
    own = [Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib", "purelib", "platlib", "scripts")]
    folders = dict.fromkeys(Path(entry).absolute() for entry in sys.path)
    return ", ".join(
        str(one) for one in folders if one.is_dir() and not any(one.is_relative_to(python) for python in own)
    )


def _name_of(found: object) -> str | None:
    for attribute in ("name", "__name__"):
        value = getattr(found, attribute, None)
        if isinstance(value, str) and value:
            return value
    return None


def _is_async(given: Callable[..., object]) -> bool:
    """Also behind a decorator, and of an object with an async ``__call__``; one that hides what it calls may be."""
    inner = inspect.unwrap(given)
    if any(inspect.iscoroutinefunction(one) for one in (given, inner, type(inner).__call__)):
        return True
    kinds = {parameter.kind for parameter in _positional(inner)}
    return kinds == {inspect.Parameter.VAR_POSITIONAL}


def _positional(given: Callable[..., object]) -> list[inspect.Parameter]:
    """The parameters that an argument would meet, and that need one."""
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    try:
        parameters = inspect.signature(given).parameters.values()
    except (TypeError, ValueError):  # written in C, and says nothing
        return []
    needed = [one for one in parameters if one.kind in kinds and one.default is inspect.Parameter.empty]
    return needed or [one for one in parameters if one.kind is inspect.Parameter.VAR_POSITIONAL]
