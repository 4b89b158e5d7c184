"""Who looks after a server: it may end itself when it cannot trust its disk, and is started again once that works."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

from tests.proof.stores import Database, Server


class Keeper:
    """``is_time``: whether there is a point in starting it. ``starting``: what surrounds its start."""

    def __init__(
        self,
        database: Database,
        *,
        is_time: Callable[[], bool],
        starting: Callable[[], AbstractContextManager[None]] = contextlib.nullcontext,
    ) -> None:
        self._server = database.server
        self._is_time = is_time
        self._starting = starting
        self.restarts = 0

    async def keep(self) -> None:
        while self._server is not None:
            await asyncio.sleep(0.2)
            if self._is_time() and is_over(self._server.pid):
                await asyncio.to_thread(self._start_again, self._server)

    def _start_again(self, server: Server) -> None:
        server.kill()  # what may be left of it
        with self._starting():
            server.start_again()
        self.restarts += 1


def is_over(pid: int) -> bool:
    """Also one that its parent, us, has not buried yet."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return True
    return state in ("Z", "X")
