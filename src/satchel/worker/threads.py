"""Threads for agents: what an agent does there, a busy loop too, stops neither the store nor the renewal of leases.

Each thread has an event loop of its own and executes one run at a time, so that an agent that blocks blocks nobody else.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import sys
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

from satchel.engine import Agent, RunContext, execute
from satchel.worker.agents import Served, make

NAME = "satchel-agent-"
SWITCH = 0.001  # seconds


def give_way_sooner() -> None:
    """From now on a thread that computes lets others in after 1 ms instead of Python's 5: among eight of them a renewal, which
    needs Python's lock a dozen times, would take most of a second."""
    sys.setswitchinterval(min(sys.getswitchinterval(), SWITCH))


def is_code_left() -> bool:
    """Whether an agent's code runs on, here or in a thread that it started by ``asyncio.to_thread``, though no worker waits
    for it: Python would not end before that thread does."""
    return any(thread.name.startswith(NAME) for thread in threading.enumerate())


class Execution:
    """One run on an agent's thread, seen from the worker's loop. ``ended`` holds what the agent raised; None: it returned."""

    def __init__(self, thread: AgentThread) -> None:
        self.thread = thread
        self._home = asyncio.get_running_loop()
        self.ended: asyncio.Future[BaseException | None] = self._home.create_future()
        self._task: asyncio.Task[BaseException | None] | None = None  # touched on the agent's loop alone
        self._cancelled = False

    def cancel(self) -> None:
        """Cancel the agent's task. Code that blocks hears it when it awaits again."""
        self.thread.call(self._cancel)

    def _cancel(self) -> None:
        self._cancelled = True
        if self._task is not None:
            self._task.cancel()

    def begin(self, task: asyncio.Task[BaseException | None]) -> None:
        self._task = task
        task.add_done_callback(self._end)
        if self._cancelled:
            task.cancel()

    def _end(self, task: asyncio.Task[BaseException | None]) -> None:
        raised = asyncio.CancelledError() if task.cancelled() else task.result()
        self.thread.is_busy = False
        with contextlib.suppress(RuntimeError):  # the worker's loop is closed: nobody waits
            self._home.call_soon_threadsafe(self._settle, raised)
        self.thread.stop_if_retired()

    def _settle(self, raised: BaseException | None) -> None:
        if not self.ended.done():
            self.ended.set_result(raised)


class AgentThread:
    """A factory is called once here, for all runs of its agent that this thread will execute."""

    def __init__(self, name: str, agents: Mapping[str, Served]) -> None:
        self._agents = agents
        self._made: dict[str, Agent] = {}
        self._loop = asyncio.new_event_loop()
        self._loop.set_default_executor(ThreadPoolExecutor(thread_name_prefix=f"{name}-helper"))
        self._retired = False
        self._stopped = False
        self.is_busy = False
        # A daemon: code that never returns must not keep the process.
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)
        self._thread.start()

    def execute(self, agent: str, ctx: RunContext) -> Execution:
        execution = Execution(self)
        self.is_busy = True
        self.call(self._begin, execution, agent, ctx)
        return execution

    async def make_all(self) -> None:
        """Call every factory: what is wrong with one shows before a run is claimed."""

        async def make_here() -> None:
            for name in self._agents:
                self._agent(name)

        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(make_here(), self._loop))

    def call(self, work: object, *arguments: object) -> None:
        with contextlib.suppress(RuntimeError):  # its loop is closed: nothing runs there
            self._loop.call_soon_threadsafe(work, *arguments)  # type: ignore[arg-type]  # handed on as it is

    def retire(self) -> None:
        """Take no more runs, and end when the last one's code has returned, whenever that is."""
        self._retired = True
        self.call(self.stop_if_retired)

    def stop_if_retired(self) -> None:
        """On its own thread. Once: a second stop would end the loop in the middle of its last tasks."""
        if self._retired and not self.is_busy and not self._stopped:
            self._stopped = True
            self._loop.stop()

    async def join(self, timeout: float) -> bool:
        """Whether it has ended."""
        await asyncio.to_thread(self._thread.join, timeout)
        return not self._thread.is_alive()

    def _begin(self, execution: Execution, agent: str, ctx: RunContext) -> None:
        execution.begin(self._loop.create_task(self._run(agent, ctx)))

    async def _run(self, agent: str, ctx: RunContext) -> BaseException | None:
        try:
            await execute(self._agent(agent), ctx)
        except BaseException as raised:  # noqa: BLE001  # also SystemExit: an agent ends its run, not its thread
            return raised
        return None

    def _agent(self, name: str) -> Agent:
        if name not in self._made:
            self._made[name] = make(self._agents[name])
        return self._made[name]

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
            left = asyncio.all_tasks(self._loop)
            for task in left:
                task.cancel()
            self._loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        finally:
            self._loop.close()


class AgentThreads:
    """As many as are needed at once; a thread whose run was taken away from it is not used again."""

    def __init__(self, agents: Mapping[str, Served]) -> None:
        self._agents = agents
        self._idle: list[AgentThread] = []
        self._numbers = itertools.count(1)

    def take(self) -> AgentThread:
        if self._idle:
            return self._idle.pop()
        return AgentThread(f"{NAME}{next(self._numbers)}", self._agents)

    def give_back(self, thread: AgentThread) -> None:
        if thread.is_busy:
            thread.retire()
        else:
            self._idle.append(thread)

    async def close(self) -> None:
        for thread in self._idle:
            thread.retire()
        for thread in self._idle:
            await thread.join(1.0)
        self._idle = []
