"""A process of callers that ask all kinds of things of shared sessions, and write down what they were told, and when.

python -m tests.proof.caller '{"url": …}'
"""

from __future__ import annotations

import asyncio
import itertools
import random
import sys
import time
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import msgspec

import satchel
from satchel import Event, Message, Page, Principal, SatchelError, Session, SessionManager, VersionConflict
from satchel.errors import OutcomeUnknown, StoreBusy, StoreUnavailable
from tests.proof.history import Call, Line, Seen
from tests.proof.planted import open_planted

ADA = Principal.agent("caller", tenant_id="acme", acting_for="ada")


class Order(msgspec.Struct, kw_only=True):
    """``key``: of a service, if ``url`` is one. ``calls``: of each task."""

    url: str
    name: str
    output: str
    sessions: list[str]
    tasks: int
    calls: int
    seed: int
    key: str = ""
    planted: str = ""


def text_of(event: Event) -> str:
    """What its writer wrote by it."""
    body = event.data
    found = {
        "message": lambda: body.get("content"),
        "title_changed": lambda: body.get("title"),
        "working_memory_changed": lambda: body.get("set", {}).get("next_action"),
        "session_closed": lambda: body.get("reason"),
        "session_restored": lambda: body.get("reason"),
    }.get(event.kind)
    return str((found and found()) or "")


def lines_of(events: Iterable[Event]) -> tuple[Line, ...]:
    return tuple(Line(event.seq, event.version, event.kind, text_of(event)) for event in events)


def seen_in(session: Session) -> Seen:
    return Seen(session.version, session.last_seq, session.status, session.title, session.message_count)


