"""Agents that a server of the tests serves."""

from __future__ import annotations

import asyncio
import gc

from satchel import RunContext, RunFailed


async def echo(ctx: RunContext) -> None:
    said = ctx.run.input["content"] if ctx.run.input else ""
    async with ctx.tool("look", {"at": said}) as call:
        call.result = {"seen": said}
    await ctx.append_message({"role": "assistant", "content": f"you said {said}"})


async def slow(ctx: RunContext) -> None:
    """One message every 50 ms, until it is told to stop; ``lines`` of them at most."""
    for number in range(int(ctx.run.metadata.get("lines", 10_000))):
        await ctx.append_message({"role": "assistant", "content": f"line {number}"})
        await asyncio.sleep(0.05)


async def speaker(ctx: RunContext) -> None:
    async with ctx.stream() as answer:
        for word in ("one ", "two ", "three"):
            await answer.write(word)
            await asyncio.sleep(0.1)


async def asker(ctx: RunContext) -> None:
    colour = await ctx.ask("colour", "Which colour?", schema={"enum": ["red", "blue"]})
    await ctx.append_message({"role": "assistant", "content": f"{colour} it is"})


async def failing(ctx: RunContext) -> None:
    """In the way that was asked for, saying what was said."""
    said = ctx.run.input["content"] if ctx.run.input else ""
    match said.partition(" ")[0]:
        case "cause":
            try:
                raise ValueError(said)
            except ValueError as wrong:
                raise KeyError(said) from wrong
        case "group":
            raise ExceptionGroup(said, [ValueError(said)])
        case "failed":
            raise RunFailed("odd", said)
        case "task":
            task = asyncio.create_task(_raising(said))
            await asyncio.sleep(0.01)
            del task
            gc.collect()
        case _:
            raise ValueError(said)


async def _raising(said: str) -> None:
    raise ValueError(said)
