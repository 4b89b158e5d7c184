"""Databases on a server that many tests use one after another."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import pytest

from satchel.servers import ServerMissing

FULL = ("pgbouncer", "patroni")  # what `make test-full` alone needs
INSTALLER = Path(__file__).parents[2] / "tools" / "databases.sh"


class Startable(Protocol):
    def start(self) -> None: ...


class Server(Startable, Protocol):
    def create_database(self, name: str) -> str: ...
    def shell(self, database: str) -> subprocess.Popen[bytes]: ...


def started(server: Startable, package: str) -> None:
    """Installs Debian's ``package`` if it is missing and may be installed. Else the test is skipped, and in CI it fails."""
    try:
        server.start()
    except ServerMissing as missing:
        if not _install(package):
            if os.environ.get("CI") == "true":
                pytest.fail(f"the CI tests all stores: {missing}", pytrace=False)
            pytest.skip(str(missing))
        server.start()


def _install(package: str) -> bool:
    """`make test` has done it before; this is for who runs pytest alone."""
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        return False
    subprocess.run(
        [INSTALLER, "full" if package in FULL else ""],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=False,
    )
    asked = subprocess.run(["dpkg-query", "--show", package], capture_output=True, check=False)
    return asked.returncode == 0


class Shared:
    """A database that is emptied between two users. ``empty``: statements whose last says `done`."""

    def __init__(self, server: Server, name: str, empty: bytes) -> None:
        self.url = server.create_database(name)
        self._empty = empty
        self._shell = server.shell(name)
        self._emptied_for: object = None

    def empty(self, once_for: object) -> None:
        if once_for == self._emptied_for:
            return
        if self._emptied_for is not None:
            assert self._shell.stdin is not None
            assert self._shell.stdout is not None
            self._shell.stdin.write(self._empty)
            self._shell.stdin.flush()
            said = self._shell.stdout.readline()
            assert said == b"done\n", said
        self._emptied_for = once_for

    def close(self) -> None:
        self._shell.communicate()


class Databases:
    """Those of one server of this test process; ``server`` gives it, started."""

    def __init__(self, server: Callable[[], Server], empty: bytes) -> None:
        self._server = server
        self._empty = empty
        self._made = 0
        self._shared: dict[str, Shared] = {}

    def new(self) -> str:
        """The address of an empty database of one's own."""
        self._made += 1
        return self._server().create_database(f"test_{self._made}")

    def emptied(self, name: str, *, once_for: object) -> str:
        """The address of a database that is emptied for each new ``once_for`` (a test's folder, say)."""
        if name not in self._shared:
            self._shared[name] = Shared(self._server(), name, self._empty)
        self._shared[name].empty(once_for)
        return self._shared[name].url

    def close(self) -> None:
        for shared in self._shared.values():
            shared.close()
        self._shared.clear()
