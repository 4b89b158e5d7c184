"""What async code iterates and enters, for plain ``for`` and ``with``."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, suppress
from types import TracebackType
from typing import Any, Generic, TypeVar

from satchel.sync.background import BackgroundLoop, ask, cancel

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
S = TypeVar("S")


class _Ended:
    """What stands for StopAsyncIteration, which no call can hand over."""


_ENDED = _Ended()


class Iteration(Iterator[T_co]):
    """A plain iterator over what an async one gives.

    ``close()``, leaving a ``with`` block around it, or dropping it ends the source; ``close()`` from another thread ends
    also a ``next`` that waits there.
    """

    def __init__(self, loop: BackgroundLoop, source: AsyncIterator[T_co]) -> None:
        self._loop = loop
        self._source = source
        self._step: asyncio.Task[Any] | None = None  # the `next` that waits; touched on the loop alone
        self._closed = False

    def __iter__(self) -> Iteration[T_co]:
        return self

    def __next__(self) -> T_co:
        if self._closed:
            raise StopIteration
        item = self._loop.call(self._advance())
        if isinstance(item, _Ended):
            raise StopIteration
        return item

    def close(self) -> None:
        """End it. Twice is fine."""
        if not self._closed and not self._loop.is_inherited:
            self._loop.call(self._finish())

    def __enter__(self) -> Iteration[T_co]:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    async def _advance(self) -> T_co | _Ended:
        if self._step is not None:
            raise RuntimeError("another thread is taking the next item of this iterator")
        self._step = asyncio.current_task()
        try:
            return await anext(self._source, _ENDED)
        except asyncio.CancelledError:
            if self._closed:
                return _ENDED
            raise
        finally:
            self._step = None

    async def _finish(self) -> None:
        self._closed = True
        if self._step is not None:
            await cancel([self._step])
        if isinstance(self._source, AsyncGenerator):
            await self._source.aclose()


class Feed(AsyncIterator[T]):
    """A plain iterable for async code. Its items are taken in the thread that waits for the call which wants them: what is
    read there, a file or another Iteration, is not read on the loop."""

    def __init__(self, items: Iterable[T]) -> None:
        self._items = iter(items)

    def __aiter__(self) -> Feed[T]:
        return self

    async def __anext__(self) -> T:
        item = await ask(lambda: next(self._items, _ENDED))
        if isinstance(item, _Ended):
            raise StopAsyncIteration
        return item


class Held(AbstractContextManager[T], Generic[S, T]):
    """An async context manager for a plain ``with``; the block runs in the calling thread.

    What interrupts the block without being an error (Ctrl-C, SystemExit) reaches the async side as a cancellation, and is
    raised here as it was.
    """

    def __init__(self, loop: BackgroundLoop, manager: AbstractAsyncContextManager[S], shown: Callable[[S], T]) -> None:
        self._loop = loop
        self._manager = manager
        self._shown = shown

    def __enter__(self) -> T:
        return self._shown(self._loop.call(_waited(self._manager.__aenter__())))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        if error is None or isinstance(error, Exception):
            return self._loop.call(_waited(self._manager.__aexit__(kind, error, trace)))
        self._loop.call(_leave_cancelled(self._manager))
        return False


async def _waited(work: Awaitable[T]) -> T:
    return await work


async def _leave_cancelled(manager: AbstractAsyncContextManager[Any]) -> None:
    with suppress(asyncio.CancelledError):
        cancelled = asyncio.CancelledError()
        await manager.__aexit__(type(cancelled), cancelled, None)


def as_it_is(value: T) -> T:
    return value
