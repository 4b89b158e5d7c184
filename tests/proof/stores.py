"""The stores that the programs run on. Another one joins by a ``Kind`` in ``STORES``."""

from __future__ import annotations

import re
import sqlite3
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from satchel.servers import MariadbServer, PostgresServer, RedisServer, ServerMissing, mariadb, postgres, redis
from satchel.servers.program import children
from tests.proof.cluster import Fleet


class Server(Protocol):
    """What `satchel.servers` gives."""

    @property
    def pid(self) -> int: ...
    def url(self) -> str: ...
    def start(self) -> None: ...
    def start_again(self) -> None: ...
    def kill(self) -> None: ...
    def stop(self) -> None: ...


class Database:
    """An empty database of one program. ``weak_writers``: what its writers must plant in themselves to be as weak as asked."""

    def __init__(self, url: str, *, server: Server | None = None, weak_writers: str = "") -> None:
        self.url = url
        self.server = server
        self.weak_writers = weak_writers

    def pids(self) -> list[int]:
        """The processes that write for it; none where each client does so itself."""
        return [] if self.server is None else [self.server.pid, *children(self.server.pid)]


class Kind(NamedTuple):
    """``megabytes``: of a disk that is enough for it to be made and written to for some seconds. ``weak``: the setting by
    which a power cut loses what was acknowledged. ``is_special``: only the programs that ask for it run on it."""

    name: str
    make: Callable[[Path, bool], Any]  # in this folder, durable or not: a context manager that gives a Database
    megabytes: int
    weak: str
    has_server: bool
    version: Callable[[], str]  # "" where it is not installed
    is_special: bool = False
    is_private: bool = False  # no other process can open it


@contextmanager
def _sqlite(folder: Path, is_durable: bool) -> Iterator[Database]:
    """SQLite's setting is the connection's own, and no option of ours: a weak writer is one with a hand in its works."""
    yield Database(f"sqlite:///{folder}/proof.db", weak_writers="" if is_durable else "synchronous_off")


@contextmanager
def _memory(folder: Path, is_durable: bool) -> Iterator[Database]:
    """It lives in the process that opens it."""
    yield Database("memory:")


def _on(make: Callable[..., Server], weak: Mapping[str, str], *, weak_option: str = "") -> Callable[[Path, bool], Any]:
    """``weak_option``: of the address, by which a store takes a server that is weak."""

    @contextmanager
    def made(folder: Path, is_durable: bool) -> Iterator[Database]:
        server = make(settings={} if is_durable else weak)
        former, tempfile.tempdir = tempfile.tempdir, str(folder)  # where a private server makes its folder
        try:
            server.start()
        finally:
            tempfile.tempdir = former
        try:
            yield Database(server.url() + ("" if is_durable else weak_option), server=server)
        finally:
            server.stop()

    return made


@contextmanager
def _fleet(folder: Path, is_durable: bool) -> Iterator[Database]:
    """Three masters, each with a replica."""
    assert is_durable, "nobody asks for a weak one"
    with Fleet(folder) as fleet:
        yield Database(fleet.url(), server=fleet)


def _said_by(program: Callable[[], Path]) -> Callable[[], str]:
    """The last word that has a dot in the answer to `--version`."""

    def version() -> str:
        try:
            done = subprocess.run([program(), "--version"], capture_output=True, text=True, check=False)
        except (ServerMissing, OSError):
            return ""
        found = re.findall(r"\d+(?:\.\d+)+", done.stdout)
        return found[0] if found else ""

    return version


_REDIS = _on(RedisServer, {"appendfsync": "everysec"}, weak_option="?durability=relaxed")

STORES = {
    kind.name: kind
    for kind in (
        Kind(
            "sqlite",
            _sqlite,
            megabytes=48,
            weak="synchronous=OFF",
            has_server=False,
            version=lambda: sqlite3.sqlite_version,
        ),
        Kind(
            "postgres",
            _on(PostgresServer, {"synchronous_commit": "off", "wal_writer_delay": "2000ms"}),
            megabytes=192,
            weak="synchronous_commit=off",
            has_server=True,
            version=_said_by(lambda: postgres.programs() / "postgres"),
        ),
        Kind(
            "mysql",
            _on(MariadbServer, {"innodb_flush_log_at_trx_commit": "0"}, weak_option="?durability=relaxed"),
            megabytes=320,
            weak="innodb_flush_log_at_trx_commit=0",
            has_server=True,
            version=_said_by(lambda: mariadb.program("mariadbd")),
        ),
        Kind(
            "redis",
            _REDIS,
            megabytes=64,
            weak="appendfsync=everysec",
            has_server=True,
            version=_said_by(redis.program),
        ),
        Kind(
            "memory",
            _memory,
            megabytes=0,
            weak="",
            has_server=False,
            version=str,
            is_special=True,
            is_private=True,
        ),
        Kind(
            "redis-relaxed",  # one that acknowledges before the disk has it does not end itself when it cannot write
            lambda folder, _: _REDIS(folder, False),
            megabytes=64,
            weak="",
            has_server=True,
            version=_said_by(redis.program),
            is_special=True,
        ),
        Kind(
            "redis-cluster",
            _fleet,
            megabytes=0,
            weak="",
            has_server=True,
            version=_said_by(redis.program),
            is_special=True,
        ),
    )
}


def versions() -> dict[str, str]:
    """Of what the figures depend on."""
    found = {name: kind.version() for name, kind in STORES.items() if not kind.is_special}
    return {name: version for name, version in found.items() if version}
