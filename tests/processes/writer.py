"""A process that appends to shared sessions until it is killed. For each append it prints ``I key`` before and
``A key session seq`` after it was acknowledged.

    python writer.py URL NAME TASKS SESSION_ID…
"""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import sys

import satchel
from satchel import Principal, SessionManager


def say(line: str) -> None:
    os.write(1, line.encode() + b"\n")  # one write each: a kill leaves no half line of another task


async def main(url: str, name: str, tasks: int, session_ids: list[str]) -> None:
    async with satchel.open(url) as store:
        manager = SessionManager(store, Principal.agent("writer", tenant_id="acme", acting_for="ada"))

        async def append(task: int) -> None:
            for turn in itertools.count():
                key = f"{name}-{task}-{turn}"
                session_id = random.choice(session_ids)
                say(f"I {key} {session_id}")
                message = await manager.append_message(
                    session_id, {"role": "user", "content": key}, idempotency_key=key
                )
                say(f"A {key} {session_id} {message.seq}")

        await asyncio.gather(*(append(task) for task in range(tasks)))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4:]))
