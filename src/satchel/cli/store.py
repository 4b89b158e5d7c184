"""Opening the store of a URL as its operator."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import satchel
from satchel import OpenStore, Principal, SessionManager
from satchel.cli import output
from satchel.cli.failures import FlagRefused, StoreMissing, StoreNotShared
from satchel.cli.flag import variable
from satchel.cli.flags import Where, Whose

T = TypeVar("T")

SQLITE = "sqlite:///"


@asynccontextmanager
async def opened(
    where: Where | Whose, *, create: bool = False, json: bool = False
) -> AsyncIterator[tuple[SessionManager, OpenStore]]:
    """The sessions of one tenant, or of one user of it, and the open store itself.

    Unless ``create``, a store that is not there yet is not made. Raises FlagRefused, StoreMissing, StoreNotShared, Unauthenticated.
    """
    for name, identity in (("--tenant", where.tenant), ("--user", where.user)):
        if identity == "":
            raise FlagRefused(f"{name} is empty, and an empty text is not an identity")
    principal = Principal.operator(tenant_id=where.tenant, acting_for=where.user)
    if where.store.startswith("memory:"):
        raise StoreNotShared
    if not create:
        check_there(where.store)
    made = new_file(where.store)
    async with satchel.open(where.store) as store:
        say_made(made, json=json)
        yield SessionManager(store, principal), store


def where_flags(where: Where) -> str:
    """What another command on this store needs, to be pasted behind it; what the variables say is left to them, and an address
    with a password to whoever knows it."""
    given = (
        ("--store", None if has_password(where.store) else where.store),
        ("--tenant", where.tenant),
        ("--user", where.user),
    )
    words = (
        word
        for name, value in given
        if value is not None and os.environ.get(variable(name)) != value
        for word in (name, value)
    )
    return "".join(f" {shlex.quote(word)}" for word in words)


def has_password(url: str) -> bool:
    account, at, _ = url.partition("://")[2].rpartition("@")
    return bool(at) and ":" in account


def without_password(url: str) -> str:
    """The address as terminals and logs may show it."""
    if has_password(url):
        scheme, _, rest = url.partition("://")
        account, _, place = rest.rpartition("@")
        url = f"{scheme}://{account.partition(':')[0]}:***@{place}"
    return re.sub(r"(?<=[?&]password=)[^&]*", "***", url)


def check_there(url: str) -> None:
    path = new_file(url)
    if path is not None:
        raise StoreMissing(path)


def new_file(url: str) -> str | None:
    """The file that opening this store would make; None: it is there, or is no file."""
    path = url.removeprefix(SQLITE)
    if not path or path == url:
        return None
    try:
        return None if Path(path).exists() else path
    except (OSError, ValueError):
        return None  # the store says better what is wrong with it


def say_made(path: str | None, *, json: bool = False) -> None:
    """A name with a slip in it would be a store of its own, and nobody would know. With --json stderr holds JSON alone."""
    if path is not None and not json:
        output.say(f"satchel: {made_sentence(path)}")


def made_sentence(path: str) -> str:
    return f"made a new store at {Path(path).absolute()}"


def run_async(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(work)
