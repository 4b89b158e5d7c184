"""Clients that ask again under a key until they are told, over connections that are cut: theirs to the service, and the service's
to its database. The service is killed meanwhile. Every effect is there once, and whoever asks once more is told the same."""

from __future__ import annotations

import asyncio
import contextlib
import random
import re
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec

import satchel
from satchel import RunManager, SessionManager
from satchel.client.connection import Connection
from satchel.errors import OutcomeUnknown, RunActive, RunFenced, StoreBusy, StoreUnavailable
from tests.proof.cutting import Cutter, cutter_before
from tests.proof.kills import AWAITED
from tests.proof.ledger import Done, Entry, Ledger, perform
from tests.proof.program import Program, Report, Task
from tests.proof.served import Served
from tests.proof.stores import Database
from tests.proof.writer import ADA

CLIENTS = 32
SESSIONS = 12
TRIES = 600
STARTS = 5
AWAY = (StoreBusy, StoreUnavailable, OutcomeUnknown)


class Client:
    """``patience`` is short: the library's own tries are few, ours are many."""

    def __init__(self, url: str, key: str, ledger: Ledger) -> None:
        self._url = url
        self._key = key
        self._ledger = ledger
        self.tries = 0

    async def work(self, todo: AsyncIterator[int], session_ids: list[str], luck: random.Random) -> None:
        async with satchel.connect(self._url, self._key, patience=1) as service:
            async for number in todo:
                verb, place = luck.choice(("say", "say", "tool", "run")), luck.choice(session_ids)
                first = await self._told(service, Entry("about", f"op-{number}", place, verb))
                if verb == "run" and first is not None:  # nobody else runs here until it has ended
                    end = Entry("about", f"op-{number}-end", place, "end", of=str(first.place))
                    await self._told(service, end)

    async def _told(self, service: Connection, entry: Entry) -> Done | None:
        self._tell(entry)
        first = await self._ask(service, entry)
        if first is None:
            self._tell(msgspec.structs.replace(entry, what="refused"))
            return None
        self._tell(msgspec.structs.replace(entry, what="done", place=first.place, version=first.version))
        again = await self._ask(service, entry)
        if again is None or not again.replayed or (again.place, again.version) != (first.place, first.version):
            self._ledger.faults.append(f"{entry.key} was told {first}, and asked again {again}")
        return first

    async def _ask(self, service: Connection, entry: Entry) -> Done | None:
        for _ in range(TRIES):
            self.tries += 1
            try:
                return await perform(service.sessions, service.runs, entry)
            except AWAY:
                await asyncio.sleep(random.random() * 0.1)
            except (RunActive, RunFenced):
                return None
        raise TimeoutError

    def _tell(self, entry: Entry) -> None:
        self._ledger.feed(msgspec.json.encode(entry))


async def exactly_once(task: Task) -> Report:
    began = time.monotonic()
    bounds = task.bounds
    luck = random.Random(bounds["seed"])
    ledger = Ledger()
    async with contextlib.AsyncExitStack() as stack:
        database = stack.enter_context(task.store.make(task.folder, True))
        cut_url, cutters = database.url, []
        if database.server is not None:
            cut_url, cutter = await stack.enter_async_context(
                cut_database(database, share=bounds["database_cut"] / 100, seed=bounds["seed"])
            )
            cutters.append(cutter)
        served = Served(cut_url, task.folder, module="tests.proof.forgetting" if task.weak else "satchel")
        stack.callback(served.stop)
        async with satchel.open(database.url) as store:
            sessions, runs = SessionManager(store, ADA), RunManager(store, ADA)
            session_ids = [(await sessions.create_session()).session_id for _ in range(SESSIONS)]
            key = Served(database.url, task.folder).key()
            await asyncio.to_thread(start, served)
            front = await stack.enter_async_context(
                cutter_before(served.port, share=bounds["cut"] / 100, seed=bounds["seed"])
            )
            client = Client(f"http://127.0.0.1:{front.port}", key, ledger)
            numbers = iter(range(bounds["operations"]))
            kills = 0 if task.weak else bounds["service_kills"]
            kill_at = {bounds["operations"] * (turn + 1) // (kills + 1) for turn in range(kills)}

            async def todo() -> AsyncIterator[int]:
                for number in numbers:
                    if number in kill_at:
                        await asyncio.to_thread(served.kill)
                        await asyncio.to_thread(start, served)
                    if number % 500 == 499:
                        task.say(
                            f"{number + 1} asked, {client.tries} times, {front.cuts} cut, faults: {len(ledger.faults)}"
                        )
                    yield number

            await asyncio.gather(
                *(client.work(todo(), session_ids, random.Random(luck.random())) for _ in range(CLIENTS))
            )
            cuts = {name: count for name, count in front.seen.items() if name != "none"}
            if front.cuts < bounds["operations"] * bounds["cut"] // 200:
                ledger.faults.append("too little was cut: this shows nothing")
            await asyncio.wait_for(ledger.prove(sessions, session_ids), AWAITED)
            unknown = await ledger.ask_again(sessions, runs, session_ids)
    return Report(
        figures={
            "operations": len(ledger.done) + len(ledger.refused),
            "asked": client.tries,
            **{f"{name}": count for name, count in sorted(cuts.items())},
            **({"database connections cut": sum(one.cuts for one in cutters)} if cutters else {}),
            "service kills": kills,
            "twice": sum("twice" in fault for fault in ledger.faults),
            "without an answer": unknown,
        },
        faults=ledger.faults,
        seconds=time.monotonic() - began,
    )


def start(served: Served) -> None:
    """As whoever looks after processes does it: one that could not reach its database is started again."""
    for turn in range(STARTS):
        try:
            served.start()
        except RuntimeError:
            served.stop()
            if turn + 1 == STARTS:
                raise
        else:
            return


@asynccontextmanager
async def cut_database(database: Database, *, share: float, seed: int) -> AsyncIterator[tuple[str, Cutter]]:
    """Its address behind a wire that is cut."""
    found = re.search(r"127\.0\.0\.1:(\d+)", database.url)
    assert found is not None, "a server of one address"
    async with cutter_before(int(found[1]), share=share, seed=seed) as cutter:
        yield database.url.replace(found[0], f"127.0.0.1:{cutter.port}"), cutter


EXACTLY_ONCE = Program(
    name="exactly_once",
    shows="what is asked again under its key, over wires that are cut, is done once, and answered alike",
    run=exactly_once,
    bounds={"operations": 5_000, "cut": 45, "database_cut": 3, "service_kills": 3, "seed": 6},
    weak=("keeps_no_keys",),
    weak_bounds={"operations": 100},
)
