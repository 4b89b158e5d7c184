"""A model's endpoint on a real socket. Its answers are scripted: pieces of bytes, pauses, cuts."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

CUT = object()  # the connection is torn down
STALL = object()  # nothing more comes until the client leaves


def chunk(delta: Any = None, finish: Any = None, *, index: Any = 0, **more: Any) -> dict[str, Any]:
    choice = {"index": index, "delta": {} if delta is None else delta, "finish_reason": finish}
    return {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice], **more}


def usage(prompt: int, completion: int) -> dict[str, Any]:
    counts = {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
    return {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [], "usage": counts}


def call_piece(index: Any, *, id: Any = None, name: Any = None, arguments: Any = None) -> dict[str, Any]:
    """A delta with a piece of a tool call."""
    function = {key: value for key, value in (("name", name), ("arguments", arguments)) if value is not None}
    piece: dict[str, Any] = {"function": function}
    if index is not None:
        piece["index"] = index
    if id is not None:
        piece |= {"id": id, "type": "function"}
    return {"tool_calls": [piece]}


@dataclass
class Reply:
    """What one request gets: the parts of the body, each sent by itself. A number is a pause in seconds."""

    parts: Sequence[Any] = ()
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)


def stream(*items: Any, done: bool = True) -> Reply:
    """Server-sent events: dicts become events, anything else stays a part."""
    parts = [f"data: {json.dumps(item)}\n\n".encode() if isinstance(item, dict) else item for item in items]
    if done:
        parts.append(b"data: [DONE]\n\n")
    return Reply(parts, headers={"Content-Type": "text/event-stream"})


def says(*texts: str, finish: str = "stop", tokens: tuple[int, int] | None = (10, 5)) -> Reply:
    items = [chunk({"role": "assistant", "content": ""}), *(chunk({"content": text}) for text in texts)]
    items.append(chunk(None, finish))
    return stream(*items, *([usage(*tokens)] if tokens else []))


def asks(*calls: tuple[str, str, str], text: str | None = None, tokens: tuple[int, int] = (20, 7)) -> Reply:
    """Tool calls as (id, name, arguments)."""
    items = [chunk({"role": "assistant", "content": text})]
    for index, (label, name, arguments) in enumerate(calls):
        items.append(chunk(call_piece(index, id=label, name=name, arguments="")))
        half = len(arguments) // 2
        items += [chunk(call_piece(index, arguments=piece)) for piece in (arguments[:half], arguments[half:])]
    return stream(*items, chunk(None, "tool_calls"), usage(*tokens))


def refuses(status: int, message: str, *, code: str | None = None, **headers: str) -> Reply:
    body = json.dumps({"error": {"message": message, "code": code, "type": "error"}}).encode()
    return Reply([body], status=status, headers={"Content-Type": "application/json", **headers})


class ModelServer:
    """``replies`` are given in turn; a function among them gets the request and makes one."""

    def __init__(self) -> None:
        self.replies: list[Reply | Callable[[dict[str, Any]], Reply]] = []
        self.requests: list[dict[str, Any]] = []
        self.keys: list[str] = []
        self.left = 0  # clients that went away before their reply was whole
        self.url = ""

    @property
    def seen(self) -> list[dict[str, Any]]:
        """The messages of the newest request."""
        return list(self.requests[-1]["messages"])

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await self._serve_one(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError):
            self.left += 1
        finally:
            writer.close()

    async def _serve_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        except asyncio.IncompleteReadError:  # between two requests a client may leave
            return False
        headers = dict(line.split(": ", 1) for line in head.split("\r\n")[1:] if ": " in line)
        request = json.loads(await reader.readexactly(int(headers["content-length"])))
        self.requests.append(request)
        self.keys.append(headers.get("authorization", ""))
        planned = self.replies.pop(0) if self.replies else refuses(400, "the script has no more replies")
        reply = planned if isinstance(planned, Reply) else planned(request)
        return await self._answer(reply, reader, writer)

    async def _answer(self, reply: Reply, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        lines = [f"HTTP/1.1 {reply.status} Scripted", "Transfer-Encoding: chunked"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in reply.headers.items()]
        writer.write("\r\n".join([*lines, "", ""]).encode())
        await writer.drain()
        for part in reply.parts:
            if part is CUT:
                writer.transport.abort()
                return False
            if part is STALL:
                await reader.read()
                self.left += 1
                return False
            if isinstance(part, (int, float)):
                await asyncio.sleep(part)
                continue
            writer.write(f"{len(part):x}\r\n".encode() + part + b"\r\n")
            await writer.drain()
            await asyncio.sleep(0)
        writer.write(b"0\r\n\r\n")
        await writer.drain()
        return True


@asynccontextmanager
async def model_server() -> AsyncIterator[ModelServer]:
    model = ModelServer()
    server = await asyncio.start_server(model.serve, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()[:2]
    model.url = f"http://{host}:{port}/v1"
    async with server:
        yield model
