"""A private MariaDB server."""

from __future__ import annotations

import shutil
import socket
import subprocess
from collections.abc import Mapping
from pathlib import Path

from satchel.servers.private import PrivateServer
from satchel.servers.program import START_PATIENCE, ServerMissing, account, free_port, new_folder, start

USER = "satchel"
DATABASE = "satchel"
FOLDERS = ("/usr/sbin", "/usr/bin", "/usr/local/bin", "/usr/local/mysql/bin", "/opt/homebrew/bin")

_SETTINGS: Mapping[str, str] = {
    "max_connections": "200",
    "innodb_buffer_pool_size": "128M",
    "innodb_log_file_size": "96M",
    "performance_schema": "OFF",
    "log_warnings": "1",
}
# Ours is an account without a password, as the socket and the port are on this machine alone.
_ACCOUNT = f"""\
CREATE DATABASE IF NOT EXISTS {DATABASE};
CREATE USER IF NOT EXISTS '{USER}'@'127.0.0.1';
GRANT ALL ON *.* TO '{USER}'@'127.0.0.1' WITH GRANT OPTION;
"""


def program(name: str) -> Path:
    """Raises ServerMissing."""
    found = shutil.which(name) or shutil.which(name, path=":".join(FOLDERS))
    if found is None:
        raise ServerMissing("there is no MariaDB server here: install the package mariadb-server")
    return Path(found)


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


class MariadbServer(PrivateServer):
    """``settings`` are system variables. Use it as a context manager, or ``start`` and ``stop``. Its database `satchel` is there
    from the start."""

    def __init__(self, *, settings: Mapping[str, str] | None = None) -> None:
        self._settings = {**_SETTINGS, **(settings or {})}
        self.port = 0

    def url(self, database: str = DATABASE) -> str:
        return f"mysql://{USER}@127.0.0.1:{self.port}/{database}"

    @property
    def socket(self) -> Path:
        assert self._folder is not None, "it was not started"
        return self._folder / "socket"

    def start(self) -> None:
        """Make a new server and serve it. Raises ServerMissing, RuntimeError (with the server's own words)."""
        install, _ = program("mariadb-install-db"), program("mariadbd")
        owner = account("mysql")
        self._folder = folder = new_folder("satchel-mariadb-", owner)
        self.port = free_port()
        try:
            made = start(
                [
                    install,
                    "--no-defaults",
                    f"--datadir={folder / 'data'}",
                    "--auth-root-authentication-method=normal",
                    "--skip-test-db",
                    "--skip-name-resolve",
                    f"--innodb-log-file-size={self._settings['innodb_log_file_size']}",
                ],
                folder=folder,
                owner=owner,
                log=folder / "log",
            )
            if made.wait(START_PATIENCE) != 0:
                raise RuntimeError(f"mariadb-install-db failed: {self.log()}")
            (folder / "account.sql").write_text(_ACCOUNT, encoding="utf-8")
            self.start_again()
        except BaseException:
            self.stop()
            raise

    def start_again(self) -> None:
        """Serve what is there, on the same port: after ``kill``, or ``shut_down``."""
        assert self._folder is not None
        settings = [f"--{name.replace('_', '-')}={value}" for name, value in self._settings.items()]
        self._process = start(
            [
                program("mariadbd"),
                "--no-defaults",
                f"--datadir={self._folder / 'data'}",
                "--bind-address=127.0.0.1",
                f"--port={self.port}",
                f"--socket={self.socket}",
                f"--pid-file={self._folder / 'pid'}",
                f"--tmpdir={self._folder}",
                f"--init-file={self._folder / 'account.sql'}",
                "--skip-name-resolve",
                *settings,
            ],
            folder=self._folder,
            owner=account("mysql"),
            log=self._folder / "log",
        )
        self._watch_until_it_answers()

    def _answers(self) -> bool:
        """It greets whoever connects, once it is ready."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1) as probe:
                return len(probe.recv(5)) == 5
        except OSError:
            return False

    def create_database(self, name: str) -> str:
        """Its address; one that is there is left as it is."""
        self._run(f"CREATE DATABASE IF NOT EXISTS {_quoted(name)}")
        return self.url(name)

    def drop_database(self, name: str) -> None:
        self._run(f"DROP DATABASE IF EXISTS {_quoted(name)}")

    def shell(self, database: str) -> subprocess.Popen[bytes]:
        """A client that reads statements from its standard input and writes plain rows; errors do not end it. It is root's, and
        comes by the socket: no client of ours is it."""
        options = ("--unbuffered", "--force", "--skip-column-names", "--batch", "--raw")
        return subprocess.Popen(
            [program("mariadb"), "--no-defaults", f"--socket={self.socket}", "--user=root", *options, database],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )

    def _run(self, statement: str) -> None:
        done = subprocess.run(
            [
                program("mariadb"),
                "--no-defaults",
                "--protocol=tcp",
                "--host=127.0.0.1",
                f"--port={self.port}",
                f"--user={USER}",
                f"--execute={statement}",
            ],
            capture_output=True,
            check=False,
        )
        if done.returncode != 0:
            raise RuntimeError(done.stderr.decode(errors="replace"))
