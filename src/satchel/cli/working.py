"""``satchel worker``."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

import satchel
from satchel.cli import flags, output
from satchel.cli.exit_codes import ExitCode
from satchel.cli.failures import FlagRefused, StoreNotShared
from satchel.cli.store import new_file, run_async, say_made
from satchel.cli.variables import warn_of_unknown
from satchel.cli.visible import lines_kept
from satchel.traces import Exporter, traces_to
from satchel.worker import Served, Worker, load_agent
from satchel.worker.heap import settle_heap
from satchel.worker.options import check_options


def serve_agents(
    *,
    store: flags.WorkersStore,
    agent: flags.Agents,
    concurrency: flags.Concurrency = 8,
    lease: flags.Lease = 30.0,
    grace: flags.Grace = 20.0,
    traces: flags.Traces = None,
) -> None:
    """Execute the runs that wait for an agent: any session's, of all tenants, several at once.

    Start as many workers as you like on one store: no run is executed by two. An agent is an engine, an async function that
    takes the run's context, or a function without arguments that makes one of these; modules are also found in this folder.

    SIGTERM and Ctrl-C: takes no more runs, lets those that run finish within --grace, hands the rest back if they have
    attempts left, and ends with exit code 0. A second one ends it at once.
    """
    if store.startswith("memory:"):
        raise StoreNotShared
    check_options(concurrency=concurrency, lease=lease, grace=grace)
    agents = load_agents(agent)
    warn_of_unknown(lambda sentence: output.say(f"satchel: {sentence}"))
    log_to_stderr()
    run_async(_serve(store, agents, traces or "off", concurrency=concurrency, lease=lease, grace=grace))


def load_agents(written: Sequence[str]) -> dict[str, Served]:
    """By their names. Modules are also found in this folder."""
    sys.path.insert(0, str(Path.cwd()))
    agents: dict[str, Served] = {}
    for one in written:
        name, served = load_agent(one)
        if name in agents:
            raise FlagRefused(f"two agents are called {name}; give one a name: --agent other={one}")
        agents[name] = served
    return agents


async def _serve(
    url: str, agents: dict[str, Served], exporter: Exporter, *, concurrency: int, lease: float, grace: float
) -> None:
    made = new_file(url)
    async with satchel.open(url) as store, traces_to(exporter) as traces:
        say_made(made)
        served = agents if traces is None else traces.agents(agents)
        worker = Worker(store, served, concurrency=concurrency, lease=lease, grace=grace)
        _heed_signals(worker, grace)
        output.say(f"satchel worker {os.getpid()} serves {', '.join(worker.agents)}: {concurrency} runs at once")
        settle_heap()
        await worker.run_forever()


def _heed_signals(worker: Worker, grace: float) -> None:
    loop = asyncio.get_running_loop()
    asked: list[int] = []

    def heed(number: int) -> None:
        if asked:
            os._exit(ExitCode.INTERRUPTED)  # whatever still runs: its lease will pass
        asked.append(number)
        held = len(worker.held_runs)
        waiting = f"; {held} running, which have {grace:g} s to finish" if held else ""
        output.say(f"satchel worker {os.getpid()} takes no more runs{waiting}")
        worker.stop()

    for number in (signal.SIGINT, signal.SIGTERM):
        with contextlib.suppress(NotImplementedError):  # Windows: Ctrl-C cancels, which hands everything back at once
            loop.add_signal_handler(number, heed, number)


class _Visible(logging.Formatter):
    """What an agent's exception says reaches no terminal as it is."""

    def format(self, record: logging.LogRecord) -> str:
        return lines_kept(super().format(record))


def log_to_stderr() -> None:
    handler = logging.StreamHandler()
    handler.setFormatter(_Visible("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
