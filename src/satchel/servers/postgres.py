"""A private PostgreSQL server."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path

from satchel.servers.private import PrivateServer
from satchel.servers.program import START_PATIENCE, ServerMissing, account, free_port, new_folder, start

USER = "satchel"
DATABASE = "satchel"
FOLDERS = (
    "/usr/lib/postgresql/*/bin",
    "/usr/pgsql-*/bin",
    "/opt/homebrew/opt/postgresql@*/bin",
    "/usr/local/pgsql/bin",
)

_SETTINGS: Mapping[str, str] = {
    "max_connections": "100",
    "shared_buffers": "64MB",
    "dynamic_shared_memory_type": "mmap",  # in the server's folder, which is removed also after a kill
    "unix_socket_permissions": "0700",
    "log_min_messages": "fatal",
    "log_min_error_statement": "panic",
}


def programs() -> Path:
    """The folder of `initdb` and `postgres`, of the newest version that is installed. Raises ServerMissing."""
    found = [path for pattern in FOLDERS for path in Path("/").glob(pattern.lstrip("/")) if (path / "initdb").exists()]
    if found:
        return max(found, key=_version)
    on_path = shutil.which("initdb")
    if on_path is not None:
        return Path(on_path).resolve().parent
    raise ServerMissing("there is no PostgreSQL server here: install the package postgresql")


def _version(path: Path) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", str(path)))


# Neither a standby that does not come yet nor a setting of the server's is in the way of its own upkeep.
_OPTIONS = "-c synchronous_commit=local -c default_transaction_read_only=off"


def tell(url: str, statement: str, *, by: Path, options: str = "") -> None:
    """As `psql` of the folder ``by`` does. Raises RuntimeError (with the server's own words)."""
    done = subprocess.run(
        [by / "psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", "-d", url],
        input=statement.encode(),
        capture_output=True,
        check=False,
        env=os.environ | {"PGOPTIONS": options},
    )
    if done.returncode != 0:
        raise RuntimeError(done.stderr.decode(errors="replace"))


def creation_of(name: str) -> str:
    """The statement for ``tell``; a database that is there is left as it is."""
    made, text = (f"CREATE DATABASE {_quoted(name)}".replace("'", "''"), name.replace("'", "''"))
    return f"SELECT '{made}' WHERE NOT EXISTS (SELECT FROM pg_database WHERE datname = '{text}') \\gexec\n"  # noqa: S608  # quoted


def removal_of(name: str) -> str:
    return f"DROP DATABASE IF EXISTS {_quoted(name)} WITH (FORCE)"


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


class PostgresServer(PrivateServer):
    """``settings`` are those of `postgresql.conf`. Use it as a context manager, or ``start`` and ``stop``. Its database
    `satchel` is there from the start."""

    stopped_by = signal.SIGINT  # fast: it does not wait for who is connected

    def __init__(self, *, settings: Mapping[str, str] | None = None) -> None:
        self._settings = {**_SETTINGS, **(settings or {})}
        self._programs: Path | None = None
        self.port = 0

    def url(self, database: str = DATABASE) -> str:
        return f"postgresql://{USER}@127.0.0.1:{self.port}/{database}"

    def start(self) -> None:
        """Make a new cluster and serve it. Raises ServerMissing, RuntimeError (with the server's own words)."""
        self._programs = programs()
        owner = account("postgres")
        self._folder = folder = new_folder("satchel-postgres-", owner)
        self.port = free_port()
        try:
            made = start(
                [
                    self._programs / "initdb",
                    "--pgdata=data",
                    f"--username={USER}",
                    "--auth=trust",
                    "--encoding=UTF8",
                    "--locale=C",
                    "--no-sync",
                    "--no-instructions",
                ],
                folder=folder,
                owner=owner,
                log=folder / "log",
            )
            if made.wait(START_PATIENCE) != 0:
                raise RuntimeError(f"initdb failed: {self.log()}")
            self.start_again()
            self.create_database(DATABASE)
        except BaseException:
            self.stop()
            raise

    def start_again(self) -> None:
        """Serve the cluster that is there, on the same port: after ``kill``, or ``shut_down``."""
        assert self._folder is not None
        assert self._programs is not None
        settings = [f"--{name.replace('_', '-')}={value}" for name, value in self._settings.items()]
        self._process = start(
            [
                self._programs / "postgres",
                "-D",
                "data",
                "-h",
                "127.0.0.1",
                "-p",
                str(self.port),
                "-k",
                str(self._folder),
                *settings,
            ],
            folder=self._folder,
            owner=account("postgres"),
            log=self._folder / "log",
        )
        self._watch_until_it_answers()

    def _answers(self) -> bool:
        assert self._programs is not None
        done = subprocess.run(
            [self._programs / "pg_isready", "-q", "-h", "127.0.0.1", "-p", str(self.port)], check=False
        )
        return done.returncode == 0

    def create_database(self, name: str) -> str:
        """Its address; one that is there is left as it is."""
        self._tell(creation_of(name))
        return self.url(name)

    def drop_database(self, name: str) -> None:
        self._tell(removal_of(name))

    def shell(self, database: str) -> subprocess.Popen[bytes]:
        """A `psql` that reads statements from its standard input and writes plain rows."""
        assert self._programs is not None
        return subprocess.Popen(
            [self._programs / "psql", "-X", "-q", "-A", "-t", "-d", self.url(database)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )

    def _tell(self, statement: str) -> None:
        assert self._programs is not None
        tell(self.url("postgres"), statement, by=self._programs, options=_OPTIONS)

    def stand_by(self) -> None:
        """Start it anew as a standby that no primary feeds: it can be read, and refuses every write."""
        assert self._folder is not None
        self.shut_down()
        (self._folder / "data" / "standby.signal").touch()
        self.start_again()
