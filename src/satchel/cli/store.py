"""Opening the store of a URL as its operator."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import satchel
from satchel import OpenStore, Principal, SessionManager
from satchel.cli.failures import FlagRefused, StoreMissing, StoreNotShared
from satchel.cli.flags import Where, Whose

T = TypeVar("T")

SQLITE = "sqlite:///"


@asynccontextmanager
async def opened(where: Where | Whose, *, create: bool = False) -> AsyncIterator[tuple[SessionManager, OpenStore]]:
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
    async with satchel.open(where.store) as store:
        yield SessionManager(store, principal), store


def check_there(url: str) -> None:
    path = url.removeprefix(SQLITE)
    if not path or path == url:
        return
    try:
        is_there = Path(path).exists()
    except OSError:
        return  # the store says better what is wrong with it
    if not is_there:
        raise StoreMissing(path)


def run_async(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(work)