class Caller:
    """One task: it asks one thing after another."""

    def __init__(self, order: Order, task: int, sessions: SessionManager, write: Callable[[Call], None]) -> None:
        self._name = f"{order.name}-{task}"
        self._random = random.Random(f"{order.seed}-{self._name}")
        self._sessions = sessions
        self._session_ids = order.sessions
        self._write = write
        self._numbers = itertools.count()
        self._known: dict[str, int] = dict.fromkeys(order.sessions, 0)
        self._memory_versions: dict[str, int] = dict.fromkeys(order.sessions, 0)
        self._keys: dict[str, list[str]] = {session_id: [] for session_id in order.sessions}
        self._last_seq: dict[str, int] = dict.fromkeys(order.sessions, 0)
        self._verbs: list[tuple[int, str]] = [
            (20, "append"), (10, "append_expected"), (4, "append_many"), (4, "retry"), (4, "twin"), (2, "mismatch"),
            (5, "memory"), (4, "rename"), (1, "close"), (1, "restore"), (3, "nothing"),
            (14, "get"), (8, "events"), (6, "messages"),
        ]  # fmt: skip

    async def ask(self) -> None:
        session_id = self._random.choice(self._session_ids)
        (verb,) = self._random.choices([verb for _, verb in self._verbs], weights=[weight for weight, _ in self._verbs])
        await getattr(self, f"_{verb}")(session_id)

    def _text(self) -> str:
        return f"{self._name}-{next(self._numbers)}"

    async def _call(self, session_id: str, verb: str, ask: Callable[[], Awaitable[Any]], **asked: Any) -> bool:
        """Whether it was done."""
        began = time.monotonic_ns()
        told: dict[str, Any] = {"told": "done"}
        try:
            answer = await ask()
        except (StoreBusy, StoreUnavailable, OutcomeUnknown, OSError) as error:
            told = {"told": "unknown", "code": getattr(error, "code", "cut")}
        except VersionConflict as error:
            told = {"told": "refused", "code": error.code, "current": error.current, "changed": tuple(error.changed)}
        except SatchelError as error:
            told = {"told": "refused", "code": error.code}
        else:
            told |= self._told(session_id, verb, answer)
        ended = time.monotonic_ns()
        self._write(Call(session=session_id, verb=verb, began=began, ended=ended, **asked, **told))
        if told.get("code") == "session_closed" and self._random.random() < 0.3:
            await self._restore(session_id)
        return bool(told["told"] == "done")

    def _told(self, session_id: str, verb: str, answer: Any) -> dict[str, Any]:
        if isinstance(answer, Session):
            self._known[session_id] = answer.version
            return {"seen": seen_in(answer), "replayed": answer.replayed}
        if isinstance(answer, Page):
            lines = _lines_in(answer)
            if verb == "events" and lines:
                self._last_seq[session_id] = lines[-1].seq
            return {"lines": lines, "is_whole": answer.next is None}
        if verb == "memory":
            self._memory_versions[session_id] = answer.version
            return {"version": answer.version, "replayed": answer.replayed}
        self._known[session_id] = max(self._known[session_id], answer[-1].version)
        versions = {message.version for message in answer}
        assert len(versions) == 1, "one batch has one version"
        return {
            "version": versions.pop(),
            "seqs": tuple(message.seq for message in answer),
            "replayed": answer[0].replayed,
        }

    async def _say(self, session_id: str, verb: str, *texts: str, **options: Any) -> None:
        said = [{"role": "user", "content": text} for text in texts]
        key = options.pop("key", "")

        async def ask() -> tuple[Message, ...]:
            asked: dict[str, Any] = {"idempotency_key": key or None, "expected_version": options.get("expected")}
            if len(said) == 1:
                return (await self._sessions.append_message(session_id, said[0], **asked),)
            return await self._sessions.append_messages(session_id, said, **asked)

        if await self._call(session_id, verb, ask, texts=texts, key=key, **options) and key:
            self._keys[session_id].append(key)

    async def _append(self, session_id: str) -> None:
        text = self._text()
        await self._say(session_id, "append", text, key=text if self._random.random() < 0.3 else "")

    async def _append_expected(self, session_id: str) -> None:
        if self._random.random() < 0.5:
            await self._get(session_id)
        await self._say(session_id, "append", self._text(), expected=self._known[session_id])

    async def _append_many(self, session_id: str) -> None:
        await self._say(session_id, "append_many", *(self._text() for _ in range(self._random.randint(2, 4))))

    async def _retry(self, session_id: str) -> None:
        if self._keys[session_id]:
            key = self._random.choice(self._keys[session_id][-8:])
            await self._say(session_id, "append", key, key=key)

    async def _twin(self, session_id: str) -> None:
        """Under a key that callers of other processes are about to use too."""
        key = f"twin-{time.monotonic_ns() // 50_000_000}"
        await self._say(session_id, "append", key, key=key)

    async def _mismatch(self, session_id: str) -> None:
        if not self._keys[session_id]:
            return
        key = self._random.choice(self._keys[session_id])

        async def ask() -> tuple[Message, ...]:
            other = {"role": "user", "content": "another request"}
            return (await self._sessions.append_message(session_id, other, idempotency_key=key),)

        await self._call(session_id, "mismatch", ask, key=key)

    async def _memory(self, session_id: str) -> None:
        text, expected = self._text(), self._memory_versions[session_id]

        async def ask() -> Any:
            patch = {"set": {"next_action": text}}
            return await self._sessions.update_working_memory(session_id, patch, expected_version=expected)

        await self._call(session_id, "memory", ask, texts=(text,), expected=expected)
        if self._random.random() < 0.7:  # it looks again after most, so that others are refused sometimes
            self._memory_versions[session_id] = (await self._sessions.get_working_memory(session_id)).version

    async def _rename(self, session_id: str) -> None:
        text = self._text()
        await self._call(session_id, "rename", lambda: self._sessions.rename_session(session_id, text), texts=(text,))

    async def _close(self, session_id: str) -> None:
        text = self._text()
        await self._call(
            session_id, "close", lambda: self._sessions.close_session(session_id, reason=text), texts=(text,)
        )

    async def _restore(self, session_id: str) -> None:
        text = self._text()
        await self._call(
            session_id, "restore", lambda: self._sessions.restore_session(session_id, reason=text), texts=(text,)
        )

    async def _nothing(self, session_id: str) -> None:
        await self._call(
            session_id, "nothing", lambda: self._sessions.update_session(session_id, metadata={"absent": None})
        )

    async def _get(self, session_id: str) -> None:
        await self._call(session_id, "get", lambda: self._sessions.get_session(session_id, include=()))

    async def _events(self, session_id: str) -> None:
        after = self._last_seq[session_id]
        await self._call(
            session_id, "events", lambda: self._sessions.events(session_id, after=after, limit=20), after=after
        )

    async def _messages(self, session_id: str) -> None:
        await self._call(session_id, "messages", lambda: self._sessions.messages(session_id, order="desc", limit=3))


def _lines_in(page: Page[Any]) -> tuple[Line, ...]:
    if page.items and isinstance(page.items[0], Message):
        return tuple(
            Line(message.seq, message.version, "message", message.content or "") for message in reversed(page.items)
        )
    return lines_of(page.items)


def _opened(order: Order) -> AbstractAsyncContextManager[Any]:
    if order.key:
        return satchel.connect(order.url, order.key)
    return open_planted(order.url, order.planted)


async def main(order: Order) -> None:
    async with _opened(order) as opened:
        await ask_all(order, opened.sessions if order.key else SessionManager(opened, ADA))


async def ask_all(order: Order, sessions: Any) -> None:
    encode = msgspec.json.Encoder().encode
    with Path(order.output).open("wb", buffering=1 << 16) as output:  # noqa: ASYNC230  # small, local and buffered

        def write(call: Call) -> None:
            output.write(encode(call) + b"\n")

        async def go_on(caller: Caller) -> None:
            for _ in range(order.calls):
                await caller.ask()

        await asyncio.gather(*(go_on(Caller(order, task, sessions, write)) for task in range(order.tasks)))


if __name__ == "__main__":
    asyncio.run(main(msgspec.json.decode(sys.argv[1], type=Order)))
