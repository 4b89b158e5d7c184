"""What may be served, and how a command line names it."""

from __future__ import annotations

import functools
import sysconfig
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from satchel import InvalidInput, RunContext
from satchel.worker.agents import is_agent, is_factory, load_agent, make

MODULE = """
async def shop(ctx): ...

class Engine:
    async def run(self, ctx): ...

class Named(Engine):
    name = "the-engine"

engine = Engine()
named = Named()

class Space:
    inner = named
"""


@pytest.fixture(autouse=True)
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "served.py").write_text(MODULE)
    (tmp_path / "broken.py").write_text("import a_module_that_is_not_there\n")
    monkeypatch.syspath_prepend(tmp_path)


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("served:shop", "shop"),
        ("served:Engine", "Engine"),
        ("served:engine", "engine"),  # it has no name: what it is called in its module
        ("served:named", "the-engine"),
        ("served:Named", "the-engine"),
        ("served:Space.inner", "the-engine"),
        ("mine=served:named", "mine"),
        ("a=b=served:shop", "a=b"),
    ],
)
def test_an_agent_is_named_by_its_caller_or_by_itself(written: str, name: str) -> None:
    assert load_agent(written)[0] == name


@pytest.mark.parametrize(
    "written", ["served", "served:", ":shop", "=served:shop", "", "no.such.module:x", "served:nothing", "served.shop:x"]
)
def test_what_names_no_agent_is_refused(written: str) -> None:
    with pytest.raises(InvalidInput):
        load_agent(written)


def test_a_module_that_is_not_there_is_told_with_the_folders_that_were_searched(
    tmp_path: Path,
) -> None:
    for written, missing in (("agentz:shop", "agentz"), ("agentz.shop:x", "agentz")):
        with pytest.raises(InvalidInput, match=f"no module '{missing}' in {tmp_path}, .*Python's packages") as refused:
            load_agent(written)
        assert sysconfig.get_path("stdlib") not in str(refused.value)
    with pytest.raises(InvalidInput, match=r"no module 'served.shop'$"):  # its package is there
        load_agent("served.shop:x")


def test_a_module_that_cannot_be_imported_says_why() -> None:
    with pytest.raises(ModuleNotFoundError, match="a_module_that_is_not_there"):
        load_agent("broken:agent")


async def agent(ctx: RunContext) -> None: ...


async def seeded(seed: int, ctx: RunContext) -> None: ...


def decorated(function: Callable[..., Awaitable[None]]) -> Callable[..., Awaitable[None]]:
    @functools.wraps(function)
    def call(*arguments: Any) -> Awaitable[None]:
        return function(*arguments)

    return call


class Callee:
    async def __call__(self, ctx: RunContext) -> None: ...


class Engine:
    def __init__(self, seed: int = 0) -> None:
        self.seed = seed

    async def run(self, ctx: RunContext) -> None: ...


def factory(seed: int = 3) -> Engine:
    return Engine(seed)


def needy(ctx: RunContext) -> None: ...


AGENTS = [agent, functools.partial(seeded, 3), decorated(agent), Callee(), Engine()]


@pytest.mark.parametrize("given", AGENTS, ids=["function", "partial", "decorated", "callable", "engine"])
def test_engines_and_async_functions_are_agents(given: Any) -> None:
    assert is_agent(given)
    assert not is_factory(given)
    assert make(given) is given


FACTORIES = [Engine, factory, functools.partial(Engine, 4), lambda: agent]


@pytest.mark.parametrize("given", FACTORIES, ids=["class", "function", "partial", "lambda"])
def test_what_needs_no_argument_is_a_factory(given: Any) -> None:
    assert is_factory(given)
    assert not is_agent(given)
    assert is_agent(make(given))


def test_a_factory_must_make_an_agent() -> None:
    with pytest.raises(InvalidInput, match="not type"):
        make(lambda: Engine)  # type: ignore[arg-type, return-value]  # a factory of a factory
    assert not is_agent(needy)
    assert not is_factory(needy)
