"""Several hosts, of which one takes writes. A machine that died takes the packets and says nothing: nobody waits for it while
another could answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, TypeVar
from urllib.parse import urlsplit

T = TypeVar("T")

HEAD_START = 0.3  # seconds that each host has before the next is asked too


def single_hosts(dsn: str) -> tuple[str, ...]:
    """The address of each host of ``dsn``, in their order."""
    parts = urlsplit(dsn)
    account, at, hosts = parts.netloc.rpartition("@")
    return tuple(parts._replace(netloc=account + at + host).geturl() for host in hosts.split(","))


def name_of_host(dsn: str) -> str:
    """Without the account and its password."""
    return urlsplit(dsn).netloc.rpartition("@")[2]


async def first_that_answers(
    asks: Iterable[Callable[[], Coroutine[Any, Any, T]]],
    *,
    errors: tuple[type[Exception], ...],
    most_telling: Callable[[list[Exception]], Exception],
    let_go: Callable[[T], None],
) -> T:
    """The first that does not raise one of ``errors``; what came too late is let go. Raises the most telling of them all."""
    left = list(asks)[::-1]
    asked: set[asyncio.Task[T]] = set()
    failed: list[Exception] = []
    try:
        while left or asked:
            if left:
                asked.add(asyncio.create_task(left.pop()()))
            done, _ = await asyncio.wait(
                asked, timeout=HEAD_START if left else None, return_when=asyncio.FIRST_COMPLETED
            )
            for task in done:
                asked.discard(task)
                try:
                    return task.result()
                except errors as error:
                    failed.append(error)
        raise most_telling(failed)
    finally:
        for task in asked:
            task.add_done_callback(lambda late: _let_go(late, let_go))
            task.cancel()


def _let_go(late: asyncio.Task[T], let_go: Callable[[T], None]) -> None:
    if not late.cancelled() and late.exception() is None:
        let_go(late.result())
