"""Agents that a server of the tests serves."""

from __future__ import annotations

import asyncio

from satchel import RunContext


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
