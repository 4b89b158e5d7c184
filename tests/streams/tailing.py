"""A follower in a process of its own: what it gets, a line each. ``STORE SESSION_ID AFTER [RUN_ID ATTEMPT MESSAGE OFFSET]``"""

from __future__ import annotations

import asyncio
import sys
import time

import msgspec

import satchel
from satchel import Event, Principal, SessionManager, TextPosition


async def tail(url: str, session_id: str, after: str, *position: str) -> None:
    begins = TextPosition(position[0], *(int(part) for part in position[1:])) if position else None
    async with satchel.open(url) as store:
        sessions = SessionManager(store, Principal.user("ada", tenant_id="acme"))
        async for item in sessions.follow(session_id, after=int(after), text=True, position=begins):
            kind = b"E" if isinstance(item, Event) else b"T"
            line = b"%s %f %s\n" % (kind, time.monotonic(), msgspec.json.encode(item))
            sys.stdout.buffer.write(line)
            sys.stdout.buffer.flush()


if __name__ == "__main__":
    asyncio.run(tail(*sys.argv[1:]))
