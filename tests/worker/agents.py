"""Agents for workers in processes of their own. What they do outside of the store is a line in the file EFFECTS."""

from __future__ import annotations

import asyncio
import os
import signal
import time

from satchel import RunContext
from satchel.domain.decisions import decision
from satchel.domain.record import SessionRecord
from satchel.domain.run import Attempt
from satchel.engines import ChatEngine, ChatTool

WORDS = "".join(f"{word} " for word in range(30))  # what `tell` says


def _any_attempt(record: SessionRecord, attempt: Attempt) -> str | None:
    return record.turn.status if record.turn is not None and record.turn.run_id == attempt.run_id else None


if os.environ.get("PLANTED") == "no_fence":  # broken on purpose: whoever had the run once may go on with it
    setattr(decision, "_turns_status", _any_attempt)  # noqa: B010  # the module does not offer it to others


def note(what: str, ctx: RunContext) -> None:
    """One line, whole or not at all: ``what``, run, attempt, process, and when."""
    line = f"{what} {ctx.run.run_id} {ctx.attempt.attempt} {os.getpid()} {time.monotonic()}\n"
    file = os.open(os.environ["EFFECTS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(file, line.encode())
    finally:
        os.close(file)


async def quick(ctx: RunContext) -> None:
    note("start", ctx)


async def hang(ctx: RunContext) -> None:
    """Until it is cancelled."""
    async with ctx.tool("hang"):
        note("start", ctx)
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            note("told", ctx)
            raise


async def stuck(ctx: RunContext) -> None:
    """Hears nothing, and its thread would keep Python from ending."""
    note("start", ctx)
    await asyncio.to_thread(time.sleep, 60)


async def once_stuck(ctx: RunContext) -> None:
    """Hangs in its first attempt."""
    if ctx.attempt.attempt > 1:
        note("start", ctx)
        return
    async with ctx.tool("hang"):
        note("start", ctx)
        await asyncio.sleep(60)


async def work(ctx: RunContext) -> None:
    """About a second, with three tools."""
    note("start", ctx)
    for number in range(3):
        async with ctx.tool("press", {"button": number}) as call:
            note(f"tool{number}", ctx)
            await asyncio.sleep(0.3)
            call.result = number
    await ctx.append_message({"role": "assistant", "content": "pressed three buttons"})
    note("end", ctx)


async def errand(ctx: RunContext) -> None:
    """Three named tools and a question. The process dies after each step that it did itself."""
    note("start", ctx)
    for name in ("fetch", "check"):
        await _step(name, ctx)
    answer = await ctx.ask("pay", "Pay?", schema={"type": "boolean"})
    note(f"answered-{answer}", ctx)
    await _step("pay", ctx)
    await ctx.append_message({"role": "assistant", "content": "paid"})


async def _step(name: str, ctx: RunContext) -> None:
    async with ctx.tool(name, {"of": name}, step=name) as call:
        if not call.is_replayed:
            note(name, ctx)
            call.result = name
    assert call.result == name
    if not call.is_replayed:
        os.kill(os.getpid(), signal.SIGKILL)


class Shop:
    """A class is a factory."""

    async def run(self, ctx: RunContext) -> None:
        note("start", ctx)


def shopkeeper() -> ChatEngine:
    """A chat engine, its model where OPENAI_BASE_URL says, with two tools that take a moment."""

    async def first(ctx: RunContext) -> str:
        note("first", ctx)
        await asyncio.sleep(0.2)
        return "one"

    async def second(ctx: RunContext) -> str:
        note("second", ctx)
        await asyncio.sleep(0.2 if ctx.attempt.attempt > 1 else 60)
        return "two"

    return ChatEngine("m-1", tools=[first, ChatTool(second, repeatable=True)])


async def speak(ctx: RunContext) -> None:
    """Two messages of a second and a half, a word every ten milliseconds."""
    note("start", ctx)
    for number in range(2):
        async with ctx.stream() as answer:
            for word in range(150):
                await answer.write(f"{number}:{word} ")
                await asyncio.sleep(0.01)
    note("end", ctx)


async def speak_and_block(ctx: RunContext) -> None:
    """Says something, and hears nothing any more."""
    async with ctx.stream() as answer:
        await answer.write("half an ans")
        await asyncio.sleep(0.2)
        note("start", ctx)
        time.sleep(60)  # noqa: ASYNC251  # the fault that is tried


async def family(ctx: RunContext) -> None:
    """About a second: two child runs side by side, with two tools each."""
    note("start", ctx)

    async def press(side: str) -> None:
        async with ctx.child(side) as child:
            for number in range(2):
                async with child.tool("press", {"button": number}) as call:
                    note(f"tool{number}", child)
                    await asyncio.sleep(0.4)
                    call.result = number

    await asyncio.gather(press("left"), press("right"))
    note("end", ctx)


async def tell(ctx: RunContext) -> None:
    """About a second: a tool, and an answer that streams."""
    note("start", ctx)
    async with ctx.tool("press", {"button": 0}) as call:
        note("tool0", ctx)
        await asyncio.sleep(0.3)
        call.result = 0
    async with ctx.stream() as answer:
        for word in WORDS.split():
            await answer.write(f"{word} ")
            await asyncio.sleep(0.02)
    note("end", ctx)


async def sure(ctx: RunContext) -> None:
    """Presses a button once, asks, and goes on when it is answered."""
    note("start", ctx)
    async with ctx.tool("press", {"button": 0}, step="press") as call:
        if not call.is_replayed:
            note("tool0", ctx)
            await asyncio.sleep(0.3)
            call.result = 0
    try:
        answer = await ctx.ask("sure", "Sure?")
    except asyncio.CancelledError:
        note("left", ctx)
        raise
    await asyncio.sleep(0.3)
    await ctx.append_message({"role": "assistant", "content": answer})
    note("end", ctx)


async def stubborn(ctx: RunContext) -> None:
    """About a second, in five messages; goes on when it is told to stop. What it writes when others have its run is refused."""
    note("start", ctx)

    async def speak() -> None:
        for number in range(5):
            await ctx.append_message({"role": "assistant", "content": f"{number} of attempt {ctx.attempt.attempt}"})
            await asyncio.sleep(0.2)
        note("end", ctx)

    speaking = asyncio.create_task(speak())
    try:
        await asyncio.shield(speaking)
    except asyncio.CancelledError:
        await asyncio.gather(speaking, return_exceptions=True)
        raise
