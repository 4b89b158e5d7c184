"""A private pgbouncer in transaction mode, before the PostgreSQL server of this test process."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from pathlib import Path
from typing import Self

from satchel.servers import ServerMissing
from satchel.servers.postgres import USER
from satchel.servers.program import account, end_watch, free_port, new_folder, remove, start, watch_over

PATIENCE = 20.0  # seconds


class PgBouncer:
    """``target``: the port of the server. ``ignored``: settings of a client that it takes and forgets; others it refuses.
    ``size``: server connections of one database."""

    def __init__(self, target: int, *, ignored: str = "", size: int = 4) -> None:
        self._target = target
        self._ignored = ignored
        self._size = size
        self._process: subprocess.Popen[bytes] | None = None
        self._watcher: subprocess.Popen[bytes] | None = None
        self._folder: Path | None = None
        self._program: str | None = None
        self.port = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def start(self) -> None:
        """Raises ServerMissing, RuntimeError."""
        self._program = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")
        if self._program is None:
            raise ServerMissing("there is no pgbouncer here: install the package pgbouncer")
        owner = account("postgres")
        self._folder = folder = new_folder("satchel-pgbouncer-", owner)
        self.port = free_port()
        (folder / "pgbouncer.ini").write_text(
            "[databases]\n"
            f"* = host=127.0.0.1 port={self._target} user={USER}\n"
            "[pgbouncer]\n"
            f"listen_addr = 127.0.0.1\nlisten_port = {self.port}\nunix_socket_dir =\n"
            f"auth_type = any\npool_mode = transaction\ndefault_pool_size = {self._size}\n"
            f"max_client_conn = 100\nignore_startup_parameters = {self._ignored}\n"
        )
        self.start_again()

    def start_again(self) -> None:
        """On the same port; who is connected is cut off."""
        self._kill()
        folder = self._folder
        assert folder is not None
        assert self._program is not None
        self._process = start(
            [self._program, folder / "pgbouncer.ini"], folder=folder, owner=account("postgres"), log=folder / "log"
        )
        self._watcher = watch_over(self._process, folder, signal_name="TERM")
        deadline = time.monotonic() + PATIENCE
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"pgbouncer did not come up: {(folder / 'log').read_text(errors='replace')}")
            time.sleep(0.02)

    def _answers(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
        except OSError:
            return False
        return True

    def _kill(self) -> None:
        if self._watcher is not None:
            end_watch(self._watcher)
            self._watcher = None
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    def stop(self) -> None:
        """For good; twice is fine."""
        self._kill()
        if self._folder is not None:
            remove(self._folder)
            self._folder = None

    def before(self, url: str) -> str:
        """The address of the same database, through it."""
        return url.replace(f":{self._target}/", f":{self.port}/")
