"""``satchel sweep``."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections import Counter

import msgspec

import satchel
from satchel import OpenStore
from satchel.cli import flags, output, sentences
from satchel.cli.failures import FlagRefused, NotLookedAfter, StoreNotShared
from satchel.cli.progress import waiting
from satchel.cli.store import check_there, run_async
from satchel.cli.working import log_to_stderr
from satchel.domain.ids import SessionRef
from satchel.errors import SatchelError
from satchel.http.settings import duration
from satchel.sweeper import Sweeper, SweepReport

PAGE = 500
AT_ONCE = 16  # records that are read together


def sweep_store(
    *,
    store: flags.OperatorsStore,
    once: flags.Once = False,
    every: flags.Every = None,
    json: flags.Json = False,
) -> None:
    """Look after the sessions of all tenants that nobody meets: expire what is over, end the runs of lost workers, erase what
    retention or a deletion left, remove abandoned imports. Counts the runs that wait for a worker.

    `satchel serve` and `satchel worker` do the same beside their work; several may sweep one store at once. With --every a
    store that is away is asked again at the next pass.
    """
    if once and every is not None:
        raise FlagRefused("--once and --every do not go together")
    interval = None if every is None else duration(every, field="--every")
    if every is not None and (interval is None or interval.total_seconds() <= 0):
        raise FlagRefused("--every must be longer than nothing, for example 5s")
    if store.startswith("memory:"):
        raise StoreNotShared
    check_there(store)
    log_to_stderr()
    run_async(_sweep(store, None if interval is None else interval.total_seconds(), json=json))


async def _sweep(url: str, interval: float | None, *, json: bool) -> None:
    async with satchel.open(url) as store:
        sweeper = Sweeper(store)
        if interval is None:
            with waiting("sweeping"):
                report, ready = await _pass(store, sweeper)
            _tell(report, ready, json=json)
            if report.failed:
                raise NotLookedAfter(report.failed)
            return
        stop = asyncio.Event()
        _heed_signals(stop)
        while not stop.is_set():
            try:
                _tell(*await _pass(store, sweeper), json=json)
            except SatchelError as error:
                output.say(f"satchel: the sweep broke off: {error}")
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(interval):
                    await stop.wait()


def _heed_signals(stop: asyncio.Event) -> None:
    """The pass that is under way is finished."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        with contextlib.suppress(NotImplementedError):  # Windows: Ctrl-C breaks off, which harms nothing
            loop.add_signal_handler(number, stop.set)


async def _pass(store: OpenStore, sweeper: Sweeper) -> tuple[SweepReport, Counter[str]]:
    """The queue of what is due, then that of what may be claimed: it is shorter by what was over."""
    report = await sweeper.sweep_once()
    return report, await _ready(store)


async def _ready(store: OpenStore) -> Counter[str]:
    """How many runs wait for each agent's workers. "" is none: no worker takes those."""
    found: Counter[str] = Counter()
    after: SessionRef | None = None
    while True:
        refs = await store.store.due("ready", after=after, limit=PAGE)
        for start in range(0, len(refs), AT_ONCE):
            some = refs[start : start + AT_ONCE]
            for agent in await asyncio.gather(*(_agent(store, ref) for ref in some)):
                if agent is not None:
                    found[agent] += 1
        if len(refs) < PAGE:
            return found
        after = refs[-1]


async def _agent(store: OpenStore, ref: SessionRef) -> str | None:
    try:
        record = (await store.store.snapshot(ref, working_memory=False, metadata=False)).record
    except SatchelError:
        return None  # the pass named it, if it was due; else whoever meets it will
    return None if record is None else record.ready_agent


def _tell(report: SweepReport, ready: Counter[str], *, json: bool) -> None:
    if json:
        output.write_json(msgspec.structs.asdict(report) | {"ready": dict(sorted(ready.items()))})
    else:
        output.write_text(_sentence(report, ready))
    output.flush()


def _sentence(report: SweepReport, ready: Counter[str]) -> str:
    done = [
        text
        for number, text in (
            (report.expired, f"{report.expired:,} expired"),
            (report.deleted, f"{report.deleted:,} deleted"),
            (report.runs_settled, f"{sentences.count(report.runs_settled, 'run')} settled"),
            (report.rows_erased, f"{sentences.count(report.rows_erased, 'row')} erased"),
            (report.failed, f"{report.failed:,} failed"),
        )
        if number
    ]
    looked = f"{sentences.count(report.visited, 'session')} due: {', '.join(done) or 'nothing to do'}"
    by_agent = [f"{number:,} for {agent}" for agent, number in sorted(ready.items()) if agent]
    if ready[""] == 1:
        by_agent.append("1 that names no agent: no worker takes it")
    elif ready[""]:
        by_agent.append(f"{ready['']:,} that name no agent: no worker takes them")
    return f"{looked}; {sentences.count(ready.total(), 'run')} ready" + (
        f" ({', '.join(by_agent)})" if by_agent else ""
    )
