"""A private Redis server."""

from __future__ import annotations

import shutil
import socket
from collections.abc import Mapping
from pathlib import Path

from satchel.servers.private import PrivateServer
from satchel.servers.program import ServerMissing, account, free_port, new_folder, start

# What makes it durable, as satchel.open asks for it.
DURABLE: Mapping[str, str] = {
    "appendonly": "yes",
    "appendfsync": "always",
    "no-appendfsync-on-rewrite": "no",
    "maxmemory-policy": "noeviction",
}
DATABASE = "satchel"
_SETTINGS: Mapping[str, str] = {"save": "", "protected-mode": "yes", "tcp-backlog": "128", "loglevel": "warning"}


def program() -> Path:
    """`redis-server`. Raises ServerMissing."""
    found = shutil.which("redis-server")
    if found is None:
        raise ServerMissing("there is no Redis server here: install the package redis-server")
    return Path(found)


def ask(host: str, port: int, *words: str, database: int = 0) -> bytes:
    """One command on a connection of its own; the first bytes of its answer. Raises OSError."""
    with socket.create_connection((host, port), timeout=5) as connection:
        if database:
            connection.sendall(_packed("SELECT", str(database)))
            connection.recv(1 << 10)
        connection.sendall(_packed(*words))
        return connection.recv(1 << 16)


def _packed(*words: str) -> bytes:
    parts = [b"$%d\r\n%b\r\n" % (len(word.encode()), word.encode()) for word in words]
    return b"*%d\r\n%b" % (len(parts), b"".join(parts))


class RedisServer(PrivateServer):
    """``settings`` are those of `redis.conf`; without others it is durable. ``port`` 0: a free one. Use it as a context manager,
    or ``start`` and ``stop``. Its databases have numbers; ``create_database`` gives each name one of them, `satchel` has 0."""

    def __init__(self, *, settings: Mapping[str, str] | None = None, host: str = "127.0.0.1", port: int = 0) -> None:
        self.settings = {**_SETTINGS, **DURABLE, **(settings or {})}
        self.host = host
        self.port = port
        self._numbers = {DATABASE: 0}

    def url(self, database: int = 0) -> str:
        return f"redis://{self.host}:{self.port}/{database}"

    def create_database(self, name: str) -> str:
        """Its address; one that is there is left as it is. Raises RuntimeError: the server has no more (16, unless its settings
        say other)."""
        if name not in self._numbers:
            room = int(self.settings.get("databases", "16"))
            free = sorted(set(range(room)) - set(self._numbers.values()))
            if not free:
                raise RuntimeError(f"no database is left for {name!r}: the server has {room} (its setting `databases`)")
            self._numbers[name] = free[0]
        return self.url(self._numbers[name])

    def drop_database(self, name: str) -> None:
        """With all that is in it; its number may be given to another."""
        if name in self._numbers:
            self.ask("FLUSHDB", database=self._numbers[name])
            del self._numbers[name]

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Raises ServerMissing, RuntimeError (with the server's own words)."""
        program()
        self._folder = new_folder("satchel-redis-", account("redis"))
        self.port = self.port or free_port()
        try:
            self.start_again()
        except BaseException:
            self.stop()
            raise

    def start_again(self) -> None:
        """On the data that are there, on the same port: after ``kill``, or ``shut_down``."""
        assert self._folder is not None
        settings = [word for name, value in self.settings.items() for word in (f"--{name}", value)]
        self._process = start(
            [program(), "--bind", self.host, "--port", str(self.port), "--dir", str(self._folder), *settings],
            folder=self._folder,
            owner=account("redis"),
            log=self._folder / "log",
        )
        self._watch_until_it_answers()

    def _answers(self) -> bool:
        try:
            return self.ask("PING").startswith(b"+PONG")
        except OSError:
            return False

    def ask(self, *words: str, database: int = 0) -> bytes:
        """One command; the first bytes of its answer, as they come."""
        return ask(self.host, self.port, *words, database=database)
