"""A session, a model's endpoint on a real socket, and an engine between them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from satchel import Message, OpenStore, Principal, Run, RunManager, SessionManager, TextDelta, Worker
from satchel.engines import ChatEngine
from tests.engines.model_server import ModelServer, Reply

KEY = "sk-very-secret-key"
ADA = Principal.user("ada", tenant_id="acme")


def error_of(run: Run) -> tuple[str, str | None]:
    return run.status, None if run.error is None else run.error.code


class ChatStage:
    def __init__(self, store: OpenStore, model: ModelServer) -> None:
        self.store = store
        self.model = model
        self.sessions = SessionManager(store, ADA)
        self.runs = RunManager(store, ADA)
        self.session_id = ""

    def engine(self, **options: Any) -> ChatEngine:
        common: dict[str, Any] = {"base_url": self.model.url, "api_key": KEY, "retries": 0, "timeout": 5.0}
        return ChatEngine("m-1", **common | options)

    @asynccontextmanager
    async def working(self, engine: ChatEngine, **options: Any) -> AsyncIterator[Worker]:
        worker = Worker(self.store, {"chat": engine}, **{"grace": 5.0} | options)
        task = asyncio.create_task(worker.run_forever())
        try:
            yield worker
        finally:
            worker.stop()
            await task

    async def added(self, said: Any = "Hello", **options: Any) -> Run:
        if not self.session_id:
            self.session_id = (await self.sessions.create_session()).session_id
        return await self.runs.add_run(self.session_id, agent="chat", input=said, on_busy="queue", **options)

    async def ended(self, run: Run) -> Run:
        async for _ in self.sessions.follow(self.session_id, after=0, run_id=run.run_id):
            pass
        return await self.runs.get_run(self.session_id, run.run_id)

    async def heard(self, run_id: str, text: str) -> None:
        """Until this much of an answer was said."""
        heard = ""
        async for item in self.sessions.follow(self.session_id, after=0, run_id=run_id, text=True):
            if isinstance(item, TextDelta):
                heard += item.text
                if text in heard:
                    return
        raise AssertionError(f"the run ended, and {heard!r} was all it said")

    async def talk(self, said: Any, *replies: Reply, engine: ChatEngine | None = None, **options: Any) -> Run:
        """One run to its end, the model answering with ``replies``."""
        self.model.replies += replies
        async with self.working(engine or self.engine()):
            return await self.ended(await self.added(said, **options))

    async def messages(self) -> list[Message]:
        return list((await self.sessions.messages(self.session_id)).items)

    async def bodies(self) -> list[dict[str, Any]]:
        return [message.data for message in await self.messages()]

    async def steps(self) -> list[dict[str, Any]]:
        events = await self.sessions.events(self.session_id, kind="run_step")
        return [event.data for event in events]
