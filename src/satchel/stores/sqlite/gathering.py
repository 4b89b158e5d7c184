"""Reads that are asked for in one turn of the event loop go to a reading thread together: one hop there and back, and one
snapshot, for all of them. The hop costs more than a small read does."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, TypeVar

from satchel.domain.state import Clock
from satchel.errors import StoreMisused
from satchel.store import Landing
from satchel.stores.sqlite.connection import UNBINDABLE, meaning_of, roll_back, translated, unbindable
from satchel.stores.sqlite.crew import Crew

T = TypeVar("T")
Work = Callable[[sqlite3.Connection, Clock], T]

ROWS_TOGETHER = 256  # a page of many rows keeps few others waiting
SURELY_LONE = 16  # jobs of one read, after which the next is not expected to have company


class _Asked(NamedTuple):
    work: Work[Any]
    rows: int
    future: asyncio.Future[Any]
    begun: Callable[[], None] | None


_Results = list[tuple[Any, Exception | None]]


class Reads:
    """``crew``: the threads, each with a connection of its own. ``clock`` is read for each job once."""

    def __init__(self, crew: Crew[sqlite3.Connection], clock: Callable[[], Clock]) -> None:
        self._crew = crew
        self._clock = clock
        self._asked: dict[asyncio.AbstractEventLoop, list[_Asked]] = {}
        self._jobs = 0  # that are on their way
        self._lone = 0  # in a row, that held one read each

    def ask(self, work: Work[T], *, rows: int = 1, begun: Callable[[], None] | None = None) -> asyncio.Future[T]:
        """``work`` in a snapshot that is taken after this. ``rows``: about so many it reads at most. ``begun`` is called, on
        the reading thread, before that snapshot is taken. The future raises what ``work`` does, and StoreError."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        one = _Asked(work, rows, future, begun)
        waiting = self._asked.get(loop)
        if waiting is not None:
            waiting.append(one)
        elif self._lone >= SURELY_LONE and not self._jobs:
            self._hand_in([one])
        else:
            self._asked[loop] = [one]
            loop.call_soon(self._gathered, loop)
        return future

    def _gathered(self, loop: asyncio.AbstractEventLoop) -> None:
        together: list[_Asked] = []
        rows = 0
        for one in self._asked.pop(loop):
            if together and rows + one.rows > ROWS_TOGETHER:
                self._hand_in(together)
                together, rows = [], 0
            together.append(one)
            rows += one.rows
        self._hand_in(together)

    def _hand_in(self, together: list[_Asked]) -> None:
        self._lone = self._lone + 1 if len(together) == 1 and not self._jobs else 0
        job: Landing[_Results] = Landing()
        job.heard = partial(self._answer, together)
        try:
            _ = self._crew.submit(partial(self._read, together), job)  # `heard` hears it
        except StoreMisused as closed:
            for one in together:
                _settle(one.future, None, closed)
        else:
            self._jobs += 1

    def _read(self, together: list[_Asked], connection: sqlite3.Connection) -> _Results:
        for one in together:
            if one.begun is not None:
                one.begun()
        results: _Results = []
        clock = self._clock()
        try:
            for one in together:
                if not connection.in_transaction:  # the first, or the one before it failed
                    with translated():
                        connection.execute("BEGIN")
                try:
                    results.append((one.work(connection, clock), None))
                except Exception as error:  # noqa: BLE001  # it is this read's own
                    results.append((None, _meaning(error)))
                    roll_back(connection)
        finally:
            roll_back(connection)
        return results

    def _answer(self, together: list[_Asked], job: asyncio.Future[_Results]) -> None:
        self._jobs -= 1
        failure = job.exception()
        if failure is not None:  # there is no connection, or no transaction: it is everybody's
            for one in together:
                _settle(one.future, None, failure)
        else:
            for one, (result, error) in zip(together, job.result(), strict=True):
                _settle(one.future, result, error)


def _meaning(error: Exception) -> Exception:
    said: Exception
    if isinstance(error, UNBINDABLE):
        said = unbindable(error)
    elif isinstance(error, sqlite3.Error):
        said = meaning_of(error)
    else:
        return error
    said.__cause__ = error
    return said


def _settle(future: asyncio.Future[Any], result: object, error: BaseException | None) -> None:
    if future.done():  # its caller went away
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)
