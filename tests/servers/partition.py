"""A Redis Cluster whose servers can be cut off from each other, while every client still reaches each of them."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Coroutine
from typing import Any

from satchel.servers import RedisCluster, RedisServer
from satchel.servers.program import free_port


class Gates:
    """What passes between servers, and is held back while one of its ends is cut off: nothing arrives, and nobody is told. A
    server is known by its address, from which it also calls the others. Runs on a thread of its own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._cut: set[str] = set()
        self._healed = asyncio.Event()
        self._servers: list[asyncio.Server] = []

    def _run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(10)

    def open(self, host: str, port: int, target: int) -> None:
        async def serve() -> None:
            async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                await self._pass(host, target, reader, writer)

            self._servers.append(await asyncio.start_server(accept, host, port))

        self._run(serve())

    async def _pass(self, host: str, target: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        caller: str = writer.get_extra_info("peername")[0]
        ends = [writer]
        try:
            await self._until_open(caller, host)
            there, here = await asyncio.open_connection(host, target)
            ends.append(here)
            await asyncio.gather(self._pump(caller, host, reader, here), self._pump(caller, host, there, writer))
        except OSError:
            pass
        finally:
            for end in ends:
                end.transport.abort()

    async def _pump(self, caller: str, host: str, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        while data := await source.read(1 << 16):
            await self._until_open(caller, host)
            sink.write(data)
            await sink.drain()
        raise ConnectionResetError

    async def _until_open(self, caller: str, host: str) -> None:
        """Clients call from elsewhere."""
        while caller != host and caller.startswith("127.0.1.") and {caller, host} & self._cut:
            await self._healed.wait()

    def cut_off(self, host: str) -> None:
        async def cut() -> None:
            self._healed.clear()
            self._cut.add(host)

        self._run(cut())

    def heal(self) -> None:
        async def heal() -> None:
            self._cut.clear()
            self._healed.set()

        self._run(heal())

    def close(self) -> None:
        async def close() -> None:
            for server in self._servers:
                server.close()
            others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)

        with contextlib.suppress(TimeoutError):
            self._run(close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class PartedCluster(RedisCluster):
    """Each server has an address of its own, and gates before its ports."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.gates = Gates()
        self._gates_of: dict[str, tuple[int, int]] = {}

    def make(self, index: int) -> RedisServer:
        host = f"127.0.1.{index + 1}"
        port, bus = free_port(), free_port()
        server = super().make(index)
        server.host = host
        server.settings |= {
            "bind-source-addr": host,
            "cluster-announce-ip": host,
            "cluster-announce-port": str(port),
            "cluster-announce-bus-port": str(bus),
            "replica-announce-ip": host,
            "replica-announce-port": str(port),
        }
        self._gates_of[host] = (port, bus)
        server.port = free_port()
        self.gates.open(host, port, server.port)
        self.gates.open(host, bus, int(server.settings["cluster-port"]))
        return server

    def announced(self, server: RedisServer) -> tuple[str, int, int]:
        return server.host, *self._gates_of[server.host]

    def cut_off(self, server: RedisServer) -> None:
        self.gates.cut_off(server.host)

    def heal(self) -> None:
        self.gates.heal()

    def stop(self) -> None:
        super().stop()
        self.gates.close()
