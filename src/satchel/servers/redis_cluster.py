"""A private cluster of Redis servers."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from typing import Self

from satchel.servers.program import START_PATIENCE, free_port
from satchel.servers.redis import RedisServer

SLOTS = 16_384


class RedisCluster:
    """``masters`` servers that share the slots, each with ``replicas`` of its own. ``node_timeout``: seconds after which the
    others hold a server for dead. ``settings`` are those of `redis.conf`, for all; without others it is durable."""

    def __init__(
        self,
        *,
        masters: int = 3,
        replicas: int = 1,
        node_timeout: float = 2.0,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self._count = masters
        self._replicas = replicas
        self._settings = {
            "cluster-enabled": "yes",
            "cluster-config-file": "nodes.conf",
            "cluster-node-timeout": str(int(node_timeout * 1000)),
            "repl-diskless-sync-delay": "0",
            "repl-ping-replica-period": "1",  # until there was something to send, a replica passes for one that has nothing
            **(settings or {}),
        }
        self.servers: list[RedisServer] = []

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def url(self) -> str:
        """Names all servers that were there at first."""
        return "redis+cluster://" + ",".join(f"{host}:{port}" for host, port, _ in map(self.announced, self.servers))

    def make(self, index: int) -> RedisServer:
        """The server number ``index``, not started. Whoever puts something between the servers does it here."""
        del index
        return RedisServer(settings={**self._settings, "cluster-port": str(free_port())})

    def announced(self, server: RedisServer) -> tuple[str, int, int]:
        """Where others find it: host, port, the port of the cluster's own talk."""
        return server.host, server.port, int(server.settings["cluster-port"])

    def start(self) -> None:
        """Raises ServerMissing, RuntimeError."""
        try:
            for index in range(self._count * (1 + self._replicas)):
                self.servers.append(self.make(index))
                self.servers[-1].start()
            self._join()
        except BaseException:
            self.stop()
            raise

    def _join(self) -> None:
        masters, replicas = self.servers[: self._count], self.servers[self._count :]
        share = -(-SLOTS // self._count)
        for index, master in enumerate(masters):
            first, last = index * share, min((index + 1) * share, SLOTS) - 1
            _say(master, "CLUSTER", "ADDSLOTSRANGE", str(first), str(last))
            _say(master, "CLUSTER", "SET-CONFIG-EPOCH", str(index + 1))
        host, port, bus = self.announced(masters[0])
        for server in self.servers[1:]:
            _say(server, "CLUSTER", "MEET", host, str(port), str(bus))
        self.wait_until(lambda: all(self._knows_all(server) for server in self.servers), "the servers do not meet")
        for index, replica in enumerate(replicas):
            master_id = masters[index % self._count].ask("CLUSTER", "MYID").split(b"\r\n")[1].decode()
            _say(replica, "CLUSTER", "REPLICATE", master_id)
        self.wait_until(self.is_whole, "the cluster does not become whole")

    def _knows_all(self, server: RedisServer) -> bool:
        return f"cluster_known_nodes:{len(self.servers)}\r\n".encode() in server.ask("CLUSTER", "INFO")

    def is_whole(self) -> bool:
        """Every slot is served, each replica follows its master, and everybody knows it."""
        followers = 0
        for server in self.running():
            if b"cluster_state:ok" not in server.ask("CLUSTER", "INFO"):
                return False
            role = server.ask("ROLE").split(b"\r\n")
            if b"slave" in role:
                followers += 1
                if b"connected" not in role:
                    return False
        known = [len(re.findall(rb"\$40\r\n", server.ask("CLUSTER", "SLOTS"))) for server in self.running()]
        return all(count >= followers + len(self.masters()) for count in known)

    def running(self) -> list[RedisServer]:
        return [server for server in self.servers if server.is_running]

    def masters(self) -> list[RedisServer]:
        """Those that call themselves so, and have slots."""
        return [
            server
            for server in self.running()
            if re.search(rb"myself,master\S* .* \d+-\d+", server.ask("CLUSTER", "NODES"))
        ]

    def replicas_of(self, master: RedisServer) -> list[RedisServer]:
        """Those that follow it and have all that it has."""
        role = master.ask("ROLE")
        ports = {int(port) for port in re.findall(rb"\r\n\$\d+\r\n(\d{4,5})\r\n", role)}
        return [server for server in self.running() if self.announced(server)[1] in ports]

    def wait_until(self, is_so: Callable[[], bool], otherwise: str, *, patience: float = START_PATIENCE) -> None:
        deadline = time.monotonic() + patience
        while True:
            try:
                if is_so():
                    return
            except OSError:
                pass  # one that is just going away
            if time.monotonic() > deadline:
                raise RuntimeError(otherwise)
            time.sleep(0.05)

    def stop(self) -> None:
        """For good; twice is fine."""
        for server in self.servers:
            if server.is_running:
                server.kill()  # nobody fails over while the others are stopped one by one
        for server in self.servers:
            server.stop()


def _say(server: RedisServer, *words: str) -> None:
    answer = server.ask(*words)
    if not answer.startswith(b"+OK"):
        raise RuntimeError(f"{' '.join(words[:2])}: {answer.decode(errors='replace')}")
