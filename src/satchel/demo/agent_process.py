"""The demo's agent, in a process of its own: `python -m satchel.demo.agent_process`, one request a line on stdin.

It keeps nothing: all that it knows of a session it reads from the store. It ends when stdin closes, which happens too
when whoever started it dies.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
from typing import Any

import satchel
from satchel import Principal, SatchelError, SessionManager
from satchel.demo.agents import coding, data
from satchel.engine import execute
from satchel.engines import ScriptedEngine

PATIENCE = 20.0  # seconds for the other writer to appear


class AgentServer:
    """Answers requests one after another."""

    def __init__(self, sessions: SessionManager, engine: ScriptedEngine) -> None:
        self._sessions = sessions
        self._engine = engine

    async def handle(self, request: dict[str, Any]) -> None:
        match request["do"]:
            case "answer":
                await self._answer(request)
            case "write":
                await self._write_beside_another(request)
            case unknown:
                raise ValueError(f"unknown request {unknown!r}")

    async def _answer(self, request: dict[str, Any]) -> None:
        """One run that answers one message of the user; a session that is not open is restored first."""
        session_id, text = request["session_id"], request["text"]
        await self._sessions.restore_session(session_id, reason="the user is back")
        async with self._sessions.run(
            session_id, goal=text, input=text, agent=self._engine.name, lease=request["lease"]
        ) as run:
            await execute(self._engine, run)

    async def _write_beside_another(self, request: dict[str, Any]) -> None:
        """`count` messages, one commit each. After the first it waits until somebody else has written too, so that both
        write at the same time however slow the machine is."""
        session_id, name, count = request["session_id"], request["name"], request["count"]
        await self._append(session_id, name, 1)
        async with asyncio.timeout(PATIENCE):
            async for event in self._sessions.follow(session_id, after=0):
                if event.kind == "message" and not event.data["content"].startswith(f"{name} "):
                    break
        for number in range(2, count + 1):
            await self._append(session_id, name, number)

    async def _append(self, session_id: str, name: str, number: int) -> None:
        await self._sessions.append_message(session_id, {"role": "assistant", "content": f"{name} {number}"})


async def serve(options: argparse.Namespace) -> None:
    engine = coding(options.workplace) if options.agent == "coding" else data(options.workplace)
    principal = Principal.agent(f"{engine.name}@{os.getpid()}", tenant_id=options.tenant, acting_for=options.user)
    requests: asyncio.Queue[bytes] = asyncio.Queue()
    async with satchel.open(options.store) as store:
        server = AgentServer(SessionManager(store, principal), engine)
        reading = asyncio.create_task(_read_lines(requests))
        answering = asyncio.create_task(_answer_lines(requests, server))
        _reply({"ready": True})
        done, _ = await asyncio.wait({reading, answering}, return_when=asyncio.FIRST_COMPLETED)
        answering.cancel()
        await asyncio.wait({answering})
        for task in done:
            task.result()


async def _read_lines(requests: asyncio.Queue[bytes]) -> None:
    """Until stdin closes."""
    stream = asyncio.StreamReader(limit=1 << 20)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(stream), sys.stdin)
    while line := await stream.readline():
        requests.put_nowait(line)


async def _answer_lines(requests: asyncio.Queue[bytes], server: AgentServer) -> None:
    while True:
        try:
            await server.handle(json.loads(await requests.get()))
        except SatchelError as error:
            _reply({"done": False, "error": error.code, "message": str(error)})
        else:
            _reply({"done": True})


def _reply(reply: dict[str, Any]) -> None:
    print(json.dumps(reply, ensure_ascii=False), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(prog="satchel.demo.agent_process", description=__doc__)
    parser.add_argument("--store", required=True, help="the store's URL")
    parser.add_argument("--agent", required=True, choices=("coding", "data"))
    parser.add_argument("--workplace", required=True, help="the project's folder, or the ads database")
    parser.add_argument("--tenant", required=True)
    parser.add_argument("--user", required=True, help="the user for whom the agent acts")
    asyncio.run(serve(parser.parse_args()))


if __name__ == "__main__":
    main()
