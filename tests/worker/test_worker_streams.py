"""An agent that streams in a worker: its text reaches followers in other processes, whatever is killed meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import random
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import msgspec
import pytest

import satchel
from satchel import Attempt, Event, Message, Run, RunContext, RunFenced, TextDelta
from satchel.domain.ids import SessionRef
from satchel.domain.stream import Piece, text_of
from tests.streams.reader import Reader
from tests.worker.processes import Workers
from tests.worker.stage import TENANT, Stage, until, working

TAILING = Path(__file__).parent.parent / "streams" / "tailing.py"


@pytest.fixture
def workers(tmp_path: Path) -> Iterator[Workers]:
    started = Workers(tmp_path)
    yield started
    started.kill_all()


@pytest.fixture
async def shared(workers: Workers) -> AsyncIterator[Stage]:
    """On the store of the worker processes."""
    async with satchel.open(workers.url) as store:
        yield Stage(store)


@contextlib.asynccontextmanager
async def reading(stage: Stage, session_id: str) -> AsyncIterator[Reader]:
    """A reader that follows for as long as the block lasts."""
    reader = Reader()

    async def read() -> None:
        async for item in stage.sessions.follow(session_id, after=0, text=True):
            reader.take(item)

    task = asyncio.create_task(read())
    yield reader
    try:
        log = await stage.log(session_id)
        await until(lambda: task.done() or reader.last_seq == log[-1].seq)
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
    reader.check_whole(await stage.log(session_id))


async def said(stage: Stage, run: Run) -> list[tuple[object, str]]:
    return [
        (message.content, message.status)
        for message in map(Message.from_event, [e for e in await stage.log(run.session_id) if e.kind == "message"])
        if message.role == "assistant"
    ]


async def pieces_of(stage: Stage, run: Run, *, attempt: int = 1, message: int = 1) -> tuple[Piece, ...]:
    page = await stage.store.store.partial(
        SessionRef(TENANT, run.session_id), run.run_id, attempt=attempt, message=message, limit=10_000
    )
    return page.pieces


# -- in this process


async def test_an_agent_in_a_worker_streams(stage: Stage) -> None:
    messages: list[Message | None] = []

    async def speak(ctx: RunContext) -> None:
        async with ctx.stream(metadata={"model": "m"}) as answer:
            for word in ("one ", "two ", "three"):
                await answer.write(word)
                await asyncio.sleep(0.1)
            answer.members = {"refusal": None}
            answer.tool_calls = []
            assert (answer.text, answer.members, answer.tool_calls) == ("one two three", {"refusal": None}, [])
        messages.append(answer.message)

    sid = await stage.session()
    async with reading(stage, sid) as reader, working(stage.store, {"shop": speak}):
        run = await stage.ended(await stage.added("shop", sid))
        assert run.status == "COMPLETED"
        await until(lambda: reader.said)
    (((key, shown, event)),) = reader.said
    assert (key, shown) == ((run.run_id, 1, 1), "one two three")
    assert event.data == {"role": "assistant", "content": "one two three", "tool_calls": [], "refusal": None}
    (message,) = messages
    assert message is not None
    assert (message.seq, message.metadata) == (event.seq, {"model": "m"})


async def test_more_than_waits_is_waited_for_and_nothing_is_lost(stage: Stage) -> None:
    async def speak(ctx: RunContext) -> None:
        async with ctx.stream() as answer:
            for _ in range(300):
                await answer.write("x" * 1_000)

    async with working(stage.store, {"shop": speak}):
        run = await stage.ended(await stage.added("shop"))
    assert await said(stage, run) == [("x" * 300_000, "complete")]


async def test_a_cancelled_agent_leaves_what_it_said_as_interrupted(stage: Stage) -> None:
    async def speak(ctx: RunContext) -> None:
        async with ctx.stream() as answer:
            while True:
                await answer.write("word ")
                await asyncio.sleep(0.01)

    async with working(stage.store, {"shop": speak}):
        run = await stage.added("shop")
        await until(lambda: pieces_of(stage, run))
        await stage.runs.cancel_run(run.session_id, run.run_id)
        assert (await stage.ended(run)).status == "CANCELLED"
    ((content, status),) = await said(stage, run)
    assert isinstance(content, str)
    assert (content.replace("word ", ""), status) == ("", "interrupted")
    assert await pieces_of(stage, run) == ()


async def test_an_agent_that_does_not_let_go_is_fenced_and_what_it_said_is_kept(stage: Stage) -> None:
    refused: list[type[BaseException]] = []
    go_on = asyncio.Event()

    async def speak(ctx: RunContext) -> None:
        async with ctx.stream() as answer:
            await answer.write("half an ans")
            while not go_on.is_set():
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.sleep(0.02)
            try:
                await answer.write("wer")
            except RunFenced as fenced:
                refused.append(type(fenced))
                raise

    async with working(stage.store, {"shop": speak}, grace=0.2):
        run = await stage.added("shop")
        await until(lambda: pieces_of(stage, run))
        tasks = len(asyncio.all_tasks())
        await stage.runs.cancel_run(run.session_id, run.run_id)
        assert (await stage.ended(run)).status == "CANCELLED"
        await until(lambda: len(asyncio.all_tasks()) < tasks)  # nobody goes on to store what it says
        go_on.set()
        await until(lambda: refused)
    assert await said(stage, run) == [("half an ans", "interrupted")]


# -- processes


@pytest.mark.slow
async def test_a_killed_workers_text_becomes_exactly_what_was_stored(workers: Workers, shared: Stage) -> None:
    victim = await workers.start("speak", lease=1)
    sid = await shared.session()
    async with reading(shared, sid) as reader:
        run = await shared.added("speak", sid)
        await until(lambda: any(len(text) > 100 for text in reader.saying.values()))
        victim.process.send_signal(signal.SIGKILL)
        assert await victim.exit_code() == -signal.SIGKILL
        stored = text_of(await pieces_of(shared, run))
        assert len(stored) > 100
        await workers.start("quick", lease=1)
        ended = await shared.ended(run)
        assert ended.error is not None
        assert ended.error.code == "worker_lost"
        assert await said(shared, run) == [(stored, "interrupted")]
        await until(lambda: reader.said)
        assert reader.said[0][1] == stored
    assert await pieces_of(shared, run) == ()


@pytest.mark.slow
async def test_an_agent_that_blocks_in_another_process_is_ended_with_what_it_said(
    workers: Workers, shared: Stage
) -> None:
    await workers.start("speak_and_block", grace=0.2)
    run = await shared.added("speak_and_block")
    await until(lambda: workers.of("start"))
    await shared.runs.cancel_run(run.session_id, run.run_id)
    assert (await shared.ended(run)).status == "CANCELLED"
    assert await said(shared, run) == [("half an ans", "interrupted")]


class Tail:
    """A follower in a process of its own, killed after some lines."""

    def __init__(self, url: str, session_id: str, reader: Reader, *, with_position: bool) -> None:
        place = [str(part) for part in reader.position] if with_position and reader.position is not None else []
        self._reader = reader
        self.process = subprocess.Popen(
            [sys.executable, str(TAILING), url, session_id, str(reader.last_seq), *place], stdout=subprocess.PIPE
        )

    def read(self, most: float, until_seq: int | None = None) -> None:
        """Lines until so many were read, or the event of this seq came; then it is killed, and what it wrote is read."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if not line.endswith(b"\n"):
                break  # it was killed in the middle
            kind, _, text = line.split(b" ", 2)
            self._reader.take(msgspec.json.decode(text, type=Event if kind == b"E" else TextDelta))
            most -= 1
            if most <= 0 or self._reader.last_seq == until_seq:
                self.process.kill()
        self.process.wait()
        self.process.stdout.close()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("cuts", "kills"),
    [
        pytest.param(6, 1, id="6 cuts"),
        pytest.param(50, 4, id="50 cuts", marks=[pytest.mark.full, pytest.mark.timeout(300)]),
    ],
)
async def test_a_client_in_another_process_that_is_cut_assembles_the_log_also_when_the_worker_is_killed(
    workers: Workers, shared: Stage, cuts: int, kills: int
) -> None:
    luck = random.Random(cuts)
    sid = await shared.session()
    reader = Reader()
    runs = [await shared.added("speak", sid, max_attempts=2 + kills) for _ in range(max(1, cuts // 10))]
    killed_while_speaking = 0
    worker = await workers.start("speak", lease=1)
    made = 0
    while made < cuts:
        if made and made % max(2, cuts // (kills + 1)) == 0 and killed_while_speaking < kills:
            worker.process.kill()
            await worker.exit_code()
            killed_while_speaking += 1
            worker = await workers.start("speak", lease=1)
        if all([(await shared.now(run)).is_terminal for run in runs]):
            runs.append(await shared.added("speak", sid, max_attempts=2 + kills))
        tail = Tail(workers.url, sid, reader, with_position=luck.random() < 0.5)
        cut = threading.Timer(luck.uniform(0.5, 2), tail.process.kill)  # also when nothing comes any more
        cut.start()
        await asyncio.to_thread(tail.read, luck.randint(1, 12))
        cut.cancel()
        made += 1
    for run in runs:
        await shared.ended(run, within=60)
    log = await shared.log(sid)
    last = Tail(workers.url, sid, reader, with_position=False)
    if reader.last_seq < log[-1].seq:
        await asyncio.wait_for(asyncio.to_thread(last.read, float("inf"), log[-1].seq), 30)
    else:
        last.process.kill()
        last.read(0)
    reader.check_whole(log)
    assert killed_while_speaking == kills
    assert reader.said, "no message was seen while it was said: this shows nothing"
    assert "interrupted" in {event.status for event in log}


@pytest.mark.slow
async def test_text_reaches_another_process_within_moments(workers: Workers, shared: Stage) -> None:
    """A loose bound for machines under load; the benchmark follow.text measures."""
    sid = await shared.session()
    run = await shared.added("nobodys", sid)
    operator = satchel.RunManager(shared.store, satchel.Principal.agent("shop", tenant_id=TENANT))
    started = await operator.start_run(sid, run.run_id)
    attempt = Attempt(started.run_id, started.attempt)
    tail = Tail(workers.url, sid, Reader(), with_position=False)
    stdout = tail.process.stdout
    assert stdout is not None
    lines = iter(stdout.readline, b"")
    try:
        for _ in range(2):  # run_added, run_started: it follows
            await asyncio.to_thread(next, lines)
        delays: list[float] = []
        for number in range(30):
            await operator.add_text(sid, attempt, "x", message=1, offset=number)
            stored = time.monotonic()
            _, came, _ = (await asyncio.to_thread(next, lines)).split(b" ", 2)
            delays.append(float(came) - stored)
    finally:
        tail.process.kill()
        tail.process.wait()
        stdout.close()
    assert statistics.median(delays) < 0.25
