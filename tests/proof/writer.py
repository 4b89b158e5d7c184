"""A process of writers that go on until they are killed. Each line that it prints is an ``Entry``.

python -m tests.proof.writer URL NAME TASKS PLANTED RUN_SESSION SESSION_ID…
"""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import sys
from collections.abc import Callable

import msgspec

from satchel import OpenStore, Principal, RunManager, SessionManager
from satchel.errors import OutcomeUnknown, RunActive, RunFenced, StoreBusy, StoreUnavailable
from tests.proof.ledger import Entry, perform
from tests.proof.planted import open_planted

ADA = Principal.agent("writer", tenant_id="acme", acting_for="ada")
PATIENCE = 600  # tries of one write, a tenth of a second between them


def say(entry: Entry) -> None:
    os.write(1, msgspec.json.encode(entry) + b"\n")  # one write each: a kill leaves no half line of another task


class Writer:
    def __init__(self, sessions: SessionManager, runs: RunManager, tell: Callable[[Entry], None]) -> None:
        self._sessions = sessions
        self._runs = runs
        self._tell = tell

    async def write(self, verb: str, session_id: str, key: str, *, of: str = "") -> str | None:
        """Until it is acknowledged or refused: whoever does not know asks again under the same key. The id of the run."""
        entry = Entry("about", key, session_id, verb, of=of)
        self._tell(entry)
        for _ in range(PATIENCE):
            try:
                done = await perform(self._sessions, self._runs, entry)
            except (StoreBusy, StoreUnavailable, OutcomeUnknown):
                await asyncio.sleep(0.1)
            except (RunActive, RunFenced):
                self._tell(Entry("refused", key, session_id, verb))
                return None
            else:
                self._tell(Entry("done", key, session_id, verb, done.place, done.version, of))
                return str(done.place)
        raise AssertionError("the store did not recover by itself")

    async def go_on(self, name: str, session_ids: list[str]) -> None:
        for turn in itertools.count():
            verb = random.choice(("say", "say", "tool"))
            await self.write(verb, random.choice(session_ids), f"{name}-{turn}")

    async def run_on(self, name: str, session_id: str) -> None:
        """Run after run, in a session in which no other writer runs."""
        for turn in itertools.count():
            run_id = await self.write("run", session_id, f"{name}-{turn}")
            if run_id is None:
                await asyncio.sleep(0.5)  # the one of a killed writer is in the way until its lease is over
            else:
                await self.write("end", session_id, f"{name}-{turn}-end", of=run_id)


async def opened(url: str, planted: str) -> OpenStore:
    """Also while its server is starting up: whoever looks after processes would start this one again until it could."""
    for _ in range(PATIENCE):
        try:
            return await open_planted(url, planted).open()
        except (StoreBusy, StoreUnavailable):
            await asyncio.sleep(0.1)
    raise AssertionError("the store could not be opened")


async def main(url: str, name: str, tasks: int, planted: str, run_session: str, session_ids: list[str]) -> None:
    async with await opened(url, planted) as store:
        writer = Writer(SessionManager(store, ADA), RunManager(store, ADA), say)
        writing = [writer.go_on(f"{name}-{task}", session_ids) for task in range(tasks)]
        await asyncio.gather(writer.run_on(f"{name}-r", run_session), *writing)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4], sys.argv[5], sys.argv[6:]))
